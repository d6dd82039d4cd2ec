//! Purge deletes rows of settled plans; the tombstone answers every verb as the plan in that state would.

use std::time::Duration;

use countersign::{Claim, Created, Error, Outcome, Redeem, State};
use serde_json::{Value, json};

use crate::common::world::{World, code, never_issued, payload, stored};

/// A plan that ended in one of the ways, and the claim that it had.
fn ended(world: &World, way: &str) -> (Created, Option<Claim>) {
    let created = world.free(&json!({ "way": way }));
    let token = &created.plan_token;
    let claim = match way {
        "executed by its claim" => {
            let mut claim = world.claim(&created);
            claim.confirm_executed(&1).unwrap();
            Some(claim)
        }
        "settled done" => {
            let claim = world.claim(&created);
            world.operator().settle(token, &Outcome::done(&1)).unwrap();
            Some(claim)
        }
        "settled failed" => {
            let claim = world.claim(&created);
            world.operator().settle(token, &Outcome::Failed("half".to_owned())).unwrap();
            Some(claim)
        }
        "rejected" => {
            world.ada().reject(token, Some("no")).unwrap();
            None
        }
        "rejected after a failure" => {
            let mut claim = world.claim(&created);
            claim.confirm_failed("boom").unwrap();
            world.ada().reject(token, None).unwrap();
            Some(claim)
        }
        "rejected after a settled failure" => {
            let claim = world.claim(&created);
            world.operator().settle(token, &Outcome::NotDone).unwrap();
            world.ada().reject(token, None).unwrap();
            Some(claim)
        }
        "expired" => {
            world.advance(15 * 60 * 1000 + 1);
            world.operator().sweep().unwrap();
            None
        }
        "expired after a failure" => {
            let mut claim = world.claim(&created);
            claim.mark_uncertain("?").unwrap();
            claim.confirm_failed("boom").unwrap();
            world.advance(15 * 60 * 1000 + 1);
            world.operator().sweep().unwrap();
            Some(claim)
        }
        other => panic!("{other}"),
    };
    (created, claim)
}

const WAYS: [&str; 8] = [
    "executed by its claim",
    "settled done",
    "settled failed",
    "rejected",
    "rejected after a failure",
    "rejected after a settled failure",
    "expired",
    "expired after a failure",
];

fn said<T>(answer: Result<T, Error>, ok: impl FnOnce(T) -> Value) -> Value {
    match answer {
        Ok(value) => json!({ "ok": ok(value) }),
        Err(error) => serde_json::to_value(&error).unwrap(),
    }
}

/// Every writing verb about the plan: answers, and the rows that they leave.
fn ask(world: &World, created: &Created, claim: Option<&mut Claim>) -> Vec<(&'static str, Value)> {
    let token = &created.plan_token;
    let (agent, ada, operator) = (world.agent(), world.ada(), world.operator());
    let mut answers = vec![
        ("begin_execute", said(agent.begin_execute(stored(created)), |_| json!(null))),
        ("another tool", said(agent.begin_execute(Redeem::stored(token, "other")), |_| json!(null))),
        ("consume", said(agent.consume(stored(created)), |_| json!(null))),
        ("adopt", said(agent.adopt(token, 1, &never_issued()), |_| json!(null))),
        ("host event", said(agent.record_host_event(Some(token.as_str()), "seen", ""), |()| json!(null))),
        ("approve", said(ada.approve(token, &created.seal), |d| json!([d.state, d.already]))),
        ("reject", said(ada.reject(token, Some("another reason")), |d| json!([d.state, d.already]))),
        ("reject sealed", said(ada.reject_sealed(token, &created.seal, None), |d| json!([d.state, d.already]))),
        ("another seal", said(ada.reject_sealed(token, "0".repeat(64), None), |d| json!([d.state, d.already]))),
        ("settle", said(operator.settle(token, &Outcome::NotDone), |_| json!(null))),
        ("mark", said(operator.mark_interrupted_as_uncertain(token, 1), |_| json!(null))),
        ("reconcile", said(operator.reconcile(token), |_| json!(null))),
    ];
    if let Some(claim) = claim {
        answers.push(("check", said(claim.check(), |()| json!(null))));
        answers.push(("adopt by claim", said(agent.adopt(token, 1, claim.claim_token()), |_| json!(null))));
        answers.push(("confirm_executed", said(claim.confirm_executed(&1), |s| json!([s.state, s.already]))));
        answers.push(("confirm_failed", said(claim.confirm_failed("boom"), |s| json!([s.state, s.already]))));
        answers.push(("mark_uncertain", said(claim.mark_uncertain("?"), |s| json!([s.state, s.already]))));
    }
    let rows = world.rows().into_iter().map(|row| {
        json!([row.event, row.code, row.plan_token, row.from_state, row.to_state, row.tool, row.caller, row.attempt])
    });
    answers.push(("rows", rows.collect()));
    answers
}

#[test]
fn after_a_purge_every_verb_answers_as_before() {
    for way in WAYS {
        let world = World::new();
        let (created, mut claim) = ended(&world, way);
        world.rows();
        let before = ask(&world, &created, claim.as_mut());
        world.advance(1);
        assert_eq!(world.operator().purge(Duration::ZERO).unwrap(), 1);
        world.assert_events(&["purged"]);
        let after = ask(&world, &created, claim.as_mut());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after, "{way}");
        }
        assert_eq!(before.len(), after.len());
        world.assert_intact();
    }
}

