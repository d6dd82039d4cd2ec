//! What a person does on the page, and what then stands in the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use countersign::{Approval, ApprovalServer, Gate, NewPlan, PlanToken, Redeem, State};
use fantoccini::key::Key;
use serde_json::{Value, json};

use super::common;
use super::common::child::Child;
use super::driver::{Browser, with_browser};

pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) server: ApprovalServer,
}

impl World {
    pub(crate) fn new() -> Self {
        let gate = common::ephemeral(|builder| builder);
        let server = ApprovalServer::builder(&gate).reviewer("ada").reviewer("bob").serve(0).unwrap();
        Self { gate, server }
    }

    pub(crate) fn link(&self) -> String {
        self.server.link("ada").unwrap()
    }

    /// A plan that waits; those with a later number expire later.
    pub(crate) fn plan(&self, number: u64) -> PlanToken {
        let plan = NewPlan::new("archive", &number, Approval::required()).ttl(Duration::from_secs(600 + number));
        self.gate.agent("pricing-agent").unwrap().create(plan).unwrap().plan_token
    }

    pub(crate) fn state(&self, token: &PlanToken) -> State {
        self.gate.operator("test").unwrap().plan(token).unwrap().state
    }

    fn events(&self, token: &PlanToken) -> Vec<String> {
        let rows = self.gate.operator("test").unwrap().history(token).unwrap();
        rows.into_iter().map(|row| row.event).collect()
    }
}

pub(crate) const ALL_ARMED: &str = "document.querySelector('.card') && [...document.querySelectorAll('.card')].every((c) => c.querySelector('.reject:enabled'))";

fn card(token: &PlanToken) -> String {
    format!("article[aria-labelledby='t-{token}']")
}

impl Browser {
    pub(crate) async fn open_queue(&self, link: &str) {
        self.client.goto(link).await.unwrap();
        self.until("it is live", "document.querySelector('#live').dataset.state === 'on'").await;
    }
}

#[test]
fn the_link_signs_in_and_leaves_no_token_in_the_address() {
    let world = Arc::new(World::new());
    let token = world.plan(1);
    with_browser(&[], {
        let world = world.clone();
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.find(&card(&token)).await;
            let address = browser.client.current_url().await.unwrap();
            assert_eq!(address.as_str(), format!("http://{}/", world.server.address()));
            assert_eq!(browser.client.title().await.unwrap(), "(1) Approval queue");
            // The address was cleaned; a reload of this tab goes on.
            browser.client.refresh().await.unwrap();
            browser.until("it is live again", "document.querySelector('#live').dataset.state === 'on'").await;
            browser.find(&card(&token)).await;
            assert_eq!(browser.text("#reviewer").await, "ada");
            // A second tab has no token of its own.
            let other = browser.client.new_window(true).await.unwrap();
            browser.client.switch_to_window(other.handle).await.unwrap();
            browser.client.goto(address.as_str()).await.unwrap();
            browser.until("it asks", "!document.querySelector('#ask').hidden").await;
            assert_eq!(browser.count(".card").await, 0);
            // Pasting the link there signs in.
            browser.find("#ask-token").await.send_keys(&world.link()).await.unwrap();
            browser.click("#ask button").await;
            browser.find(&card(&token)).await;
        }
    });
}

#[test]
fn a_plan_of_another_process_shows_within_a_second() {
    let world = Arc::new(World::new());
    with_browser(&[], {
        let world = world.clone();
        move |browser| async move {
            let mut other = Child::start("propose", &json!({"db": world.gate.path()}));
            other.expect("ready");
            browser.open_queue(&world.link()).await;
            browser.until("it is empty", "document.querySelector('#empty').checkVisibility()").await;
            let mut took = Vec::new();
            for round in 0..5 {
                other.tell(&format!("round {round}"));
                other.expect("proposed");
                let since = Instant::now();
                let waiting = format!("({}) Approval queue", round + 1);
                browser.until("the title counts it", &format!("document.title === '{waiting}'")).await;
                took.push(since.elapsed());
            }
            took.sort();
            println!("from the commit in another process to the page: {took:?}");
            assert!(took[2] < Duration::from_secs(1), "{took:?}");
            // The first one came by itself into an empty queue, the others wait.
            assert_eq!(browser.count(".card").await, 1);
            assert_eq!(browser.text("#fresh").await, "4 new");
            browser.click("#fresh").await;
            browser.until("all show", "document.querySelectorAll('.card').length === 5").await;
            assert!(browser.text(".card").await.contains("another-process"));
            other.finish();
        }
    });
}

