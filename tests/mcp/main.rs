//! The MCP server of the examples, driven by a real MCP client over standard input and output.

#[path = "../common/mod.rs"]
mod common;

mod agent;
mod page;
mod recorder;
mod server;

use std::time::{Duration, Instant};

use countersign::{Gate, State};
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Value, json};

use agent::Session;
use page::Page;
use server::Place;

/// Longer than anything here takes: the deadline of every wait.
const SOON: Duration = Duration::from_secs(60);

/// A category with more products than an agent may change by itself, and one with fewer.
const BIG: &str = "green tea";
const SMALL: &str = "oolong and white";

/// Polls another process's database, whose changes nothing announces here.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// The shop's write lock, held until dropped: an update waits in the middle.
struct LockedShop {
    _open: Connection,
}

impl LockedShop {
    fn take(place: &Place) -> Self {
        let connection = place.shop();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self { _open: connection }
    }
}

fn price(place: &Place, category: &str) -> i64 {
    let sql = "SELECT price_cents FROM products WHERE category = ?1 ORDER BY sku LIMIT 1";
    place.shop().query_row(sql, [category], |row| row.get(0)).unwrap()
}

fn ledger(place: &Place, token: &str) -> Option<i64> {
    let sql = "SELECT changed FROM ledger WHERE plan_token = ?1";
    place.shop().query_row(sql, [token], |row| row.get(0)).optional().unwrap()
}

/// An approval by this process: another one than the server's.
fn approve(gate: &Gate, token: &str) {
    let plan = gate.operator("olga").unwrap().plan(token).unwrap();
    gate.reviewer("ada").unwrap().approve(token, &plan.seal).unwrap();
}

fn state(gate: &Gate, token: &str) -> State {
    gate.operator("olga").unwrap().plan(token).unwrap().state
}

fn intact(gate: &Gate) {
    assert_eq!(gate.operator("olga").unwrap().audit().verify(None).unwrap().difference, None);
}

async fn preview(session: &Session, category: &str, percent: i64) -> String {
    let args = json!({"category": category, "percent": percent, "reason": "harvest of last year"});
    let plan = session.ok("preview_price_update", args).await;
    plan["plan_token"].as_str().unwrap().to_owned()
}

