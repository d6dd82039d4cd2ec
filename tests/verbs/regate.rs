//! A "no" to a payload holds for every other plan of it: twins are gated again, later plans are gated, until it is lifted.

use countersign::{Approval, Claim, Created, NewPlan, RejectedPayloads, State};

use crate::common::world::{World, code, payload, stored};

/// Rejects a fresh plan of this payload and gives the audit rows of that reject alone.
fn reject_a_twin(world: &World, n: u64) -> Vec<countersign::AuditEvent> {
    let twin = world.caller("agent-9").create(NewPlan::new("write", &payload(n), Approval::required())).unwrap();
    world.rows();
    world.reviewer("ben").reject(&twin.plan_token, Some("not this")).unwrap();
    world.rows()
}

fn assert_regated(world: &World, n: u64, created: &Created, from: State, to: State) {
    let rows = reject_a_twin(world, n);
    let [rejected, regated] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(rejected.event, "rejected");
    assert_eq!((regated.event.as_str(), regated.actor.as_str()), ("regated", "ben"));
    assert_eq!(regated.plan_token.as_deref(), Some(created.plan_token.as_str()));
    assert_eq!(regated.from_state.as_deref(), Some(from.as_str()));
    assert_eq!(regated.to_state.as_deref(), Some(to.as_str()));
    let plan = world.operator().plan(&created.plan_token).unwrap();
    assert_eq!((plan.state, plan.gated, plan.approvals.len()), (to, true, 0));
    world.assert_intact();
}

#[test]
fn a_previewed_twin_has_to_be_approved() {
    let world = World::new();
    let created = world.free(&payload(1));
    assert_regated(&world, 1, &created, State::Previewed, State::AwaitingApproval);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "AWAITING_APPROVAL");
    let card = &world.ada().pending(10).unwrap().items[0];
    assert_eq!(card.plan.plan_token, created.plan_token);
    let earlier = card.earlier_rejection.as_ref().unwrap();
    assert_eq!((earlier.reviewer.as_str(), earlier.reason.as_deref()), ("ben", Some("not this")));
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    let _claim = world.claim(&created);
}

#[test]
fn an_approved_twin_has_to_be_approved_again() {
    let world = World::new();
    let created = world.approved(&payload(1));
    assert_regated(&world, 1, &created, State::Approved, State::AwaitingApproval);
    assert_eq!(world.operator().plan(&created.plan_token).unwrap().decided_at, None);
    // The reviewer whose approval was taken away may give it again.
    let again = world.ada().approve(&created.plan_token, &created.seal).unwrap();
    assert_eq!((again.state, again.already), (State::Approved, false));
    world.claim(&created).confirm_executed(&1).unwrap();
    world.assert_intact();
}

#[test]
fn a_half_approved_twin_loses_its_approvals_and_one_without_any_does_not_change() {
    let world = World::new();
    let half = world.quorum(&payload(1), 2);
    world.ada().approve(&half.plan_token, &half.seal).unwrap();
    assert_regated(&world, 1, &half, State::AwaitingApproval, State::AwaitingApproval);
    let again = world.reviewer("ben").approve(&half.plan_token, &half.seal).unwrap();
    assert_eq!((again.state, again.approvals), (State::AwaitingApproval, 1));
    let none = world.gated(&payload(2));
    let rows = reject_a_twin(&world, 2);
    assert_eq!(rows.iter().map(|row| row.event.as_str()).collect::<Vec<_>>(), ["rejected"]);
    assert_eq!(world.state(&none), State::AwaitingApproval);
    world.assert_intact();
}

#[test]
fn an_executing_twin_goes_on_and_its_retry_has_to_be_approved() {
    let world = World::new();
    let free = world.free(&payload(1));
    let mut claim = world.claim(&free);
    assert_regated(&world, 1, &free, State::Executing, State::Executing);
    assert_eq!(claim.confirm_failed("lock timeout").unwrap().state, State::AwaitingApproval);
    assert_eq!(code(world.agent().begin_execute(stored(&free))), "AWAITING_APPROVAL");
    world.ada().approve(&free.plan_token, &free.seal).unwrap();
    world.claim(&free).confirm_executed(&1).unwrap();
    world.assert_intact();
}

#[test]
fn an_executing_twin_that_was_approved_loses_its_approvals() {
    let world = World::new();
    let created = world.quorum(&payload(1), 2);
    for name in ["ada", "cleo"] {
        world.reviewer(name).approve(&created.plan_token, &created.seal).unwrap();
    }
    let mut claim = world.claim(&created);
    assert_regated(&world, 1, &created, State::Executing, State::Executing);
    // A second "no" changes nothing any more.
    assert_eq!(reject_a_twin(&world, 1).len(), 1);
    let settled = world.operator().settle(&created.plan_token, &countersign::Outcome::NotDone).unwrap();
    assert_eq!(settled.state, State::AwaitingApproval);
    assert_eq!(code(claim.confirm_failed("late")), "NOT_EXECUTING");
    world.assert_intact();
}

