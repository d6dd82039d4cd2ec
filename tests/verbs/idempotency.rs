//! (caller, tool, key) names one plan for ever.

use std::time::Duration;

use countersign::{Approval, Created, NewPlan, RejectedPayloads, State};
use serde_json::{Value, json};

use crate::common::world::{World, code, payload, stored};

fn keyed<'a>(payload: &'a Value, approval: Approval) -> NewPlan<'a> {
    NewPlan::new("write", payload, approval).idempotency_key("call-1")
}

fn create(world: &World, plan: NewPlan<'_>) -> Created {
    world.agent().create(plan).unwrap()
}

#[test]
fn the_same_create_returns_the_same_plan_without_an_event() {
    let world = World::new();
    let (p, extra) = (payload(1), json!({"note": "62 rows"}));
    let plan = || keyed(&p, Approval::required()).data_digest("d1").extra(&extra);
    let first = create(&world, plan());
    world.rows();
    world.advance(1_000);
    let again = create(&world, plan().reason("other words").preview_count(7).ttl(Duration::from_secs(1)));
    assert_eq!((&again.plan_token, &again.seal), (&first.plan_token, &first.seal));
    assert_eq!((again.state, again.already, again.expires_at), (State::AwaitingApproval, true, first.expires_at));
    let other_case = world.caller("AGENT-0").create(plan()).unwrap();
    assert_eq!((other_case.plan_token, other_case.already), (first.plan_token.clone(), true));
    assert_eq!(world.events(), [""; 0]);
    world.ada().approve(&first.plan_token, &first.seal).unwrap();
    assert_eq!(create(&world, plan()).state, State::Approved);
    world.assert_intact();
}

#[test]
fn another_caller_tool_or_key_is_another_plan() {
    let world = World::new();
    let p = payload(1);
    let first = create(&world, keyed(&p, Approval::NotNeeded));
    let by_caller = world.caller("agent-1").create(keyed(&p, Approval::NotNeeded)).unwrap();
    let by_tool = create(&world, NewPlan::new("WRITE", &p, Approval::NotNeeded).idempotency_key("call-1"));
    let by_key = create(&world, NewPlan::new("write", &p, Approval::NotNeeded).idempotency_key("CALL-1"));
    let without = create(&world, NewPlan::new("write", &p, Approval::NotNeeded));
    for other in [by_caller, by_tool, by_key, without] {
        assert!(!other.already && other.plan_token != first.plan_token);
    }
}

#[test]
fn a_different_create_under_the_same_key_conflicts_and_tells_no_token() {
    let world = World::new();
    let (p, q, extra) = (payload(1), payload(2), json!({"note": "x"}));
    let first = create(&world, keyed(&p, Approval::required()).data_digest("d1").extra(&extra));
    let other_extra = json!({"note": "y"});
    let differing = [
        keyed(&q, Approval::required()).data_digest("d1").extra(&extra),
        keyed(&p, Approval::required()).data_digest("d2").extra(&extra),
        keyed(&p, Approval::required()).extra(&extra),
        keyed(&p, Approval::required()).data_digest("d1").extra(&other_extra),
        keyed(&p, Approval::required()).data_digest("d1"),
        keyed(&p, Approval::Required { quorum: 2 }).data_digest("d1").extra(&extra),
    ];
    for (n, plan) in differing.into_iter().enumerate() {
        world.rows();
        let error = world.agent().create(plan).unwrap_err();
        assert_eq!(error.code(), "IDEMPOTENCY_CONFLICT", "{n}");
        assert!(error.refusal().unwrap().plan().is_none(), "{n}");
        let said = format!("{} {error} {error:?}", serde_json::to_string(&error).unwrap());
        assert!(!said.contains(first.plan_token.as_str()), "{n}: {said}");
        let rows = world.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].event.as_str(), rows[0].code.as_deref()), ("refused", Some("IDEMPOTENCY_CONFLICT")));
    }
    world.assert_intact();
}

#[test]
fn a_looser_gate_returns_the_stricter_plan_and_a_stricter_one_conflicts() {
    let world = World::new();
    let gates = [Approval::NotNeeded, Approval::required(), Approval::Required { quorum: 2 }];
    for (stored, &made) in gates.iter().enumerate() {
        let p = payload(stored as u64);
        let key = format!("call-{stored}");
        let plan = |approval| NewPlan::new("write", &p, approval).idempotency_key(key.as_str());
        let first = create(&world, plan(made));
        for (asked, &wanted) in gates.iter().enumerate() {
            match world.agent().create(plan(wanted)) {
                Ok(same) => assert!(asked <= stored && same.already && same.plan_token == first.plan_token),
                Err(error) => {
                    assert!(asked > stored, "stored {made:?}, asked {wanted:?}");
                    assert_eq!(error.code(), "IDEMPOTENCY_CONFLICT");
                }
            }
        }
    }
}