fn redeem(token: &str, category: &str, percent: i64) -> Value {
    json!({"plan_token": token, "category": category, "percent": percent})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_sees_four_tools_and_none_that_approves() {
    let place = Place::new();
    let session = Session::start(&place).await;
    let mut tools = session.client.list_all_tools().await.unwrap();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    let tools: Vec<_> = tools
        .iter()
        .map(|tool| {
            let args = tool.input_schema["properties"].as_object().unwrap().keys().map(String::as_str);
            let read_only = tool.annotations.as_ref().unwrap().read_only_hint.unwrap();
            (tool.name.as_ref(), args.collect::<Vec<_>>(), read_only)
        })
        .collect();
    // No argument sets a gate, names a caller or carries a decision.
    assert_eq!(
        tools,
        [
            ("execute_price_update", vec!["category", "percent", "plan_token"], false),
            ("list_products", vec!["category"], true),
            ("plan_status", vec!["plan_token", "wait_seconds"], true),
            ("preview_price_update", vec!["category", "percent", "reason"], false),
        ]
    );
    session.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_update_waits_for_another_process_and_runs_once() {
    let place = Place::new();
    let session = Session::start(&place).await;
    let before = price(&place, BIG);
    let listed = session.ok("list_products", json!({"category": BIG})).await;
    assert_eq!(listed["products"][0]["price_cents"], before);

    let args = json!({"category": BIG, "percent": 15, "reason": "harvest of last year"});
    let plan = session.ok("preview_price_update", args).await;
    assert_eq!(
        (&plan["state"], &plan["products"]),
        (&json!("awaiting_approval"), &json!(listed["products"].as_array().unwrap().len()))
    );
    let token = plan["plan_token"].as_str().unwrap();

    let refused = session.refused("execute_price_update", redeem(token, BIG, 15)).await;
    assert_eq!(
        refused,
        json!({
            "code": "AWAITING_APPROVAL", "message": "the plan waits for approval",
            "hint": "Wait until a reviewer has approved the plan, then call again.",
        })
    );
    let status = session.ok("plan_status", json!({"plan_token": token})).await;
    assert_eq!((&status["state"], &status["approvals_needed"]), (&json!("awaiting_approval"), &json!(1)));

    // The agent waits for the decision while another process makes it.
    let gate = Gate::open(place.gate()).unwrap();
    let waiting = session.ok("plan_status", json!({"plan_token": token, "wait_seconds": 50}));
    let deciding = async {
        tokio::task::block_in_place(|| approve(&gate, token));
    };
    let (status, ()) = tokio::join!(waiting, deciding);
    assert_eq!((&status["state"], &status["approvals"]), (&json!("approved"), &json!(1)));

    let refused = session.refused("execute_price_update", redeem(token, BIG, 40)).await;
    assert_eq!(refused["code"], "PLAN_MISMATCH");
    assert_eq!(price(&place, BIG), before);

    let done = session.ok("execute_price_update", redeem(token, BIG, 15)).await;
    assert_eq!(done, json!({"state": "executed", "changed": plan["products"]}));
    let after = price(&place, BIG);
    assert_eq!(after, (before * 85 + 50) / 100);
    let refused = session.refused("execute_price_update", redeem(token, BIG, 15)).await;
    assert_eq!(refused["code"], "PLAN_USED");
    assert_eq!(price(&place, BIG), after);
    let status = session.ok("plan_status", json!({"plan_token": token})).await;
    assert_eq!((&status["state"], &status["result"]), (&json!("executed"), &plan["products"]));
    intact(&gate);
    session.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_is_told_why_not_in_a_form_that_it_can_act_on() {
    let place = Place::new();
    let session = Session::start(&place).await;
    let gate = Gate::open(place.gate()).unwrap();

    // A small update needs nobody. The host's own checks come before the gate's.
    let token = preview(&session, SMALL, 10).await;
    for percent in [0, -50, 91] {
        let args = json!({"category": SMALL, "percent": percent, "reason": "x"});
        assert_eq!(session.refused("preview_price_update", args).await["code"], "INVALID_PERCENT");
        let refused = session.refused("execute_price_update", redeem(&token, SMALL, percent)).await;
        assert_eq!(refused["code"], "INVALID_PERCENT");
    }
    let args = json!({"category": "cars", "percent": 5, "reason": "x"});
    assert_eq!(session.refused("preview_price_update", args).await["code"], "NO_SUCH_CATEGORY");

    // Somebody changes a price between preview and run.
    let changed = "UPDATE products SET price_cents = price_cents + 1 WHERE category = ?1";
    place.shop().execute(changed, [SMALL]).unwrap();
    let refused = session.refused("execute_price_update", redeem(&token, SMALL, 10)).await;
    assert_eq!(refused["code"], "DATA_DIGEST_MISMATCH");
    assert!(refused["hint"].as_str().unwrap().contains("Preview the write again"), "{refused}");

    // A person says no, and why; the agent sees it, and so does the next plan of the same update.
    let token = preview(&session, SMALL, 60).await;
    gate.reviewer("ada").unwrap().reject(&token, Some("below what we pay for it")).unwrap();
    let refused = session.refused("execute_price_update", redeem(&token, SMALL, 60)).await;
    assert_eq!((&refused["code"], &refused["reason"]), (&json!("PLAN_REJECTED"), &json!("below what we pay for it")));
    let status = session.ok("plan_status", json!({"plan_token": token, "wait_seconds": 50})).await;
    assert_eq!((&status["state"], &status["reject_reason"]), (&json!("rejected"), &json!("below what we pay for it")));
    let args = json!({"category": SMALL, "percent": 60, "reason": "once more"});
    let again = session.ok("preview_price_update", args).await;
    assert_eq!(again["state"], "awaiting_approval");
    assert_eq!(again["earlier_rejection"], "below what we pay for it");

    for tool in ["execute_price_update", "plan_status"] {
        let refused = session.refused(tool, redeem(&"0".repeat(48), SMALL, 10)).await;
        assert_eq!(refused["code"], "UNKNOWN_TOKEN", "{tool}");
    }
    intact(&gate);
    session.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_inside_the_update_has_changed_nothing_and_the_plan_runs_again() {
    let place = Place::new();
    let before = price_of_new_shop(&place).await;
    let gate = Gate::open(place.gate()).unwrap();
    let session = Session::start(&place).await;
    let token = preview(&session, BIG, 15).await;
    approve(&gate, &token);
    let locked = LockedShop::take(&place);
    let running = session.start_call("execute_price_update", redeem(&token, BIG, 15));
    eventually("the plan is claimed", || (state(&gate, &token) == State::Executing).then_some(()));
    session.kill().await;
    assert!(running.await.unwrap().is_err());
    drop(locked);

    let session = Session::start(&place).await;
    // The ledger says no: the plan is ready again, and its approval stands.
    let status = session.ok("plan_status", json!({"plan_token": token})).await;
    assert_eq!(status["state"], "approved");
    assert_eq!((price(&place, BIG), ledger(&place, &token)), (before, None));
    session.ok("execute_price_update", redeem(&token, BIG, 15)).await;
    assert_eq!(price(&place, BIG), (before * 85 + 50) / 100);
    intact(&gate);
    session.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_between_the_update_and_its_record_is_settled_from_the_ledger() {
    let place = Place::new();
    let before = price_of_new_shop(&place).await;
    let gate = Gate::open(place.gate()).unwrap();
    let session = Session::start(&place).await;
    let token = preview(&session, BIG, 15).await;
    approve(&gate, &token);
    let locked = LockedShop::take(&place);
    let running = session.start_call("execute_price_update", redeem(&token, BIG, 15));
    eventually("the plan is claimed", || (state(&gate, &token) == State::Executing).then_some(()));
    // Now the record has to wait, and the update goes on.
    let record = Connection::open(place.gate()).unwrap();
    record.busy_timeout(SOON).unwrap();
    record.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(locked);
    let changed = eventually("the update is committed", || ledger(&place, &token));
    session.kill().await;
    assert!(running.await.unwrap().is_err());
    record.execute_batch("ROLLBACK").unwrap();
    drop(record);
    let after = price(&place, BIG);
    assert_eq!(after, (before * 85 + 50) / 100);
    assert_eq!(state(&gate, &token), State::Executing);

    let session = Session::start(&place).await;
    let status = session.ok("plan_status", json!({"plan_token": token})).await;
    assert_eq!((&status["state"], &status["result"]), (&json!("executed"), &json!(changed)));
    let refused = session.refused("execute_price_update", redeem(&token, BIG, 15)).await;
    assert_eq!(refused["code"], "PLAN_USED");
    assert_eq!(price(&place, BIG), after);
    intact(&gate);
    session.end().await;
}

/// Starts the server once, so that the shop is there.
async fn price_of_new_shop(place: &Place) -> i64 {
    Session::start(place).await.end().await;
    price(place, BIG)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_client_cancels_goes_on() {
    let place = Place::new();
    let session = Session::start(&place).await;
    let gate = Gate::open(place.gate()).unwrap();
    let token = preview(&session, SMALL, 10).await;
    let locked = LockedShop::take(&place);
    session
        .start_and_cancel("execute_price_update", redeem(&token, SMALL, 10), || {
            eventually("the plan is claimed", || (state(&gate, &token) == State::Executing).then_some(()));
        })
        .await;
    drop(locked);
    eventually("the update is recorded", || (state(&gate, &token) == State::Executed).then_some(()));
    assert!(ledger(&place, &token).is_some());
    session.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reviewers_token_is_in_nothing_that_the_agent_can_see() {
    let place = Place::new();
    let session = Session::start(&place).await;
    let page = eventually("the link is written", || Page::of(&place));
    // Used as a person uses it: the link is opened, plans are read, decided, and refused.
    let document = page.get(&format!("/?token={}", page.token));
    assert!(document.starts_with("HTTP/1.1 200"), "{document}");
    let token = preview(&session, BIG, 15).await;
    let queue = page.get("/api/plans");
    assert!(queue.starts_with("HTTP/1.1 200") && queue.contains(&token), "{queue}");
    let approved = page.decide(&token, "approve", &seal(&queue));
    assert!(approved.starts_with("HTTP/1.1 200"), "{approved}");
    session.ok("execute_price_update", redeem(&token, BIG, 15)).await;
    let rejected = preview(&session, BIG, 40).await;
    let refused = page.decide(&rejected, "approve", &"0".repeat(64));
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    assert!(page.decide(&rejected, "reject", &seal(&page.get("/api/plans"))).starts_with("HTTP/1.1 200"));
    let status = session.ok("plan_status", json!({"plan_token": rejected, "wait_seconds": 1})).await;
    assert_eq!(status["state"], "rejected");
    // What an agent may try.
    session.ok("list_products", json!({"category": "'; SELECT * FROM plans --"})).await;
    session.refused("plan_status", json!({"plan_token": "../gate.db.owners/reviewer"})).await;
    let _ = session.call("no_such_tool", json!({})).await.unwrap_err();

    session.note("arguments", &place.of_process(session.pid(), "cmdline"));
    session.note("environment", &place.of_process(session.pid(), "environ"));
    assert_eq!(page.mode(), 0o600);
    let (secret, seen) = (page.token.clone(), session.end().await);
    assert!(seen.len() > 20_000 && seen.text().contains("TRACE"), "too little was recorded: {} bytes", seen.len());
    assert!(seen.text().contains(&token), "the recorder saw the agent's own plan");
    assert_eq!(recorder::found(&secret, seen.bytes()), None);
}

/// The seal of the newest card.
fn seal(queue: &str) -> String {
    let body: Value = serde_json::from_str(queue.split_once("\r\n\r\n").unwrap().1).unwrap();
    body["plans"][0]["seal"].as_str().unwrap().to_owned()
}