#[test]
fn a_person_approves_one_and_rejects_another_with_a_reason() {
    let world = Arc::new(World::new());
    let (first, second) = (world.plan(1), world.plan(2));
    with_browser(&[], {
        let (world, first, second) = (world.clone(), first.clone(), second.clone());
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            browser.click(&format!("{} .approve", card(&first))).await;
            browser.until("it says so", &format!("document.querySelector(\"{} .outcome.good\")", card(&first))).await;
            assert_eq!(browser.text(&format!("{} .outcome", card(&first))).await, "You approved it. It can run now.");
            browser.until("one is left", "document.title === '(1) Approval queue'").await;
            browser.click(&format!("{} .reject", card(&second))).await;
            browser
                .find(&format!("{} .foot input", card(&second)))
                .await
                .send_keys("wrong <b>table</b>")
                .await
                .unwrap();
            browser.click(&format!("{} .reject.strong", card(&second))).await;
            browser.until("none is left", "document.title === 'Approval queue'").await;
            assert_eq!(browser.text(&format!("{} .outcome", card(&second))).await, "You rejected it.");
            browser.picture("decided").await;
            browser.click("#clear").await;
            browser.until("it is empty", "document.querySelector('#empty').checkVisibility()").await;
        }
    });
    assert_eq!(world.state(&first), State::Approved);
    let plan = world.gate.operator("test").unwrap().plan(&second).unwrap();
    assert_eq!((plan.state, plan.reject_reason.as_deref()), (State::Rejected, Some("wrong <b>table</b>")));
    let rows = world.gate.operator("test").unwrap().history(&second).unwrap();
    let last = rows.last().unwrap();
    assert_eq!((last.actor.as_str(), last.channel.as_str()), ("ada", "http"));
}

#[test]
fn what_somebody_else_decided_is_said_plainly() {
    let world = Arc::new(World::new());
    let (seen, hidden) = (world.plan(1), world.plan(2));
    with_browser(&[409], {
        let (world, seen, hidden) = (world.clone(), seen.clone(), hidden.clone());
        move |browser| async move {
            let bob = world.gate.reviewer("bob").unwrap();
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            // The page hears of it by itself.
            bob.reject(&seen, Some("not this year")).unwrap();
            browser.until("it is over", &format!("document.querySelector(\"{}.over\")", card(&seen))).await;
            let said = browser.text(&format!("{} .outcome", card(&seen))).await;
            assert!(
                said.starts_with("No longer waiting: bob rejected it at ") && said.ends_with(": not this year"),
                "{said}"
            );
            // The page hears of nothing any more, and decides what was decided meanwhile.
            let deaf = "window.truly = fetch; window.fetch = (to, how) => to.endsWith('/api/plans') ? new Promise(() => {}) : truly(to, how);";
            browser.script(deaf, Vec::new()).await;
            bob.reject(&hidden, Some("nor that one")).unwrap();
            browser.click(&format!("{} .approve", card(&hidden))).await;
            browser.until("it is over", &format!("document.querySelector(\"{}.over\")", card(&hidden))).await;
            let said = browser.text(&format!("{} .outcome", card(&hidden))).await;
            assert!(
                said.starts_with("Not approved by you: bob rejected it at ") && said.ends_with(": nor that one"),
                "{said}"
            );
            browser.picture("conflict").await;
        }
    });
    assert_eq!(world.state(&hidden), State::Rejected);
}

