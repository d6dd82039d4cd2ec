//! Around the plans: host events, listings, the sink, health, and a gate that is closed.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use countersign::{
    Approval, AuditEvent, AuditQuery, AuditSink, Channel, Gate, NewPlan, Operator, Outcome, Redeem, State, TestClock,
};

use crate::common::world::{START_MS, World, code, payload, stored};

#[test]
fn host_events_are_recorded_escaped_and_change_nothing() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    let agent = world.agent().via(Channel::new("mcp").unwrap());
    agent.record_host_event(Some(created.plan_token.as_str()), "tool_called", "line\none\u{200B}").unwrap();
    agent.record_host_event(None, "session.start", "").unwrap();
    world.operator().record_host_event(Some(created.plan_token.as_str()), "note", "x").unwrap();
    world.operator().record_host_event(None, "note", "x").unwrap();
    let rows = world.rows();
    let names: Vec<_> = rows.iter().map(|row| row.event.as_str()).collect();
    assert_eq!(names, ["host:tool_called", "host:session.start", "host:note", "host:note"]);
    assert_eq!(rows[0].detail.as_deref(), Some("line\\none\\u{200B}"));
    assert_eq!((rows[0].actor.as_str(), rows[0].channel.as_str()), ("agent-0", "mcp"));
    assert_eq!((rows[0].from_state.as_deref(), rows[0].to_state.as_deref()), (Some("previewed"), Some("previewed")));
    assert_eq!((&rows[1].plan_token, rows[1].caller.as_deref()), (&None, Some("agent-0")));
    assert_eq!(rows[3].plan_token, None);
    assert_eq!(world.state(&created), State::Previewed);
    for name in ["", " ", "a b", "host:ünïcode", &"x".repeat(129)] {
        assert_eq!(code(agent.record_host_event(None, name, "")), "INVALID_INPUT", "{name:?}");
        assert_eq!(code(world.operator().record_host_event(None, name, "")), "INVALID_INPUT", "{name:?}");
    }
    assert_eq!(code(agent.record_host_event(None, "note", &"x".repeat(4_097))), "INVALID_INPUT");
    agent.record_host_event(None, &"x".repeat(128), &"x".repeat(4_096)).unwrap();
    // A host event about a plan past its time does not end it.
    world.advance(15 * 60 * 1000 + 1);
    world.rows();
    agent.record_host_event(Some(created.plan_token.as_str()), "late", "").unwrap();
    world.assert_events(&["host:late"]);
    world.assert_intact();
}

#[test]
fn pending_shows_the_soonest_expiring_first_and_leaves_expired_ones_out() {
    let world = World::new();
    let create = |n: u64, seconds: u64| {
        let p = payload(n);
        let plan = NewPlan::new("write", &p, Approval::required()).ttl(Duration::from_secs(seconds));
        world.agent().create(plan).unwrap()
    };
    let (late, soon, middle, gone) = (create(1, 300), create(2, 100), create(3, 200), create(4, 10));
    world.free(&payload(5));
    world.approved(&payload(6));
    world.advance(10_001);
    let pending = world.ada().pending(10).unwrap();
    let tokens: Vec<_> = pending.items.iter().map(|card| &card.plan.plan_token).collect();
    assert_eq!(tokens, [&soon.plan_token, &middle.plan_token, &late.plan_token]);
    assert_eq!((pending.total, pending.items[0].others_waiting), (3, 2));
    assert_eq!(world.ada().pending(2).unwrap().items.len(), 2);
    let none = world.ada().pending(0).unwrap();
    assert_eq!((none.items.len(), none.total), (0, 3));
    world.rows();
    assert_eq!(world.state(&gone), State::Expired);
    assert_eq!(world.events(), [""; 0], "reads notice nothing");
}

