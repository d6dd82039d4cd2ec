//! Decisions and their answers.

use std::time::Duration;

use countersign::{Approval, NewPlan, Redeem, State, TestClock};
use serde_json::json;

use super::common;
use super::wire::World;

#[test]
fn two_tabs_reject_then_approve_ends_rejected() {
    let world = World::new();
    let plan = world.plan();
    assert_eq!(world.reject(&plan, Some("no")).send().succeeds()["status"], json!("rejected"));
    let reply = world.approve(&plan).send();
    reply.refuses(409, "PLAN_REJECTED");
    assert_eq!(reply.json()["reason"], json!("no"));
    assert!(reply.json()["hint"].is_string());
    assert_eq!(world.state(&plan), State::Rejected);
    assert_eq!(world.events(&plan), ["awaiting_approval", "rejected", "refused"]);
}

#[test]
fn two_tabs_approve_then_reject_ends_rejected_with_one_event_each() {
    let world = World::new();
    let plan = world.plan();
    assert_eq!(world.approve(&plan).send().succeeds()["status"], json!("approved"));
    assert_eq!(world.reject(&plan, None).send().succeeds()["status"], json!("rejected"));
    assert_eq!(world.state(&plan), State::Rejected);
    assert_eq!(world.events(&plan), ["awaiting_approval", "approved", "rejected"]);
}

#[test]
fn the_same_decision_twice_is_one_event() {
    let world = World::new();
    let (approved, rejected) = (world.plan(), world.plan());
    for already in [false, true, true] {
        assert_eq!(world.approve(&approved).send().succeeds()["already"], json!(already));
    }
    assert_eq!(world.events(&approved), ["awaiting_approval", "approved"]);
    // Both are plans of one payload: the rejection asks for the approved one's approval anew.
    for (reason, already) in [("first", false), ("second", true)] {
        assert_eq!(world.reject(&rejected, Some(reason)).send().succeeds()["already"], json!(already));
    }
    assert_eq!(world.events(&rejected), ["awaiting_approval", "rejected"]);
    let plan = world.operator().plan(&rejected.plan_token).unwrap();
    assert_eq!(plan.reject_reason.as_deref(), Some("first"));
}

#[test]
fn decisions_of_many_tabs_at_once_are_one_event() {
    let world = World::new();
    let plan = world.plan();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let tabs: Vec<_> = (0..16).map(|_| scope.spawn(|| world.approve(&plan).send().succeeds())).collect();
        tabs.into_iter().map(|tab| tab.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer["already"] == json!(false)).count(), 1);
    assert_eq!(world.events(&plan), ["awaiting_approval", "approved"]);
}

#[test]
fn nobody_approves_as_their_own_agent() {
    let world = World::new();
    let plan = world.gate.agent("ADA").unwrap().create(NewPlan::new("archive", &1, Approval::required())).unwrap();
    world.approve(&plan).send().refuses(403, "SELF_APPROVAL");
    assert_eq!(world.state(&plan), State::AwaitingApproval);
    world.approve(&plan).bearer(&world.token("bob")).send().succeeds();
}

#[test]
fn each_refusal_has_its_status() {
    let clock = std::sync::Arc::new(TestClock::at_ms(1_700_000_000_000));
    let world = World::on(common::ephemeral(|builder| builder.clock(clock.clone())), |builder| builder);
    let agent = world.agent();
    let create = |n: i32| agent.create(NewPlan::new("archive", &n, Approval::NotNeeded)).unwrap();

    let unknown = format!("/api/plans/{}/approve", "0".repeat(48));
    world.post(&unknown, &json!({"seal": "x"})).send().refuses(404, "UNKNOWN_TOKEN");
    world.post("/api/plans/short/reject", &json!({"seal": "x"})).send().refuses(404, "UNKNOWN_TOKEN");
    world.get("/api/plans/short").send().refuses(404, "UNKNOWN_TOKEN");
    world.get("/api/history/short").send().refuses(404, "UNKNOWN_TOKEN");

    let used = create(1);
    agent.execute(Redeem::stored(&used.plan_token, "archive"), |_| Ok(())).unwrap();
    world.approve(&used).send().refuses(409, "PLAN_USED");
    world.reject(&used, None).send().refuses(409, "PLAN_USED");

    let running = create(2);
    let claim = agent.begin_execute(Redeem::stored(&running.plan_token, "archive")).unwrap();
    world.reject(&running, None).send().refuses(409, "ALREADY_EXECUTING");
    drop(claim);

    let late = create(3);
    clock.advance(Duration::from_secs(3_600));
    world.approve(&late).send().refuses(410, "PLAN_EXPIRED");
    world.reject(&late, None).send().refuses(410, "PLAN_EXPIRED");
    assert_eq!(
        world.get(&format!("/api/plans/{}", late.plan_token)).send().succeeds()["plan"]["state"],
        json!("expired")
    );
}

#[test]
fn a_failure_of_the_gate_says_nothing_about_it() {
    let world = World::new();
    let plan = world.plan();
    world.gate.close().unwrap();
    for reply in [world.get("/api/plans").send(), world.approve(&plan).send(), world.get("/api/stuck").send()] {
        reply.refuses(500, "INTERNAL_ERROR");
        assert_eq!(reply.json().as_object().unwrap().len(), 3, "{}", reply.text());
        assert!(!reply.text().contains("closed") && !reply.text().contains("gate.db"));
    }
}