#[test]
fn the_keyboard_alone_is_enough_and_takes_two_steps() {
    let world = Arc::new(World::new());
    let (first, second) = (world.plan(1), world.plan(2));
    with_browser(&[], {
        let (world, first, second) = (world.clone(), first.clone(), second.clone());
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            let blur = "document.activeElement.blur();";
            browser.script(blur, Vec::new()).await;
            // Without a focused card a letter does nothing.
            browser.press("a").await;
            browser.press("r").await;
            assert_eq!(browser.count(".foot input").await, 0);
            browser.press("j").await;
            browser.press("s").await;
            assert!(browser.text(&card(&first)).await.contains(first.as_str()), "the full token is one key away");
            browser.press("a").await;
            let focused = "return document.activeElement.textContent;";
            assert_eq!(browser.script(focused, Vec::new()).await, json!("Approve now"));
            assert_eq!(world.state(&first), State::AwaitingApproval, "one step decides nothing");
            // A key that is held down does nothing either.
            let held = json!({"type": "keyDown", "key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13, "autoRepeat": true});
            browser.emulate("Input.dispatchKeyEvent", held.clone()).await;
            browser.emulate("Input.dispatchKeyEvent", held).await;
            assert_eq!(browser.script(focused, Vec::new()).await, json!("Approve now"));
            // Leaving it leaves it.
            browser.press(&char::from(Key::Escape).to_string()).await;
            assert_eq!(browser.count(&format!("{}:focus .approve", card(&first))).await, 1);
            browser.press("a").await;
            browser.enter().await;
            browser
                .until("it is approved", &format!("document.querySelector(\"{} .outcome.good\")", card(&first)))
                .await;
            browser.press("j").await;
            assert_eq!(browser.count(&format!("{}:focus", card(&second))).await, 1);
            browser
                .until("it is armed", &format!("document.querySelector(\"{} .reject:enabled\")", card(&second)))
                .await;
            browser.press("r").await;
            browser.press("not twice").await;
            browser.enter().await;
            browser
                .until("it is rejected", &format!("document.querySelector(\"{} .outcome.bad\")", card(&second)))
                .await;
        }
    });
    assert_eq!(world.events(&first), ["awaiting_approval", "approved"]);
    assert_eq!(world.events(&second), ["awaiting_approval", "rejected"]);
}

#[test]
fn a_flood_at_the_moment_of_a_click_decides_nothing_else() {
    let world = Arc::new(World::new());
    let shown: Vec<_> = (1..=3).map(|number| world.plan(100 + number)).collect();
    with_browser(&[], {
        let (world, shown) = (world.clone(), shown.clone());
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            let places = "return [...document.querySelectorAll('.card')].map((c) => c.getBoundingClientRect().top);";
            let before = browser.script(places, Vec::new()).await;
            let stop = Arc::new(AtomicBool::new(false));
            let flood = std::thread::spawn({
                let (world, stop) = (world.clone(), stop.clone());
                move || {
                    // All of them expire sooner than those that show: they would come first.
                    let made = (0..60).take_while(|_| !stop.load(Ordering::Relaxed)).map(|number| world.plan(number));
                    made.collect::<Vec<_>>()
                }
            });
            browser.until("the flood is here", "!document.querySelector('#fresh').hidden").await;
            browser.click(&format!("{} .approve", card(&shown[1]))).await;
            browser
                .until("it is approved", &format!("document.querySelector(\"{} .outcome.good\")", card(&shown[1])))
                .await;
            stop.store(true, Ordering::Relaxed);
            let flood = flood.join().unwrap();
            assert_eq!(browser.script(places, Vec::new()).await, before, "no card moved");
            for token in flood.iter().chain([&shown[0], &shown[2]]) {
                assert_eq!(world.state(token), State::AwaitingApproval);
            }
            assert_eq!(world.state(&shown[1]), State::Approved);
            browser
                .until("all wait", &format!("document.querySelector('#fresh').textContent === '{} new'", flood.len()))
                .await;
            // They come when they are asked for, and are armed a moment later.
            let disabled = browser.script(
                "document.querySelector('#fresh').click(); return [...document.querySelectorAll('.card .approve, .card .reject')].every((b) => b.disabled);",
                Vec::new(),
            );
            assert_eq!(disabled.await, json!(true));
            assert_eq!(browser.count(".card").await, flood.len() as u64 + 2);
        }
    });
}