#[test]
fn an_executing_twin_that_did_run_is_executed_all_the_same() {
    let world = World::new();
    let created = world.approved(&payload(1));
    let mut claim = world.claim(&created);
    reject_a_twin(&world, 1);
    assert_eq!(claim.confirm_executed(&"done").unwrap().state, State::Executed);
    world.assert_intact();
}

#[test]
fn an_uncertain_twin_stays_uncertain_and_its_retry_has_to_be_approved() {
    let world = World::new();
    let created = world.approved(&payload(1));
    let mut claim: Claim = world.claim(&created);
    claim.mark_uncertain("timeout").unwrap();
    assert_regated(&world, 1, &created, State::Uncertain, State::Uncertain);
    assert_eq!(claim.confirm_failed("it did not").unwrap().state, State::AwaitingApproval);
    world.assert_intact();
}

#[test]
fn finished_twins_other_tools_and_other_payloads_are_left_alone() {
    let world = World::new();
    let executed = world.ended(State::Executed, &payload(1));
    let other_payload = world.free(&payload(2));
    let other_tool = world.agent().create(NewPlan::new("Write", &payload(1), Approval::NotNeeded)).unwrap();
    let rows = reject_a_twin(&world, 1);
    assert_eq!(rows.len(), 1);
    assert_eq!(world.state(&executed), State::Executed);
    assert_eq!(world.state(&other_payload), State::Previewed);
    assert_eq!(world.state(&other_tool), State::Previewed);
    world.assert_intact();
}

#[test]
fn every_later_plan_of_a_rejected_payload_is_gated_and_approving_one_frees_that_one_alone() {
    let world = World::new();
    reject_a_twin(&world, 1);
    let (p, key) = (payload(1), "call-7");
    let mut later = vec![
        world.free(&p),
        world.caller("agent-3").create(NewPlan::new("write", &p, Approval::NotNeeded)).unwrap(),
        world.agent().create(NewPlan::new("write", &p, Approval::NotNeeded).idempotency_key(key)).unwrap(),
    ];
    for created in &later {
        assert_eq!(created.state, State::AwaitingApproval);
        let earlier = created.earlier_rejection.as_ref().unwrap();
        assert_eq!((earlier.reviewer.as_str(), earlier.reason.as_deref()), ("ben", Some("not this")));
    }
    let freed = later.remove(0);
    world.ada().approve(&freed.plan_token, &freed.seal).unwrap();
    world.claim(&freed).confirm_executed(&1).unwrap();
    for created in &later {
        assert_eq!(world.state(created), State::AwaitingApproval);
    }
    assert_eq!(world.free(&p).state, State::AwaitingApproval, "an approval does not lift the memory");
    world.assert_intact();
}

#[test]
fn the_memory_outlives_the_purge_of_the_rejected_plan() {
    let world = World::new();
    let rejected = world.ended(State::Rejected, &payload(1));
    world.advance(1);
    assert_eq!(world.operator().purge(std::time::Duration::ZERO).unwrap(), 1);
    let later = world.free(&payload(1));
    assert_eq!(later.state, State::AwaitingApproval);
    assert_eq!(later.earlier_rejection.unwrap().plan_token, rejected.plan_token);
}

#[test]
fn the_newest_no_is_shown_also_when_the_clock_went_back() {
    let world = World::new();
    let (first, second) = (world.gated(&payload(1)), world.gated(&payload(1)));
    world.ada().reject(&first.plan_token, Some("first")).unwrap();
    world.clock.set_ms(crate::common::world::START_MS - 1_000);
    world.ada().reject(&second.plan_token, Some("second")).unwrap();
    let later = world.free(&payload(1));
    assert_eq!(later.earlier_rejection.unwrap().reason.as_deref(), Some("second"));
}

#[test]
fn a_lift_ends_the_memory_and_nothing_else() {
    let world = World::new();
    let rejected = world.ended(State::Rejected, &payload(1));
    let again = world.free(&payload(1));
    world.ada().reject(&again.plan_token, None).unwrap();
    let regated = world.free(&payload(1));
    let fingerprint = rejected.fingerprint.to_string();
    world.rows();
    assert!(!world.ada().lift_rejection("write", &fingerprint, "it was a typo").unwrap());
    let rows = world.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].event.as_str(), rows[0].plan_token.as_deref()), ("rejection_lifted", None));
    assert_eq!((rows[0].tool.as_deref(), rows[0].fingerprint.as_deref()), (Some("write"), Some(fingerprint.as_str())));
    assert_eq!((rows[0].reason.as_deref(), rows[0].actor.as_str()), (Some("it was a typo"), "ada"));
    // Nothing to lift: already, without an event.
    assert!(world.ada().lift_rejection("write", &fingerprint, "").unwrap());
    assert!(world.ada().lift_rejection("other", &fingerprint, "").unwrap());
    assert_eq!(world.events(), [""; 0]);
    assert_eq!(code(world.agent().begin_execute(stored(&rejected))), "PLAN_REJECTED");
    assert_eq!(code(world.agent().begin_execute(stored(&regated))), "AWAITING_APPROVAL");
    let later = world.free(&payload(1));
    assert_eq!((later.state, later.earlier_rejection), (State::Previewed, None));
    // A new "no" begins a new memory.
    world.ada().reject(&later.plan_token, None).unwrap();
    assert_eq!(world.free(&payload(1)).state, State::AwaitingApproval);
    world.assert_intact();
}

