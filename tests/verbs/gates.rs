//! The gates of begin_execute: each alone, and each ahead of all that follow it.

use countersign::{Approval, Error, NewPlan, Redeem, State};
use serde_json::json;

use crate::common::world::{START_MS, World, code, never_issued, payload, stored};

const DIGEST: &str = "rows:1";

/// A redeem that the gates 5, 6 and 7 refuse, as far as they are asked.
fn wrong(token: &str) -> Redeem<'static> {
    Redeem::new(token, "another_tool").payload_json(r#"{"another": "payload"}"#).data_digest("rows:2")
}

fn gated_with_digest(world: &World, n: u64) -> countersign::Created {
    let plan = NewPlan::new("write", &n, Approval::required()).data_digest(DIGEST);
    world.agent().create(plan).unwrap()
}

fn refuse(world: &World, redeem: Redeem<'_>) -> Error {
    world.rows();
    let error = world.agent().begin_execute(redeem).unwrap_err();
    let rows = world.rows();
    let last = rows.last().unwrap();
    assert_eq!((last.event.as_str(), last.code.as_deref()), ("refused", Some(error.code())));
    error
}

#[test]
fn each_gate_stands_ahead_of_all_that_follow_it() {
    let world = World::new();
    let rejected = gated_with_digest(&world, 1);
    world.ada().reject(&rejected.plan_token, Some("no")).unwrap();
    let used = gated_with_digest(&world, 2);
    world.ada().approve(&used.plan_token, &used.seal).unwrap();
    let redeem = || Redeem::stored(&used.plan_token, "write").data_digest(DIGEST);
    let mut claim = world.agent().begin_execute(redeem()).unwrap();
    let failed = gated_with_digest(&world, 3);
    world.ada().approve(&failed.plan_token, &failed.seal).unwrap();
    drop(world.agent().begin_execute(Redeem::stored(&failed.plan_token, "write").data_digest(DIGEST)).unwrap());
    let expired = gated_with_digest(&world, 4);
    world.advance(15 * 60 * 1000 + 1);
    // 1 rejected, ahead of expired, mismatch, digest and approval.
    assert_eq!(refuse(&world, wrong(rejected.plan_token.as_str())).code(), "PLAN_REJECTED");
    // 3 executing and uncertain, also past the plan's time.
    assert_eq!(refuse(&world, wrong(used.plan_token.as_str())).code(), "ALREADY_EXECUTING");
    claim.mark_uncertain("?").unwrap();
    assert_eq!(refuse(&world, wrong(used.plan_token.as_str())).code(), "ALREADY_EXECUTING");
    // 2 used: executed, and failed for ever.
    claim.confirm_executed(&1).unwrap();
    assert_eq!(refuse(&world, wrong(used.plan_token.as_str())).code(), "PLAN_USED");
    world.operator().settle(&failed.plan_token, &countersign::Outcome::Failed("no".to_owned())).unwrap();
    assert_eq!(refuse(&world, wrong(failed.plan_token.as_str())).code(), "PLAN_USED");
    // 4 expired, noticed here, once.
    world.rows();
    assert_eq!(code(world.agent().begin_execute(wrong(expired.plan_token.as_str()))), "PLAN_EXPIRED");
    assert_eq!(code(world.agent().begin_execute(wrong(expired.plan_token.as_str()))), "PLAN_EXPIRED");
    world.assert_events(&["expired", "refused PLAN_EXPIRED", "refused PLAN_EXPIRED"]);
    // 5 mismatch, 6 digest, 7 approval.
    let open = gated_with_digest(&world, 5);
    let token = open.plan_token.as_str();
    assert_eq!(refuse(&world, wrong(token)).code(), "PLAN_MISMATCH");
    assert_eq!(refuse(&world, Redeem::new(token, "another_tool").payload(&5)).code(), "PLAN_MISMATCH");
    assert_eq!(refuse(&world, Redeem::new(token, "write").payload(&6)).code(), "PLAN_MISMATCH");
    assert_eq!(refuse(&world, Redeem::stored(token, "WRITE")).code(), "PLAN_MISMATCH");
    assert_eq!(refuse(&world, Redeem::new(token, "write").payload(&5)).code(), "DATA_DIGEST_MISMATCH");
    assert_eq!(refuse(&world, Redeem::stored(token, "write").data_digest("rows:2")).code(), "DATA_DIGEST_MISMATCH");
    assert_eq!(refuse(&world, Redeem::stored(token, "write").data_digest("")).code(), "DATA_DIGEST_MISMATCH");
    assert_eq!(refuse(&world, Redeem::stored(token, "write").data_digest(DIGEST)).code(), "AWAITING_APPROVAL");
    // Ahead of all: whose token it is.
    let other = world.caller("agent-1").begin_execute(wrong(rejected.plan_token.as_str()));
    assert_eq!(code(other), "UNKNOWN_TOKEN");
    assert_eq!(refuse(&world, wrong(&never_issued())).code(), "UNKNOWN_TOKEN");
    // Last of all: the clock. AWAITING_APPROVAL stands ahead of it.
    world.clock.set_ms(START_MS - 3_600_000);
    assert_eq!(refuse(&world, Redeem::stored(token, "write").data_digest(DIGEST)).code(), "AWAITING_APPROVAL");
    world.assert_intact();
}