#[test]
fn a_card_is_armed_one_second_after_it_came() {
    let world = Arc::new(World::new());
    with_browser(&[], {
        let world = world.clone();
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("it is empty", "document.querySelector('#empty').checkVisibility()").await;
            browser
                .script(
                    "window.seen = {}; new MutationObserver(() => {
                       const b = document.querySelector('.card .approve');
                       if (b && !seen.came) { seen.came = performance.now(); seen.disabled = b.disabled; b.click(); }
                       if (b && !b.disabled && !seen.armed) seen.armed = performance.now();
                     }).observe(document.querySelector('#cards'), {childList: true, subtree: true, attributes: true});",
                    Vec::new(),
                )
                .await;
            let token = world.plan(1);
            browser.until("armed", "window.seen.armed").await;
            let seen = browser.script("return window.seen;", Vec::new()).await;
            assert_eq!(seen["disabled"], json!(true));
            let after = seen["armed"].as_f64().unwrap() - seen["came"].as_f64().unwrap();
            assert!(after >= 950.0, "armed after {after} ms");
            assert_eq!(world.state(&token), State::AwaitingApproval);
        }
    });
}

#[test]
fn a_folded_value_has_to_be_opened_before_the_plan_can_be_approved() {
    let world = Arc::new(World::new());
    let rows: Vec<Value> = (0..60).map(|n| json!({"sku": format!("SKU-{n:03}"), "price": n})).collect();
    let plan = NewPlan::new("set_prices", &rows, Approval::required());
    let token = world.gate.agent("pricing-agent").unwrap().create(plan).unwrap().plan_token;
    with_browser(&[], {
        let (world, token) = (world.clone(), token.clone());
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            let fold = format!("{} .fold", card(&token));
            let said = browser.text(&fold).await;
            assert!(said.starts_with("Folded. Show all: ") && said.contains("62 lines"), "{said}");
            let approve = format!("{} .approve", card(&token));
            assert!(!browser.find(&approve).await.is_enabled().await.unwrap());
            assert!(browser.text(&format!("{} .foot", card(&token))).await.contains("Open the folded part to approve"));
            assert!(!browser.text(&card(&token)).await.contains("SKU-059"));
            browser.press("a").await;
            assert_eq!(browser.count(&fold).await, 1);
            browser.press("o").await;
            assert!(browser.text(&card(&token)).await.contains("SKU-059"));
            browser.until("it can be approved", &format!("document.querySelector(\"{approve}:enabled\")")).await;
            browser.click(&approve).await;
            browser
                .until("it is approved", &format!("document.querySelector(\"{} .outcome.good\")", card(&token)))
                .await;
        }
    });
    assert_eq!(world.state(&token), State::Approved);
}

#[test]
fn the_quorum_the_countdown_and_the_expiry_show() {
    let world = Arc::new(World::new());
    let agent = world.gate.agent("pricing-agent").unwrap();
    let two = agent.create(NewPlan::new("close_account", &1, Approval::Required { quorum: 2 })).unwrap();
    with_browser(&[], {
        let (world, two) = (world.clone(), two.clone());
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            let short = NewPlan::new("archive", &2, Approval::required()).ttl(Duration::from_secs(5));
            let short = world.gate.agent("pricing-agent").unwrap().create(short).unwrap().plan_token;
            browser.until("it is announced", "!document.querySelector('#fresh').hidden").await;
            browser.click("#fresh").await;
            let left = format!("document.querySelector(\"{} .left\").textContent", card(&short));
            let first = browser.script(&format!("return {left};"), Vec::new()).await;
            assert!(first.as_str().unwrap().contains(" s left"), "{first}");
            browser.until("it counts down", &format!("{left} !== {first}")).await;
            browser.until("it has expired", &format!("document.querySelector(\"{}.over\")", card(&short))).await;
            assert!(browser.text(&format!("{} .outcome", card(&short))).await.starts_with("Expired."));
            world.gate.reviewer("bob").unwrap().approve(&two.plan_token, &two.seal).unwrap();
            let facts = format!(
                "[...document.querySelectorAll(\"{} .facts\")].some((f) => f.innerText.includes('1 of 2 approvals: bob'))",
                card(&two.plan_token)
            );
            browser.until("bob's approval shows", &facts).await;
            browser
                .until("armed", &format!("document.querySelector(\"{} .approve:enabled\")", card(&two.plan_token)))
                .await;
            browser.click(&format!("{} .approve", card(&two.plan_token))).await;
            browser
                .until(
                    "the quorum is complete",
                    &format!("document.querySelector(\"{} .outcome.good\")", card(&two.plan_token)),
                )
                .await;
        }
    });
    assert_eq!(world.events(&two.plan_token), ["awaiting_approval", "approval_recorded", "approved"]);
}

