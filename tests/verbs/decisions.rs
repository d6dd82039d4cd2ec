//! Approve and reject: quorum, who may vote, what is a no-op, and in which order they refuse.

use countersign::{Approval, NewPlan, Outcome, State};

use crate::common::world::{World, code, payload, stored};

const WRONG: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[test]
fn a_quorum_needs_that_many_different_reviewers_and_names_have_no_case() {
    let world = World::new();
    let created = world.quorum(&payload(1), 3);
    let approve = |name: &str| world.reviewer(name).approve(&created.plan_token, &created.seal).unwrap();
    world.rows();
    let first = approve("ada");
    assert_eq!(
        (first.state, first.already, first.approvals, first.approvals_needed),
        (State::AwaitingApproval, false, 1, 3)
    );
    for same in ["ada", "ADA", "Ada"] {
        let again = approve(same);
        assert_eq!((again.state, again.already, again.approvals), (State::AwaitingApproval, true, 1), "{same}");
    }
    assert_eq!(approve("ben").approvals, 2);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "AWAITING_APPROVAL");
    let last = approve("cleo");
    assert_eq!((last.state, last.already, last.approvals), (State::Approved, false, 3));
    let after = approve("dora");
    assert_eq!((after.state, after.already, after.approvals), (State::Approved, true, 3));
    world.assert_events(&["approval_recorded", "approval_recorded", "refused AWAITING_APPROVAL", "approved"]);
    let plan = world.ada().plan(&created.plan_token).unwrap();
    let reviewers: Vec<_> = plan.approvals.iter().map(|given| given.reviewer.as_str()).collect();
    assert_eq!(reviewers, ["ada", "ben", "cleo"]);
    assert!(plan.decided_at.is_some());
    world.claim(&created).confirm_executed(&1).unwrap();
    world.assert_intact();
}

#[test]
fn an_approval_row_names_the_seal_the_reviewer_and_the_channel() {
    let world = World::new();
    let created = world.gated(&payload(1));
    world.rows();
    let ada = world.ada().via(countersign::Channel::new("terminal").unwrap());
    ada.approve(&created.plan_token, &created.seal).unwrap();
    let rows = world.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].detail.as_deref(), Some(created.seal.as_str()));
    assert_eq!((rows[0].actor.as_str(), rows[0].channel.as_str()), ("ada", "terminal"));
    assert_eq!(
        (rows[0].from_state.as_deref(), rows[0].to_state.as_deref()),
        (Some("awaiting_approval"), Some("approved"))
    );
}

#[test]
fn nobody_approves_what_they_proposed_whatever_the_case_of_the_name() {
    let world = World::new();
    let created = world.quorum(&payload(1), 2);
    for name in ["agent-0", "AGENT-0", "Agent-0"] {
        assert_eq!(code(world.reviewer(name).approve(&created.plan_token, &created.seal)), "SELF_APPROVAL");
    }
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    assert_eq!(code(world.reviewer("AGENT-0").approve(&created.plan_token, &created.seal)), "SELF_APPROVAL");
    assert_eq!(world.state(&created), State::AwaitingApproval);
    // The caller may say no to its own plan: that is never dangerous.
    world.reviewer("agent-0").reject(&created.plan_token, None).unwrap();
    world.assert_intact();
}

