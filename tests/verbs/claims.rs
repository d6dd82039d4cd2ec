//! The claim's own verbs: reports, their repeats, the fence, adopt and check.

use countersign::State;
use serde_json::json;

use crate::common::world::{World, code, never_issued, payload, stored};

#[test]
fn a_confirm_repeated_by_the_same_claim_is_a_no_op() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    world.rows();
    assert!(!claim.confirm_executed(&json!({"rows": 3})).unwrap().already);
    let again = claim.confirm_executed(&json!({"rows": 4})).unwrap();
    assert_eq!((again.state, again.already), (State::Executed, true));
    world.assert_events(&["executed"]);
    let plan = world.operator().plan(&created.plan_token).unwrap();
    assert_eq!(plan.result.unwrap().as_str(), r#"{"rows":3}"#);
    world.assert_intact();
}

#[test]
fn a_failed_report_repeated_by_the_same_claim_is_a_no_op_whatever_became_of_the_plan() {
    let world = World::new();
    for end in ["", "reject", "expire"] {
        let created = world.gated(&payload(1));
        world.reviewer("ben").approve(&created.plan_token, &created.seal).unwrap();
        let mut claim = world.claim(&created);
        assert!(!claim.confirm_failed("first").unwrap().already);
        let state = match end {
            "reject" => world.ada().reject(&created.plan_token, None).unwrap().state,
            "expire" => {
                world.advance(15 * 60 * 1000 + 1);
                world.operator().sweep().unwrap();
                State::Expired
            }
            _ => State::Approved,
        };
        world.rows();
        let again = claim.confirm_failed("second").unwrap();
        assert_eq!((again.state, again.already), (state, true));
        assert_eq!(world.events(), [""; 0]);
        assert_eq!(world.operator().plan(&created.plan_token).unwrap().error.as_deref(), Some("first"));
    }
    world.assert_intact();
}

#[test]
fn an_uncertain_report_repeated_is_a_no_op_and_the_same_claim_may_still_confirm() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    world.rows();
    assert!(!claim.mark_uncertain("timeout").unwrap().already);
    let again = claim.mark_uncertain("timeout again").unwrap();
    assert_eq!((again.state, again.already), (State::Uncertain, true));
    assert_eq!(claim.confirm_executed(&"found it").unwrap().state, State::Executed);
    world.assert_events(&["uncertain", "executed"]);
    world.assert_intact();
}

#[test]
fn another_report_after_the_outcome_is_refused_and_kept_as_evidence() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    claim.confirm_executed(&1).unwrap();
    world.rows();
    assert_eq!(code(claim.confirm_failed("it did not")), "NOT_EXECUTING");
    assert_eq!(code(claim.mark_uncertain("who knows")), "NOT_EXECUTING");
    let rows = world.rows();
    for (row, (verb, detail)) in rows.iter().zip([("confirm_failed", "it did not"), ("mark_uncertain", "who knows")]) {
        assert_eq!((row.event.as_str(), row.code.as_deref()), ("refused", Some("NOT_EXECUTING")));
        let said: serde_json::Value = serde_json::from_str(row.detail.as_deref().unwrap()).unwrap();
        assert_eq!(said, json!({"verb": verb, "attempt": 1, "detail": detail}));
    }
    assert_eq!(rows.len(), 2);
    let other = world.free(&payload(2));
    let mut claim = world.claim(&other);
    claim.confirm_failed("no").unwrap();
    world.rows();
    assert_eq!(code(claim.confirm_executed(&json!({"secret": 7}))), "NOT_EXECUTING");
    let row = world.rows().remove(0);
    let said: serde_json::Value = serde_json::from_str(row.detail.as_deref().unwrap()).unwrap();
    let digest = countersign::fingerprint(&json!({"secret": 7})).unwrap().to_string();
    assert_eq!(said, json!({"verb": "confirm_executed", "attempt": 1, "result_sha256": digest}));
    assert_eq!(world.state(&other), State::Previewed);
    world.assert_intact();
}

#[test]
fn a_stale_claim_changes_nothing() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut first = world.claim(&created);
    first.confirm_failed("again").unwrap();
    let mut second = world.claim(&created);
    for state in [State::Executing, State::Uncertain] {
        world.rows();
        assert_eq!(code(first.confirm_executed(&"stale")), "STALE_CLAIM");
        assert_eq!(code(first.confirm_failed("stale")), "STALE_CLAIM");
        assert_eq!(code(first.mark_uncertain("stale")), "STALE_CLAIM");
        assert_eq!(code(first.check()), "STALE_CLAIM");
        world.assert_events(&["refused STALE_CLAIM"; 3]);
        assert_eq!(world.state(&created), state);
        if state == State::Executing {
            second.check().unwrap();
            second.mark_uncertain("?").unwrap();
        }
    }
    second.confirm_executed(&2).unwrap();
    assert_eq!(code(first.confirm_executed(&"stale")), "NOT_EXECUTING");
    world.assert_intact();
}