#[test]
fn after_a_purge_a_read_gives_the_refusal_and_leaves_no_row() {
    for (way, expected) in [
        ("executed by its claim", "PLAN_USED"),
        ("settled failed", "PLAN_USED"),
        ("rejected", "PLAN_REJECTED"),
        ("expired", "PLAN_EXPIRED"),
    ] {
        let world = World::new();
        let (created, _claim) = ended(&world, way);
        world.advance(1);
        world.operator().purge(Duration::ZERO).unwrap();
        world.rows();
        let token = &created.plan_token;
        let errors = [
            world.agent().plan(token).unwrap_err(),
            world.ada().plan(token).unwrap_err(),
            world.ada().card(token).unwrap_err(),
            world.operator().plan(token).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), expected, "{way}");
            assert_eq!(error.refusal().unwrap().reason(), (way == "rejected").then_some("no"));
            let plan = error.refusal().unwrap().plan().unwrap();
            assert_eq!((plan.plan_token.as_str(), plan.expires_at), (token.as_str(), None));
        }
        assert_eq!(code(world.caller("agent-1").plan(token)), "UNKNOWN_TOKEN");
        assert_eq!(world.events(), [""; 0]);
        let history = world.operator().history(token).unwrap();
        assert!(history.len() >= 2, "the history stays");
        world.assert_intact();
    }
}

#[test]
fn only_settled_plans_that_are_old_enough_are_purged() {
    let world = World::new();
    let kept = [world.free(&payload(1)), world.gated(&payload(2)), world.approved(&payload(3))];
    let executing = world.free(&payload(4));
    let _claim = world.claim(&executing);
    let uncertain = world.free(&payload(5));
    world.claim(&uncertain).mark_uncertain("?").unwrap();
    let old = world.ended(State::Executed, &payload(6));
    world.advance(1_000);
    let young = world.ended(State::Rejected, &payload(7));
    world.rows();
    assert_eq!(world.operator().purge(Duration::from_secs(2)).unwrap(), 0);
    assert_eq!(world.events(), [""; 0], "nothing to purge leaves no row");
    assert_eq!(world.operator().purge(Duration::from_millis(1_000)).unwrap(), 0, "older than, not as old as");
    assert_eq!(world.operator().purge(Duration::from_millis(999)).unwrap(), 1);
    let rows = world.rows();
    assert_eq!((rows.len(), rows[0].event.as_str(), rows[0].plan_token.as_deref()), (1, "purged", None));
    assert_eq!(code(world.operator().plan(&old.plan_token)), "PLAN_USED");
    assert_eq!(world.operator().purge(Duration::MAX).unwrap(), 0);
    assert_eq!(world.state(&young), State::Rejected);
    world.advance(365 * 24 * 3_600_000);
    assert_eq!(world.operator().purge(Duration::ZERO).unwrap(), 1);
    assert_eq!(world.state(&executing), State::Executing);
    assert_eq!(world.state(&uncertain), State::Uncertain);
    for created in &kept {
        assert_eq!(world.state(created), State::Expired, "unnoticed, so not settled");
    }
    world.assert_intact();
}

#[test]
fn a_purge_of_many_plans_takes_small_transactions() {
    let world = World::new();
    for n in 0..450 {
        let created = world.free(&payload(n));
        world.agent().consume(stored(&created)).unwrap();
    }
    let waiting = world.gated(&payload(1_000));
    world.advance(1);
    let before = world.operator().audit().head().unwrap().seq;
    assert_eq!(world.operator().purge(Duration::ZERO).unwrap(), 450);
    let query = countersign::AuditQuery::new().after(before);
    let rows = world.operator().audit().query(&query).unwrap();
    // At most 100 plans a transaction, fewer where the disk is slow.
    let plans = rows.iter().filter(|row| row.event == "purged").map(|row| {
        let detail: serde_json::Value = serde_json::from_str(row.detail.as_deref().unwrap()).unwrap();
        detail["plans"].as_u64().unwrap()
    });
    let plans: Vec<u64> = plans.collect();
    assert!(plans.iter().all(|plans| (1..=100).contains(plans)), "{plans:?}");
    assert_eq!(plans.iter().sum::<u64>(), 450);
    assert_eq!(world.state(&waiting), State::AwaitingApproval);
    world.assert_intact();
}

#[test]
fn a_swept_plan_is_expired_once_and_stays() {
    let world = World::new();
    let plans = [world.free(&payload(1)), world.gated(&payload(2)), world.approved(&payload(3))];
    world.advance(15 * 60 * 1000);
    world.rows();
    assert_eq!(world.operator().sweep().unwrap(), 0);
    world.advance(1);
    assert_eq!(world.events(), [""; 0]);
    assert_eq!(world.operator().sweep().unwrap(), 3);
    assert_eq!(world.operator().sweep().unwrap(), 0);
    world.assert_events(&["expired", "expired", "expired"]);
    for created in &plans {
        assert_eq!(world.operator().plan(&created.plan_token).unwrap().settled_at.unwrap(), chrono_now(&world));
    }
    world.assert_intact();
}

fn chrono_now(world: &World) -> chrono::DateTime<chrono::Utc> {
    chrono::DateTime::from_timestamp_millis(countersign::Clock::now_ms(&*world.clock)).unwrap()
}

#[test]
fn a_sweep_of_more_than_a_batch_takes_all() {
    let world = World::new();
    for n in 0..430 {
        world.free(&payload(n));
    }
    world.advance(15 * 60 * 1000 + 1);
    assert_eq!(world.operator().sweep().unwrap(), 430);
    world.assert_intact();
}