#[test]
fn approve_refuses_in_its_order() {
    let world = World::new();
    let rejected = world.ended(State::Rejected, &payload(1));
    let executed = world.ended(State::Executed, &payload(2));
    let failed = world.ended(State::Failed, &payload(3));
    let myself = world.reviewer("agent-0");
    // Rejected, used and expired come ahead of the seal; a rejected plan past its time is rejected.
    world.advance(24 * 60 * 60 * 1000);
    assert_eq!(code(myself.approve(&rejected.plan_token, WRONG)), "PLAN_REJECTED");
    assert_eq!(code(myself.approve(&executed.plan_token, WRONG)), "PLAN_USED");
    assert_eq!(code(myself.approve(&failed.plan_token, WRONG)), "PLAN_USED");
    let expired = world.gated(&payload(4));
    world.advance(15 * 60 * 1000 + 1);
    assert_eq!(code(myself.approve(&expired.plan_token, WRONG)), "PLAN_EXPIRED");
    // The seal comes ahead of the no-op, and the no-op ahead of the caller's own vote.
    let waiting = world.gated(&payload(5));
    assert_eq!(code(myself.approve(&waiting.plan_token, WRONG)), "APPROVAL_MISMATCH");
    let approved = world.approved(&payload(6));
    assert_eq!(code(myself.approve(&approved.plan_token, WRONG)), "APPROVAL_MISMATCH");
    assert!(myself.approve(&approved.plan_token, &approved.seal).unwrap().already);
    let free = world.free(&payload(7));
    assert_eq!(code(myself.approve(&free.plan_token, WRONG)), "APPROVAL_MISMATCH");
    let no_gate = myself.approve(&free.plan_token, &free.seal).unwrap();
    assert_eq!((no_gate.state, no_gate.already), (State::Previewed, true));
    assert_eq!(code(myself.approve(&waiting.plan_token, &waiting.seal)), "SELF_APPROVAL");
    // Last of all the clock: SELF_APPROVAL and the no-op stand ahead of it.
    world.clock.set_ms(1_600_000_000_000);
    assert_eq!(code(myself.approve(&waiting.plan_token, &waiting.seal)), "SELF_APPROVAL");
    assert!(world.ada().approve(&approved.plan_token, &approved.seal).unwrap().already);
    world.rows();
    assert_eq!(code(world.ada().approve(&waiting.plan_token, &waiting.seal)), "CLOCK_WENT_BACK");
    assert_eq!(world.events(), [""; 0]);
    world.assert_intact();
}

#[test]
fn approve_of_a_claimed_plan_is_a_no_op_even_past_its_time() {
    let world = World::new();
    let created = world.approved(&payload(1));
    let mut claim = world.claim(&created);
    world.advance(60 * 60 * 1000);
    world.rows();
    let answer = world.reviewer("ben").approve(&created.plan_token, &created.seal).unwrap();
    assert_eq!((answer.state, answer.already, answer.approvals), (State::Executing, true, 1));
    claim.mark_uncertain("a timeout").unwrap();
    let answer = world.reviewer("ben").approve(&created.plan_token, &created.seal).unwrap();
    assert_eq!((answer.state, answer.already), (State::Uncertain, true));
    world.assert_events(&["uncertain"]);
    claim.confirm_executed(&"late, and not lost").unwrap();
    world.assert_intact();
}

#[test]
fn reject_refuses_in_its_order() {
    let world = World::new();
    let ada = world.ada();
    let executed = world.ended(State::Executed, &payload(1));
    let failed = world.ended(State::Failed, &payload(2));
    let running = world.free(&payload(3));
    let mut claim = world.claim(&running);
    let waiting = world.gated(&payload(4));
    assert_eq!(code(ada.reject_sealed(&waiting.plan_token, WRONG, None)), "APPROVAL_MISMATCH");
    world.advance(15 * 60 * 1000 + 1);
    assert_eq!(code(ada.reject_sealed(&executed.plan_token, WRONG, None)), "PLAN_USED");
    assert_eq!(code(ada.reject_sealed(&failed.plan_token, WRONG, None)), "PLAN_USED");
    assert_eq!(code(ada.reject_sealed(&running.plan_token, WRONG, None)), "ALREADY_EXECUTING");
    claim.mark_uncertain("?").unwrap();
    assert_eq!(code(ada.reject(&running.plan_token, None)), "ALREADY_EXECUTING");
    assert_eq!(code(ada.reject_sealed(&waiting.plan_token, WRONG, None)), "PLAN_EXPIRED");
    let rejected = world.gated(&payload(5));
    ada.reject_sealed(&rejected.plan_token, &rejected.seal, Some("no")).unwrap();
    assert_eq!(code(ada.reject_sealed(&rejected.plan_token, WRONG, None)), "APPROVAL_MISMATCH");
    // A rejected plan past its time is still rejected, not expired.
    world.advance(15 * 60 * 1000 + 1);
    assert!(ada.reject_sealed(&rejected.plan_token, &rejected.seal, None).unwrap().already);
    assert!(ada.reject(&rejected.plan_token, None).unwrap().already);
    world.assert_intact();
}

