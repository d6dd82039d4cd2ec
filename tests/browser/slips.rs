//! No slip of a hand decides anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign::{Approval, NewPlan, State};
use fantoccini::key::Key;
use serde_json::{Value, json};

use super::driver::with_browser;
use super::page::{ALL_ARMED, World, card};

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
            assert!(after >= 1000.0, "armed after {after} ms");
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