#[test]
fn the_history_is_searched_and_a_plan_has_a_timeline() {
    let world = Arc::new(World::new());
    let agent = world.gate.agent("pricing-agent").unwrap();
    let done = agent.create(NewPlan::new("reorder", &1, Approval::NotNeeded)).unwrap().plan_token;
    agent.execute(Redeem::stored(&done, "reorder"), |_| Ok(())).unwrap();
    let stuck = agent.create(NewPlan::new("refund", &1, Approval::NotNeeded)).unwrap().plan_token;
    drop(agent.begin_execute(Redeem::stored(&stuck, "refund")).unwrap());
    with_browser(&[], {
        let (world, done, stuck) = (world.clone(), done.clone(), stuck.clone());
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.click("#to-history").await;
            browser.until("the claimed plan shows", "document.querySelector('#stuck tbody tr')").await;
            let row = browser.text("#stuck tbody tr").await;
            assert!(row.contains("executing") && row.contains("alive") && row.contains(&stuck.as_str()[..8]), "{row}");
            browser.until("rows", "document.querySelectorAll('#rows tbody tr').length === 6").await;
            assert!(browser.text("#searched").await.contains("all 6 rows were searched"));
            browser.find("#search-q").await.send_keys(&done.as_str()[..10]).await.unwrap();
            browser.enter().await;
            browser.until("three match", "document.querySelectorAll('#rows tbody tr').length === 3").await;
            browser.find("#search-state").await.select_by_value("executed").await.unwrap();
            browser.until("one matches", "document.querySelectorAll('#rows tbody tr').length === 1").await;
            browser.click("#rows td[data-name=Plan] button").await;
            browser.until("the timeline", "document.querySelectorAll('#timeline li').length === 3").await;
            let timeline = browser.text("#timeline").await;
            for word in ["previewed", "executing", "executed", done.as_str(), "pricing-agent"] {
                assert!(timeline.contains(word), "{word} in {timeline}");
            }
            // Read only: nothing in this view decides.
            assert_eq!(browser.count("#history .approve, #history .reject").await, 0);
        }
    });
}

#[test]
fn a_lost_connection_is_said_and_comes_back() {
    let gate = common::ephemeral(|builder| builder);
    let token = "0123456789abcdef0123456789abcdef".to_owned();
    let serve = move |gate: &Gate, port: u16, token: &str| {
        ApprovalServer::builder(gate).reviewer_with_token("ada", token).serve(port).unwrap()
    };
    let server = serve(&gate, 0, &token);
    let port = server.port();
    with_browser(&[0, 401], move |browser| async move {
        browser.open_queue(&server.link("ada").unwrap()).await;
        // Closing waits for a thread; meanwhile the browser is not waited for.
        tokio::task::spawn_blocking(move || server.close()).await.unwrap();
        browser
            .until("it is said", "document.querySelector('#live').textContent === 'Connection lost, trying again'")
            .await;
        browser.picture("lost").await;
        let again = serve(&gate, port, &token);
        browser.until("it is back", "document.querySelector('#live').dataset.state === 'on'").await;
        // A link that was replaced is said as well.
        again.rotate("ada").unwrap();
        browser.until("it asks", "!document.querySelector('#ask').hidden").await;
        assert!(browser.text("#ask-why").await.contains("no longer valid"));
        tokio::task::spawn_blocking(move || again.close()).await.unwrap();
    });
}