#[test]
fn a_second_reject_is_a_no_op_and_the_first_reason_stays() {
    let world = World::new();
    for (first, second) in
        [(None, None), (Some("first"), Some("second")), (None, Some("second")), (Some("first"), None)]
    {
        let created = world.gated(&payload(1));
        world.rows();
        assert!(!world.ada().reject(&created.plan_token, first).unwrap().already);
        let again = world.reviewer("ben").reject(&created.plan_token, second).unwrap();
        assert_eq!((again.state, again.already), (State::Rejected, true));
        world.assert_events(&["rejected"]);
        let plan = world.operator().plan(&created.plan_token).unwrap();
        assert_eq!(plan.reject_reason.as_deref(), first);
        let error = world.agent().begin_execute(stored(&created)).unwrap_err();
        assert_eq!(error.refusal().unwrap().reason(), first);
        assert_eq!(error.to_string().contains("first"), first.is_some(), "{error}");
    }
    world.assert_intact();
}

#[test]
fn every_open_state_can_be_rejected_and_the_row_carries_the_reason() {
    let world = World::new();
    for (n, created) in
        [world.free(&payload(1)), world.gated(&payload(2)), world.approved(&payload(3))].iter().enumerate()
    {
        let before = world.state(created).as_str();
        world.rows();
        world.ada().reject(&created.plan_token, Some("wrong\u{202E} table")).unwrap();
        let rows = world.rows();
        assert_eq!(rows.len(), 1, "{n}");
        assert_eq!(rows[0].from_state.as_deref(), Some(before));
        assert_eq!(rows[0].reason.as_deref(), Some("wrong\\u{202E} table"));
        assert_eq!(
            world.operator().plan(&created.plan_token).unwrap().reject_reason.as_deref(),
            Some("wrong\u{202E} table")
        );
        let error = world.agent().begin_execute(stored(created)).unwrap_err();
        assert_eq!(error.refusal().unwrap().reason(), Some("wrong\\u{202E} table"));
    }
    world.assert_intact();
}

#[test]
fn a_reason_past_its_limit_is_refused_before_anything_happens() {
    let world = World::new();
    let created = world.gated(&payload(1));
    world.rows();
    assert_eq!(code(world.ada().reject(&created.plan_token, Some(&"x".repeat(4097)))), "INVALID_INPUT");
    assert_eq!(
        code(world.ada().lift_rejection("write", created.fingerprint.to_string(), &"x".repeat(4097))),
        "INVALID_INPUT"
    );
    assert_eq!(world.events(), [""; 0]);
    world.ada().reject(&created.plan_token, Some(&"x".repeat(4096))).unwrap();
    world.assert_intact();
}

#[test]
fn unknown_is_a_caller_and_never_a_reviewer_or_operator() {
    let world = World::new();
    for name in ["unknown", "UNKNOWN", "Unknown"] {
        assert!(world.gate.reviewer(name).map(drop).unwrap_err().is_invalid_input());
        assert!(world.gate.operator(name).map(drop).unwrap_err().is_invalid_input());
    }
    let created = world.caller("unknown").create(NewPlan::new("write", &1, Approval::required())).unwrap();
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    world.assert_intact();
}

#[test]
fn a_refused_retry_of_an_approved_plan_waits_again_only_where_its_approvals_are_gone() {
    let world = World::new();
    let kept = world.approved(&payload(1));
    let mut claim = world.claim(&kept);
    assert_eq!(claim.confirm_failed("try again").unwrap().state, State::Approved);
    let lost = world.approved(&payload(2));
    let twin = world.gated(&payload(2));
    let mut claim = world.claim(&lost);
    world.ada().reject(&twin.plan_token, None).unwrap();
    assert_eq!(claim.confirm_failed("try again").unwrap().state, State::AwaitingApproval);
    let plan = world.operator().plan(&lost.plan_token).unwrap();
    assert_eq!((plan.decided_at, plan.approvals.len()), (None, 0), "no decision stands any more");
    world.reviewer("ben").approve(&lost.plan_token, &lost.seal).unwrap();
    let mut claim = world.claim(&lost);
    assert_eq!(claim.attempt(), 2);
    claim.confirm_executed(&0).unwrap();
    world.operator().settle(&kept.plan_token, &Outcome::NotDone).unwrap_err();
    world.assert_intact();
}