#[test]
fn a_card_shows_everything_that_was_sealed() {
    let world = World::new();
    let extra = serde_json::json!({"rows": [1, 2]});
    let plan = NewPlan::new("write", &[1], Approval::Required { quorum: 2 })
        .reason("spring\u{200B} sale")
        .preview_count(62)
        .data_digest("d1")
        .extra(&extra)
        .idempotency_key("call-1");
    let created = world.agent().create(plan).unwrap();
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    let card = world.ada().card(&created.plan_token).unwrap();
    let plan = card.plan;
    assert_eq!(plan.seal_fields().seal(), created.seal);
    assert_eq!(plan.reason.as_deref(), Some("spring\u{200B} sale"), "plans keep what was given");
    assert_eq!((plan.preview_count, plan.approvals_needed, plan.approvals.len()), (Some(62), 2, 1));
    assert_eq!((plan.data_digest.as_deref(), plan.idempotency_key.as_deref()), (Some("d1"), Some("call-1")));
    assert_eq!(plan.extra.unwrap().as_str(), r#"{"rows":[1,2]}"#);
    let created_row = world.operator().history(&created.plan_token).unwrap().remove(0);
    assert_eq!(created_row.reason.as_deref(), Some("spring\\u{200B} sale"), "the audit keeps it escaped");
    assert_eq!(created_row.detail.as_deref(), Some(created.seal.as_str()));
}

/// Keeps every event; on some it panics or calls the gate.
#[derive(Default)]
struct Watcher {
    seen: Mutex<Vec<AuditEvent>>,
    operator: OnceLock<Operator>,
}

impl AuditSink for Watcher {
    fn on_event(&self, event: &AuditEvent) {
        self.seen.lock().unwrap().push(event.clone());
        match event.event.as_str() {
            "host:panic" => panic!("the sink panics"),
            "host:call" => {
                let operator = self.operator.get().unwrap();
                operator.record_host_event(None, "from_sink", "").unwrap();
                assert!(operator.executing(1).unwrap().items.is_empty());
            }
            _ => {}
        }
    }
}

#[test]
fn a_sink_sees_every_event_in_order_and_whatever_it_does_changes_no_answer() {
    let watcher = Arc::new(Watcher::default());
    let world = World::with(|builder| builder.audit_sink(watcher.clone()));
    let _ = watcher.operator.set(world.operator());
    let created = world.approved(&payload(1));
    world.operator().record_host_event(None, "panic", "").unwrap();
    world.operator().record_host_event(None, "call", "").unwrap();
    world.claim(&created).confirm_executed(&1).unwrap();
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "PLAN_USED");
    let told = watcher.seen.lock().unwrap().clone();
    let kept = world.operator().audit().query(&AuditQuery::new()).unwrap();
    assert_eq!(told, kept, "from store_created on");
    assert!(told.iter().any(|event| event.event == "host:from_sink"));
    world.assert_intact();
}

#[test]
fn a_transition_that_fails_tells_the_sink_nothing() {
    let watcher = Arc::new(Watcher::default());
    let world = World::with(|builder| builder.audit_sink(watcher.clone()));
    let created = world.free(&payload(1));
    let told = watcher.seen.lock().unwrap().len();
    world
        .sql()
        .execute_batch("CREATE TRIGGER t BEFORE INSERT ON audit_events BEGIN SELECT RAISE(ABORT, 'x'); END")
        .unwrap();
    world.agent().begin_execute(stored(&created)).unwrap_err();
    assert_eq!(watcher.seen.lock().unwrap().len(), told);
}