#[test]
fn check_reads_the_fence_and_writes_nothing() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    world.rows();
    claim.check().unwrap();
    claim.mark_uncertain("?").unwrap();
    assert_eq!(code(claim.check()), "NOT_EXECUTING");
    claim.confirm_failed("no").unwrap();
    assert_eq!(code(claim.check()), "NOT_EXECUTING");
    world.assert_events(&["uncertain", "failed EXECUTION_FAILED"]);
}

#[test]
fn a_dropped_claim_leaves_its_plan_executing() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    drop(world.claim(&created));
    world.assert_events(&["executing"]);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "ALREADY_EXECUTING");
    world.advance(48 * 3_600_000);
    assert_eq!(world.operator().sweep().unwrap(), 0);
    assert_eq!(world.state(&created), State::Executing);
    world.assert_intact();
}

#[test]
fn adopt_moves_the_claim_to_the_calling_instance() {
    let world = World::new();
    let created = world.free(&payload(1));
    let claim = world.claim(&created);
    let second = world.second_gate();
    let agent = second.agent("AGENT-0").unwrap();
    world.rows();
    for (attempt, token) in
        [(2, claim.claim_token().to_owned()), (0, claim.claim_token().to_owned()), (1, never_issued())]
    {
        assert_eq!(code(agent.adopt(&created.plan_token, attempt, &token)), "STALE_CLAIM");
    }
    let mut adopted = agent.adopt(&created.plan_token, 1, claim.claim_token()).unwrap();
    world.assert_events(&["refused STALE_CLAIM", "refused STALE_CLAIM", "refused STALE_CLAIM", "adopted"]);
    assert_eq!(adopted.claim_token(), claim.claim_token());
    assert_eq!(adopted.payload(), claim.payload());
    let plan = world.operator().plan(&created.plan_token).unwrap();
    assert_eq!((plan.state, plan.attempt), (State::Executing, 1));
    assert_eq!(plan.instance_id.as_deref(), Some(second.instance_id()));
    // The claim token is the proof: whoever has it confirms, once.
    adopted.confirm_executed(&1).unwrap();
    assert_eq!(code(agent.adopt(&created.plan_token, 1, claim.claim_token())), "NOT_EXECUTING");
    world.assert_intact();
}

#[test]
fn adopt_of_a_plan_that_is_not_claimed_is_refused() {
    let world = World::new();
    let plans = [world.free(&payload(1)), world.gated(&payload(2)), world.approved(&payload(3))];
    let ended = [State::Executed, State::Failed, State::Rejected].map(|state| world.ended(state, &payload(9)));
    for created in plans.iter().chain(&ended) {
        world.rows();
        assert_eq!(code(world.agent().adopt(&created.plan_token, 1, &never_issued())), "NOT_EXECUTING");
        world.assert_events(&["refused NOT_EXECUTING"]);
    }
    world.assert_intact();
}

#[test]
fn a_claim_carries_what_was_planned() {
    let world = World::new();
    let plan = countersign::NewPlan::new("write", &[1, 2, 3], countersign::Approval::NotNeeded)
        .reason("because")
        .preview_count(3);
    let created = world.agent().create(plan).unwrap();
    let claim = world.claim(&created);
    assert_eq!(claim.plan_token(), &created.plan_token);
    assert_eq!(claim.payload_as::<Vec<u8>>().unwrap(), [1, 2, 3]);
    assert!(claim.payload_as::<String>().unwrap_err().is_invalid_input());
    assert_eq!((claim.plan().reason.as_deref(), claim.plan().preview_count), (Some("because"), Some(3)));
    assert_eq!(claim.plan().state, State::Executing);
    claim.record_host_event("row_done", "1 of 3").unwrap();
    assert_eq!(world.rows().last().unwrap().event, "host:row_done");
    let said = format!("{claim:?}");
    assert!(!said.contains(claim.claim_token()) && !said.contains(created.plan_token.as_str()), "{said}");
}

#[test]
fn a_confirms_row_says_how_long_the_claim_took_and_no_other_row_does() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    world.advance(1_500);
    claim.confirm_failed("no").unwrap();
    let mut claim = world.claim(&created);
    world.advance(250);
    world.clock.set_ms(crate::common::world::START_MS);
    claim.confirm_executed(&1).unwrap();
    let durations: Vec<_> =
        world.rows().into_iter().filter_map(|row| row.duration_us.map(|us| (row.event, us))).collect();
    assert_eq!(durations, [("failed".to_owned(), 1_500_000), ("executed".to_owned(), 250_000)]);
}

#[test]
fn a_detail_past_its_limit_is_omitted_and_the_report_stands() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    let long = "x".repeat(1024 * 1024);
    assert_eq!(claim.mark_uncertain(&long).unwrap().state, State::Uncertain);
    let error = world.operator().plan(&created.plan_token).unwrap().error.unwrap();
    let said: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!(said["bytes"], 1024 * 1024);
    assert_eq!(said["sha256"].as_str().unwrap().len(), 64);
    claim.confirm_failed("").unwrap();
    world.assert_intact();
}
