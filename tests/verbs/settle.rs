//! What operators record: settle, mark interrupted, reconcile without a hook, and whose claims they may touch.

use countersign::{Liveness, Outcome, State};
use serde_json::json;

use crate::common::world::{World, code, payload, stored};

fn stuck(world: &World, n: u64, uncertain: bool) -> (countersign::Created, countersign::Claim) {
    let created = world.approved(&payload(n));
    let mut claim = world.claim(&created);
    if uncertain {
        claim.mark_uncertain("timeout").unwrap();
    }
    (created, claim)
}

#[test]
fn each_outcome_settles_an_executing_and_an_uncertain_plan() {
    let world = World::new();
    let outcomes = [
        (Outcome::done(&json!({"seen": true})), State::Executed, "executed"),
        (Outcome::NotDone, State::Approved, "failed EXECUTION_FAILED"),
        (Outcome::Failed("half of it".to_owned()), State::Failed, "failed SETTLED_FAILED"),
    ];
    for uncertain in [false, true] {
        for (n, (outcome, state, event)) in outcomes.iter().enumerate() {
            let (created, mut claim) = stuck(&world, n as u64, uncertain);
            world.rows();
            let settled = world.operator().settle(&created.plan_token, outcome).unwrap();
            assert_eq!((settled.state, settled.already), (*state, false));
            let rows = world.rows();
            assert_eq!(rows.len(), 1);
            assert_eq!((rows[0].actor.as_str(), rows[0].duration_us), ("olga", None));
            let said = rows[0].code.as_ref().map_or(rows[0].event.clone(), |code| format!("{} {code}", rows[0].event));
            assert_eq!(said, *event);
            // The claim token is forgotten: even the same report is refused, and kept.
            assert_eq!(code(claim.confirm_executed(&1)), "NOT_EXECUTING");
            assert_eq!(code(claim.confirm_failed("no")), "NOT_EXECUTING");
            assert_eq!(code(world.operator().settle(&created.plan_token, outcome)), "NOT_EXECUTING");
            let plan = world.operator().plan(&created.plan_token).unwrap();
            assert_eq!(
                plan.result.as_ref().map(|r| r.as_str()),
                (*state == State::Executed).then_some(r#"{"seen":true}"#)
            );
            if *state == State::Failed {
                assert_eq!(plan.error.as_deref(), Some("half of it"));
                assert_eq!(code(world.agent().begin_execute(stored(&created))), "PLAN_USED");
            }
            if *state == State::Approved {
                assert_eq!(world.claim(&created).attempt(), 2);
            }
        }
    }
    world.assert_intact();
}

#[test]
fn settled_unknown_makes_uncertain_once_and_keeps_the_claim() {
    let world = World::new();
    let (created, mut claim) = stuck(&world, 1, false);
    world.rows();
    assert_eq!(world.operator().settle(&created.plan_token, &Outcome::Unknown).unwrap().state, State::Uncertain);
    let again = world.operator().settle(&created.plan_token, &Outcome::Unknown).unwrap();
    assert_eq!((again.state, again.already), (State::Uncertain, true));
    world.assert_events(&["uncertain"]);
    claim.confirm_executed(&1).unwrap();
    world.assert_intact();
}

#[test]
fn settle_of_a_plan_that_is_not_claimed_is_refused() {
    let world = World::new();
    let mut plans = vec![world.free(&payload(1)), world.gated(&payload(2)), world.approved(&payload(3))];
    plans.extend([State::Executed, State::Failed, State::Rejected].map(|state| world.ended(state, &payload(9))));
    for created in &plans {
        for outcome in [Outcome::done(&1), Outcome::NotDone, Outcome::Failed(String::new()), Outcome::Unknown] {
            world.rows();
            assert_eq!(code(world.operator().settle(&created.plan_token, &outcome)), "NOT_EXECUTING");
            world.assert_events(&["refused NOT_EXECUTING"]);
        }
        assert_eq!(code(world.operator().mark_interrupted_as_uncertain(&created.plan_token, 1)), "NOT_EXECUTING");
        assert_eq!(code(world.operator().reconcile(&created.plan_token)), "NOT_EXECUTING");
    }
    world.assert_intact();
}

#[test]
fn reconcile_without_a_hook_says_so() {
    let world = World::new();
    let (created, _claim) = stuck(&world, 1, true);
    world.rows();
    assert_eq!(code(world.operator().reconcile(&created.plan_token)), "NO_RECONCILE");
    world.assert_events(&["refused NO_RECONCILE"]);
    assert_eq!(world.state(&created), State::Uncertain);
}

#[test]
fn mark_interrupted_names_the_attempt_and_spares_work_in_progress() {
    let world = World::new();
    let (created, claim) = stuck(&world, 1, false);
    let mark = |attempt| world.operator().mark_interrupted_as_uncertain(&created.plan_token, attempt);
    assert_eq!(code(mark(1)), "ALREADY_EXECUTING", "this instance is at work on it");
    assert_eq!(code(mark(2)), "STALE_CLAIM");
    drop(claim);
    world.rows();
    let marked = mark(1).unwrap();
    assert_eq!((marked.state, marked.already), (State::Uncertain, false));
    let again = mark(1).unwrap();
    assert_eq!((again.state, again.already), (State::Uncertain, true));
    assert_eq!(code(mark(2)), "STALE_CLAIM");
    world.assert_events(&["uncertain", "refused STALE_CLAIM"]);
    world.assert_intact();
}

#[test]
fn an_owner_that_lives_elsewhere_is_not_overruled() {
    let world = World::new();
    let (created, mut claim) = stuck(&world, 1, false);
    let second = world.second_gate();
    let operator = second.operator("olga").unwrap();
    world.rows();
    for outcome in [Outcome::done(&1), Outcome::NotDone, Outcome::Failed(String::new()), Outcome::Unknown] {
        assert_eq!(code(operator.settle(&created.plan_token, &outcome)), "ALREADY_EXECUTING");
    }
    assert_eq!(code(operator.mark_interrupted_as_uncertain(&created.plan_token, 1)), "ALREADY_EXECUTING");
    assert_eq!(operator.executing(10).unwrap().items[0].owner, Liveness::Alive);
    world.assert_events(&["refused ALREADY_EXECUTING"; 5]);
    // Uncertain plans are nobody's.
    claim.mark_uncertain("?").unwrap();
    operator.settle(&created.plan_token, &Outcome::NotDone).unwrap();
    world.assert_intact();
}

#[test]
fn the_claims_of_a_closed_gate_are_settled_by_another() {
    let world = World::new();
    let second = world.second_gate();
    let created = world.free(&payload(1));
    let claim = second.agent("agent-0").unwrap().begin_execute(stored(&created)).unwrap();
    assert_eq!(code(world.operator().settle(&created.plan_token, &Outcome::NotDone)), "ALREADY_EXECUTING");
    second.close().unwrap();
    drop(claim);
    assert_eq!(world.operator().executing(10).unwrap().items[0].owner, Liveness::Dead);
    assert_eq!(world.operator().settle(&created.plan_token, &Outcome::NotDone).unwrap().state, State::Previewed);
    world.assert_intact();
}

#[test]
fn executing_lists_the_oldest_claim_first_uncertain_included_past_its_time_too() {
    let world = World::new();
    let (first, mut claim) = stuck(&world, 1, false);
    world.advance(1_000);
    let (second, _second) = stuck(&world, 2, false);
    claim.mark_uncertain("?").unwrap();
    world.advance(24 * 3_600_000);
    let listing = world.operator().executing(10).unwrap();
    let seen: Vec<_> = listing.items.iter().map(|stuck| (&stuck.plan.plan_token, stuck.plan.state)).collect();
    assert_eq!(seen, [(&first.plan_token, State::Uncertain), (&second.plan_token, State::Executing)]);
    assert_eq!(world.operator().executing(1).unwrap().items.len(), 1);
    assert_eq!(world.operator().executing(0).unwrap().total, 2);
}