#[test]
fn health_counts_what_is_open() {
    let world = World::new();
    world.free(&payload(1));
    world.gated(&payload(2));
    world.gated(&payload(3));
    world.approved(&payload(4));
    let running = world.free(&payload(5));
    let _claim = world.claim(&running);
    let lost = world.free(&payload(6));
    world.claim(&lost).mark_uncertain("?").unwrap();
    world.ended(State::Executed, &payload(7));
    let health = world.operator().health().unwrap();
    let counts = [health.previewed, health.awaiting_approval, health.approved, health.executing, health.uncertain];
    assert_eq!(counts, [1, 2, 1, 1, 1]);
    assert_eq!((health.journal_mode.as_str(), health.synchronous.as_str(), health.schema_version), ("wal", "2", 1));
    assert!(health.file_bytes > 0 && health.wal_bytes > 0);
    assert_eq!(health.instances, 1);
    assert_eq!(health.oldest_executing.unwrap().timestamp_millis(), START_MS);
    assert_eq!(health.head, world.operator().audit().head().unwrap());
    assert_eq!(serde_json::to_value(&health).unwrap()["previewed"], 1);
}

#[test]
fn a_closed_gate_answers_closed_to_every_verb() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    let (agent, ada, operator) = (world.agent(), world.ada(), world.operator());
    world.gate.close().unwrap();
    world.gate.close().unwrap();
    let token = &created.plan_token;
    let p = payload(2);
    let answers = [
        agent.create(NewPlan::new("write", &p, Approval::NotNeeded)).map(drop),
        agent.plan(token).map(drop),
        agent.begin_execute(stored(&created)).map(drop),
        agent.consume(stored(&created)).map(drop),
        agent.adopt(token, 1, claim.claim_token()).map(drop),
        agent.record_host_event(None, "x", ""),
        ada.pending(1).map(drop),
        ada.plan(token).map(drop),
        ada.card(token).map(drop),
        ada.approve(token, &created.seal).map(drop),
        ada.reject(token, None).map(drop),
        ada.lift_rejection("write", "0".repeat(64), "").map(drop),
        operator.plan(token).map(drop),
        operator.executing(1).map(drop),
        operator.recover().map(drop),
        operator.reconcile(token).map(drop),
        operator.settle(token, &Outcome::NotDone).map(drop),
        operator.mark_interrupted_as_uncertain(token, 1).map(drop),
        operator.accept_restore().map(drop),
        operator.sweep().map(drop),
        operator.purge(Duration::ZERO).map(drop),
        operator.history(token).map(drop),
        operator.audit().head().map(drop),
        operator.audit().verify(None).map(drop),
        operator.audit().query(&AuditQuery::new()).map(drop),
        operator.record_host_event(None, "x", ""),
        operator.health().map(drop),
        claim.check(),
        claim.record_host_event("x", ""),
        claim.confirm_executed(&1).map(drop),
        claim.confirm_failed("").map(drop),
        claim.mark_uncertain("").map(drop),
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        assert!(answer.unwrap_err().is_closed(), "{n}");
    }
    let executed = agent.execute(Redeem::stored(token, "write"), |_| Ok(1));
    assert_eq!(executed.unwrap_err().code(), "CLOSED");
    let clock = Arc::new(TestClock::at_ms(START_MS));
    let again = Gate::builder(world.path()).clock(clock).open().unwrap();
    assert_eq!(again.operator("olga").unwrap().plan(token).unwrap().state, State::Executing, "its claim stays");
    let adopted = again.agent("agent-0").unwrap().adopt(token, 1, claim.claim_token());
    adopted.unwrap().confirm_executed(&1).unwrap();
}

#[test]
fn a_gate_that_owns_nothing_leaves_no_instance_behind() {
    let world = World::new();
    let second = world.second_gate();
    let created = world.free(&payload(1));
    let mut claim = second.agent("agent-0").unwrap().begin_execute(stored(&created)).unwrap();
    claim.confirm_executed(&1).unwrap();
    assert_eq!(world.operator().health().unwrap().instances, 1);
    drop((claim, second));
    assert_eq!(world.operator().health().unwrap().instances, 0);
}

#[test]
fn the_handles_are_cheap_to_share() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + Sync + 'static>() {}
    shared::<Gate>();
    shared::<countersign::Agent>();
    shared::<countersign::Reviewer>();
    shared::<Operator>();
    sent::<countersign::Claim>();
    sent::<countersign::Error>();
}