#[test]
fn a_plan_is_valid_in_the_millisecond_in_which_it_expires_and_not_in_the_next() {
    let world = World::new();
    let (first, second) = (world.free(&payload(1)), world.free(&payload(2)));
    let left = u64::try_from(first.expires_at.timestamp_millis() - START_MS).unwrap();
    assert_eq!(left, 15 * 60 * 1000);
    world.advance(left);
    assert_eq!(world.state(&first), State::Previewed);
    let claim = world.claim(&first);
    world.advance(1);
    assert_eq!(world.state(&second), State::Expired);
    assert_eq!(code(world.agent().begin_execute(stored(&second))), "PLAN_EXPIRED");
    drop(claim);
    assert_eq!(world.state(&first), State::Executing, "a claimed plan never expires");
    world.assert_intact();
}

#[test]
fn the_presented_payload_is_compared_by_value_and_what_is_stored_runs() {
    let world = World::new();
    let created = world.free(&json!({"b": 1.0, "a": [true, null]}));
    let redeem = Redeem::new(&created.plan_token, "write").payload_json(" {\"a\":[true,null], \"b\":1e0}");
    let claim = world.agent().begin_execute(redeem).unwrap();
    assert_eq!(claim.payload().as_str(), r#"{"a":[true,null],"b":1}"#);
    assert_eq!(claim.payload().fingerprint(), created.fingerprint);
}

#[test]
fn a_redeem_without_a_payload_is_the_hosts_mistake_and_leaves_no_row() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    let error = world.agent().begin_execute(Redeem::new(&created.plan_token, "write")).unwrap_err();
    assert!(error.is_invalid_input());
    let error = world.agent().begin_execute(Redeem::new(&created.plan_token, "write").payload(&f64::NAN)).unwrap_err();
    assert!(error.is_invalid_input());
    assert_eq!(world.events(), [""; 0]);
    assert_eq!(world.state(&created), State::Previewed);
}

#[test]
fn a_plan_without_a_digest_does_not_ask_for_one() {
    let world = World::new();
    let created = world.free(&payload(1));
    let _claim = world.agent().begin_execute(stored(&created).data_digest("whatever")).unwrap();
}

#[test]
fn a_mismatch_row_says_what_was_presented_without_the_payload() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    let secret = json!({"card": "4111111111111111"});
    let huge_tool = "t".repeat(1024 * 1024);
    let redeem = Redeem::new(&created.plan_token, huge_tool).payload(&secret);
    assert_eq!(code(world.agent().begin_execute(redeem)), "PLAN_MISMATCH");
    let rows = world.rows();
    let detail = rows[0].detail.as_deref().unwrap();
    assert!(detail.contains(&countersign::fingerprint(&secret).unwrap().to_string()), "{detail}");
    let whole = serde_json::to_string(&rows[0]).unwrap();
    assert!(!whole.contains("4111") && whole.len() < 2_000, "{whole}");
    world.assert_intact();
}

#[test]
fn a_clock_that_went_back_refuses_the_claim_and_changes_nothing() {
    let world = World::new();
    let created = world.approved(&payload(1));
    world.rows();
    world.clock.set_ms(START_MS - 2_001);
    let error = world.agent().begin_execute(stored(&created)).unwrap_err();
    assert!(error.is_clock_went_back());
    assert_eq!(world.events(), [""; 0]);
    assert_eq!(world.state(&created), State::Approved);
    world.clock.set_ms(START_MS - 2_000);
    let _claim = world.agent().begin_execute(stored(&created)).unwrap();
    world.assert_intact();
}

#[test]
fn a_retry_is_held_to_the_time_of_the_claim_before() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.advance(10_000);
    let mut claim = world.claim(&created);
    claim.confirm_failed("later").unwrap();
    world.clock.set_ms(START_MS + 7_000);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "CLOCK_WENT_BACK");
    world.clock.set_ms(START_MS + 8_000);
    assert_eq!(world.claim(&created).attempt(), 2);
    world.assert_intact();
}

#[test]
fn a_retry_passes_all_gates_again_expiry_included() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    world.advance(15 * 60 * 1000 + 1);
    assert_eq!(claim.confirm_failed("too late").unwrap().state, State::Previewed);
    world.rows();
    assert_eq!(world.state(&created), State::Expired, "a read shows it");
    assert_eq!(world.events(), [""; 0], "and writes nothing");
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "PLAN_EXPIRED");
    world.assert_events(&["expired", "refused PLAN_EXPIRED"]);
    world.assert_intact();
}

#[test]
fn a_refusal_carries_the_plans_metadata() {
    let world = World::new();
    let created = world.gated(&payload(1));
    let error = world.agent().begin_execute(stored(&created)).unwrap_err();
    let plan = error.refusal().unwrap().plan().unwrap();
    assert_eq!(plan.plan_token, created.plan_token.as_str());
    assert_eq!((plan.tool.as_str(), plan.state, plan.attempt), ("write", State::AwaitingApproval, 0));
    assert_eq!(plan.expires_at, Some(created.expires_at));
}