#[test]
fn a_plan_that_was_regated_is_as_strict_as_one_approval() {
    let world = World::new();
    let p = payload(1);
    let first = create(&world, keyed(&p, Approval::NotNeeded));
    let twin = world.gated(&p);
    world.ada().reject(&twin.plan_token, Some("no")).unwrap();
    let same = create(&world, keyed(&p, Approval::required()));
    assert_eq!((&same.plan_token, same.already, same.state), (&first.plan_token, true, State::AwaitingApproval));
    assert_eq!(same.earlier_rejection.unwrap().plan_token, twin.plan_token);
    assert_eq!(code(world.agent().create(keyed(&p, Approval::Required { quorum: 2 }))), "IDEMPOTENCY_CONFLICT");
}

#[test]
fn a_repeated_create_shows_an_overdue_plan_as_expired_and_writes_nothing() {
    let world = World::new();
    let p = payload(1);
    let first = create(&world, keyed(&p, Approval::NotNeeded));
    world.advance(15 * 60 * 1000 + 1);
    world.rows();
    let again = create(&world, keyed(&p, Approval::NotNeeded));
    assert_eq!((again.plan_token, again.state, again.already), (first.plan_token, State::Expired, true));
    assert_eq!(world.events(), [""; 0]);
}

#[test]
fn the_key_is_looked_up_before_the_rejected_memory() {
    for what in [RejectedPayloads::Gate, RejectedPayloads::Refuse] {
        let world = World::with(|builder| builder.rejected_payloads(what).max_pending(1));
        let p = payload(1);
        let first = create(&world, keyed(&p, Approval::required()));
        world.ada().reject(&first.plan_token, Some("no")).unwrap();
        world.gated(&payload(2));
        // Rejected before, and too many wait: the key answers all the same.
        let again = create(&world, keyed(&p, Approval::NotNeeded));
        assert_eq!((again.plan_token, again.state, again.already), (first.plan_token, State::Rejected, true));
    }
}

#[test]
fn while_the_row_stands_a_finished_plan_answers_too() {
    let world = World::new();
    let p = payload(1);
    let first = create(&world, keyed(&p, Approval::NotNeeded));
    world.claim(&first).confirm_executed(&1).unwrap();
    let again = create(&world, keyed(&p, Approval::NotNeeded));
    assert_eq!((again.plan_token, again.state, again.already), (first.plan_token, State::Executed, true));
}

#[test]
fn after_a_purge_the_key_still_makes_no_new_plan() {
    for (state, expected) in [
        (State::Executed, "PLAN_USED"),
        (State::Failed, "PLAN_USED"),
        (State::Rejected, "PLAN_REJECTED"),
        (State::Expired, "PLAN_EXPIRED"),
    ] {
        let world = World::new();
        let (p, q) = (payload(1), payload(2));
        let first = create(&world, keyed(&p, Approval::NotNeeded).data_digest("d1"));
        end(&world, &first, state);
        world.advance(1);
        assert_eq!(world.operator().purge(Duration::ZERO).unwrap(), 1);
        world.rows();
        // The fingerprint alone is remembered: digest, extra and gate no longer matter.
        for plan in [keyed(&p, Approval::NotNeeded).data_digest("d1"), keyed(&p, Approval::Required { quorum: 3 })] {
            let error = world.agent().create(plan).unwrap_err();
            assert_eq!(error.code(), expected, "{state}");
            assert_eq!(error.refusal().unwrap().reason(), (state == State::Rejected).then_some("no"));
        }
        let conflict = world.caller("AGENT-0").create(keyed(&q, Approval::NotNeeded)).unwrap_err();
        assert_eq!(conflict.code(), "IDEMPOTENCY_CONFLICT");
        assert!(conflict.refusal().unwrap().plan().is_none());
        let refused = format!("refused {expected}");
        world.assert_events(&[&refused, &refused, "refused IDEMPOTENCY_CONFLICT"]);
        world.assert_intact();
    }
}

fn end(world: &World, plan: &Created, state: State) {
    let redeem = stored(plan).data_digest("d1");
    match state {
        State::Executed => drop(world.agent().consume(redeem).unwrap()),
        State::Failed => {
            drop(world.agent().begin_execute(redeem).unwrap());
            world.operator().settle(&plan.plan_token, &countersign::Outcome::Failed("x".to_owned())).unwrap();
        }
        State::Rejected => drop(world.ada().reject(&plan.plan_token, Some("no")).unwrap()),
        _ => {
            world.advance(15 * 60 * 1000 + 1);
            world.operator().sweep().unwrap();
        }
    }
}

#[test]
fn racing_creates_with_one_key_get_one_plan() {
    let world = World::new();
    let p = payload(1);
    let second = world.second_gate();
    let start = std::sync::Barrier::new(8);
    let tokens: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let agent = if n % 2 == 0 { world.agent() } else { second.agent("agent-0").unwrap() };
                let (p, start) = (&p, &start);
                scope.spawn(move || {
                    start.wait();
                    agent.create(keyed(p, Approval::NotNeeded)).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(tokens.iter().filter(|created| !created.already).count(), 1);
    assert!(tokens.iter().all(|created| created.plan_token == tokens[0].plan_token));
    world.assert_events(&["previewed"]);
}