#[test]
fn a_lift_of_what_can_be_no_payload_is_invalid() {
    let world = World::new();
    for (tool, fingerprint) in
        [("", "0".repeat(64)), ("write", "0".repeat(63)), ("write", "A".repeat(64)), ("a b", "0".repeat(64))]
    {
        assert_eq!(code(world.ada().lift_rejection(tool, fingerprint, "")), "INVALID_INPUT");
    }
}

#[test]
fn with_refuse_a_rejected_payload_makes_no_plan_until_it_is_lifted() {
    let world = World::with(|builder| builder.rejected_payloads(RejectedPayloads::Refuse));
    let rejected = world.ended(State::Rejected, &payload(1));
    for approval in [Approval::NotNeeded, Approval::required()] {
        world.rows();
        let error = world.caller("agent-2").create(NewPlan::new("write", &payload(1), approval)).unwrap_err();
        assert_eq!(error.code(), "PLAN_REJECTED");
        assert_eq!(error.refusal().unwrap().reason(), Some("not now"));
        assert!(error.refusal().unwrap().plan().is_none(), "it is another caller's plan");
        let rows = world.rows();
        assert_eq!((rows.len(), rows[0].code.as_deref()), (1, Some("PLAN_REJECTED")));
        assert_eq!((rows[0].tool.as_deref(), rows[0].caller.as_deref()), (Some("write"), Some("agent-2")));
        assert_eq!(rows[0].fingerprint.as_deref(), Some(rejected.fingerprint.to_string().as_str()));
    }
    world.ada().lift_rejection("write", rejected.fingerprint.to_string(), "").unwrap();
    assert_eq!(world.free(&payload(1)).state, State::Previewed);
    world.assert_intact();
}

#[test]
fn a_rejection_without_a_reason_does_not_borrow_an_earlier_error_for_one() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.claim(&created).confirm_failed("disk full on db-7").unwrap();
    world.ada().reject(&created.plan_token, None).unwrap();
    let later = world.free(&payload(1));
    assert_eq!(later.earlier_rejection.unwrap().reason, None);
    world.advance(1);
    world.operator().purge(std::time::Duration::ZERO).unwrap();
    let error = world.agent().begin_execute(stored(&created)).unwrap_err();
    assert_eq!((error.code(), error.refusal().unwrap().reason()), ("PLAN_REJECTED", None));
    assert!(!error.to_string().contains("disk full"), "{error}");
}

#[test]
fn too_many_waiting_plans_of_one_caller_are_refused() {
    let world = World::with(|builder| builder.max_pending(3));
    let waiting: Vec<_> = (0..3).map(|n| world.gated(&payload(n))).collect();
    world.rows();
    assert_eq!(
        code(world.caller("AGENT-0").create(NewPlan::new("write", &9, Approval::required()))),
        "TOO_MANY_PENDING"
    );
    let rows = world.rows();
    assert_eq!((rows.len(), rows[0].code.as_deref()), (1, Some("TOO_MANY_PENDING")));
    assert_eq!((rows[0].plan_token.as_deref(), rows[0].caller.as_deref()), (None, Some("AGENT-0")));
    // Other callers and plans without a gate are not held up.
    world.caller("agent-1").create(NewPlan::new("write", &9, Approval::required())).unwrap();
    let free = world.free(&payload(7));
    // A payload that was rejected before is gated, and counts.
    let rejected = world.ended(State::Rejected, &payload(8));
    assert_eq!(code(world.agent().create(NewPlan::new("write", &payload(8), Approval::NotNeeded))), "TOO_MANY_PENDING");
    assert_ne!(rejected.plan_token, free.plan_token);
    // A regate may exceed the limit.
    reject_a_twin(&world, 7);
    assert_eq!(world.ada().pending(100).unwrap().total, 5);
    // A decision, or the time, makes room.
    world.ada().approve(&waiting[0].plan_token, &waiting[0].seal).unwrap();
    assert_eq!(code(world.agent().create(NewPlan::new("write", &9, Approval::required()))), "TOO_MANY_PENDING");
    world.ada().reject(&waiting[1].plan_token, None).unwrap();
    world.gated(&payload(20));
    world.advance(15 * 60 * 1000 + 1);
    world.gated(&payload(21));
    world.assert_intact();
}
