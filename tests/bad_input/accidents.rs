//! Clocks, sinks, and a file that somebody changed while it was open.

use std::sync::{Arc, Mutex, OnceLock};

use countersign::{Approval, AuditEvent, AuditSink, Created, Error, Gate, NewPlan, Outcome, Redeem, State, TestClock};
use rusqlite::Connection;

use crate::common::world::{START_MS, World, code, payload, stored};

#[test]
fn a_clock_that_goes_back_stops_approvals_and_claims_and_nothing_else() {
    let world = World::new();
    let (waiting, approved) = (world.gated(&payload(1)), world.approved(&payload(2)));
    let running = world.free(&payload(3));
    let mut claim = world.claim(&running);
    world.clock.set_ms(START_MS - 60_000);
    world.rows();
    assert_eq!(code(world.ada().approve(&waiting.plan_token, &waiting.seal)), "CLOCK_WENT_BACK");
    assert_eq!(code(world.agent().begin_execute(stored(&approved))), "CLOCK_WENT_BACK");
    assert_eq!(code(world.agent().consume(stored(&approved))), "CLOCK_WENT_BACK");
    assert_eq!(world.events(), [""; 0]);
    claim.confirm_executed(&1).unwrap();
    world.ada().reject(&waiting.plan_token, None).unwrap();
    let young = world.free(&payload(4));
    world.claim(&young).confirm_executed(&1).unwrap();
    assert_eq!(world.operator().sweep().unwrap(), 0);
    assert_eq!(world.state(&approved), State::Approved);
    // A gate that is opened under the wrong clock is as careful.
    let clock = Arc::new(TestClock::at_ms(START_MS - 60_000));
    let again = Gate::builder(world.path()).clock(clock).open().unwrap();
    assert_eq!(code(again.agent("agent-0").unwrap().begin_execute(stored(&approved))), "CLOCK_WENT_BACK");
    world.clock.set_ms(START_MS);
    let _claim = world.claim(&approved);
    world.assert_intact();
}

struct AlwaysPanics;

impl AuditSink for AlwaysPanics {
    fn on_event(&self, _: &AuditEvent) {
        panic!("the sink is broken");
    }
}

#[test]
fn a_sink_that_panics_at_every_event_changes_no_answer() {
    let world = World::with(|builder| builder.audit_sink(Arc::new(AlwaysPanics)));
    let created = world.approved(&payload(1));
    assert_eq!(code(world.caller("agent-1").begin_execute(stored(&created))), "UNKNOWN_TOKEN");
    assert_eq!(world.agent().execute(stored(&created), |_| Ok(7)).unwrap(), 7);
    assert_eq!(world.operator().sweep().unwrap(), 0);
    world.assert_intact();
}

/// Answers each plan that is created by one more, up to a few, and reads while it does.
#[derive(Default)]
struct CallsBack {
    gate: OnceLock<Gate>,
    seen: Mutex<Vec<String>>,
}

impl AuditSink for CallsBack {
    fn on_event(&self, event: &AuditEvent) {
        self.seen.lock().unwrap().push(event.event.clone());
        let Some(gate) = self.gate.get() else { return };
        let operator = gate.operator("sink").unwrap();
        operator.health().unwrap();
        let agent = gate.agent("sink").unwrap();
        match (event.event.as_str(), event.actor.as_str()) {
            ("previewed", "agent-0") => {
                let created = agent.create(NewPlan::new("from_sink", &1, Approval::NotNeeded)).unwrap();
                assert_eq!(agent.execute(Redeem::stored(&created.plan_token, "from_sink"), |_| Ok(1)).unwrap(), 1);
            }
            ("executed", "agent-0") => drop(gate.reviewer("sink").unwrap().pending(10).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn a_sink_may_call_the_gate() {
    let sink = Arc::new(CallsBack::default());
    let world = World::with(|builder| builder.audit_sink(sink.clone()).readers(1));
    assert!(sink.gate.set(world.gate.clone()).is_ok());
    let created = world.free(&payload(1));
    world.claim(&created).confirm_executed(&1).unwrap();
    let seen = sink.seen.lock().unwrap().clone();
    let expected = ["store_created", "previewed", "previewed", "executing", "executed", "executing", "executed"];
    assert_eq!(seen, expected);
    world.assert_intact();
}

fn run(sql: &Connection, statement: &str, plan: &Created) {
    assert_eq!(sql.execute(statement, [plan.plan_token.as_str()]).unwrap(), 1, "{statement}");
}

#[test]
fn a_plan_that_was_edited_in_the_file_is_corrupt_and_does_not_run() {
    for (change, tool, caller) in [
        ("payload = '{\"id\":1,\"price\":0}'", "write", "agent-0"),
        ("payload = ' ' || payload", "write", "agent-0"),
        ("tool = 'other'", "other", "agent-0"),
        ("caller = 'mallory'", "write", "mallory"),
        ("expires_at = expires_at + 3600000", "write", "agent-0"),
        ("created_at = created_at - 1", "write", "agent-0"),
        ("approvals_needed = 1", "write", "agent-0"),
        ("reason = 'harmless'", "write", "agent-0"),
        ("preview_count = 1", "write", "agent-0"),
        ("extra = '{}'", "write", "agent-0"),
        ("data_digest = NULL", "write", "agent-0"),
    ] {
        let world = World::new();
        let plan = NewPlan::new("write", &1, Approval::Required { quorum: 2 }).data_digest("d1");
        let created = world.agent().create(plan).unwrap();
        for name in ["ada", "ben"] {
            world.reviewer(name).approve(&created.plan_token, &created.seal).unwrap();
        }
        let sql = world.sql();
        sql.execute_batch("DROP TRIGGER plans_immutable").unwrap();
        run(&sql, &format!("UPDATE plans SET {change} WHERE plan_token = ?1"), &created);
        let head = world.operator().audit().head().unwrap();
        let redeem = || Redeem::stored(&created.plan_token, tool).data_digest("d1");
        let agent = world.caller(caller);
        assert!(agent.begin_execute(redeem()).unwrap_err().is_corrupt(), "{change}");
        assert!(agent.consume(redeem()).unwrap_err().is_corrupt(), "{change}");
        let ran = agent.execute(redeem(), |_| -> Result<u8, _> { panic!("it ran") });
        assert_eq!(ran.unwrap_err().code(), "CORRUPT");
        assert_eq!(world.operator().audit().head().unwrap(), head, "{change}: nothing was written");
        assert_eq!(world.state(&created), State::Approved);
        assert!(world.operator().audit().verify(None).unwrap().difference.is_some(), "{change}");
    }
}

#[test]
fn a_payload_edited_together_with_its_fingerprint_does_not_run() {
    let world = World::new();
    let created = world.approved(&payload(1));
    let fingerprint = countersign::fingerprint(&2).unwrap();
    let sql = world.sql();
    sql.execute_batch("DROP TRIGGER plans_immutable").unwrap();
    run(
        &sql,
        &format!("UPDATE plans SET payload = '2', fingerprint = '{fingerprint}' WHERE plan_token = ?1"),
        &created,
    );
    assert!(world.agent().begin_execute(stored(&created)).unwrap_err().is_corrupt());
    assert_eq!(
        code(world.agent().begin_execute(Redeem::new(&created.plan_token, "write").payload(&payload(1)))),
        "PLAN_MISMATCH"
    );
    assert!(
        world.agent().begin_execute(Redeem::new(&created.plan_token, "write").payload(&2)).unwrap_err().is_corrupt()
    );
    assert_eq!(world.state(&created), State::Approved);
}

#[test]
fn a_state_set_to_approved_without_approvals_still_waits() {
    let world = World::new();
    let created = world.quorum(&payload(1), 2);
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    run(&world.sql(), "UPDATE plans SET state = 'approved' WHERE plan_token = ?1", &created);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "AWAITING_APPROVAL");
    let approve = "UPDATE approvals SET seal = replace(seal, substr(seal, 1, 4), 'beef') WHERE plan_token = ?1";
    run(&world.sql(), approve, &created);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "AWAITING_APPROVAL");
}

/// Everything that a transition could have left behind.
fn dump(sql: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["plans", "approvals", "tombstones", "audit_events"] {
        let mut read = sql.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
        let columns = read.column_count();
        let rows = read
            .query_map([], |row| {
                (0..columns)
                    .map(|n| row.get::<_, rusqlite::types::Value>(n).map(|value| format!("{value:?}")))
                    .collect()
            })
            .unwrap();
        all.extend(rows.map(|row: rusqlite::Result<Vec<String>>| row.unwrap().join("|")));
    }
    all
}

type Call = Box<dyn FnMut(&World) -> Result<(), Error>>;

/// Every writing verb in a situation in which it writes, with the events that it would write.
fn transitions(world: &World) -> Vec<(&'static str, Call)> {
    let free = |n| world.free(&payload(n));
    let (begun, consumed, adopted, hosted) = (free(1), free(2), free(3), free(4));
    let (approved, half, rejected, twin) = (world.gated(&payload(5)), world.quorum(&payload(6), 2), free(7), free(7));
    assert_ne!(rejected.plan_token, twin.plan_token);
    let kept = world.claim(&adopted);
    let (mut done, mut failed, mut unclear) = (free(8), free(9), free(10));
    let claims = [&mut done, &mut failed, &mut unclear].map(|created| world.claim(created));
    let [mut done, mut failed, mut unclear] = claims;
    let (settled, marked, alone) = (free(11), free(12), free(17));
    drop((world.claim(&settled), world.claim(&marked)));
    let lifted = world.ended(State::Rejected, &payload(13));
    world.ended(State::Executed, &payload(14));
    vec![
        (
            "previewed",
            Box::new(|w: &World| w.agent().create(NewPlan::new("write", &15, Approval::NotNeeded)).map(drop)),
        ),
        (
            "awaiting_approval",
            Box::new(|w: &World| w.agent().create(NewPlan::new("write", &16, Approval::required())).map(drop)),
        ),
        ("executing", Box::new(move |w| w.agent().begin_execute(stored(&begun)).map(drop))),
        ("executed", Box::new(move |w| w.agent().consume(stored(&consumed)).map(drop))),
        ("adopted", Box::new(move |w| w.agent().adopt(kept.plan_token(), 1, kept.claim_token()).map(drop))),
        ("host:x", Box::new(move |w| w.agent().record_host_event(Some(hosted.plan_token.as_str()), "x", ""))),
        ("approved", Box::new(move |w| w.ada().approve(&approved.plan_token, &approved.seal).map(drop))),
        ("approval_recorded", Box::new(move |w| w.ada().approve(&half.plan_token, &half.seal).map(drop))),
        ("rejected", Box::new(move |w| w.ada().reject(&alone.plan_token, Some("no")).map(drop))),
        ("regated", Box::new(move |w| w.ada().reject(&rejected.plan_token, Some("no")).map(drop))),
        ("executed", Box::new(move |_| done.confirm_executed(&1).map(drop))),
        ("failed", Box::new(move |_| failed.confirm_failed("no").map(drop))),
        ("uncertain", Box::new(move |_| unclear.mark_uncertain("?").map(drop))),
        ("executed", Box::new(move |w| w.operator().settle(&settled.plan_token, &Outcome::done(&1)).map(drop))),
        ("uncertain", Box::new(move |w| w.operator().mark_interrupted_as_uncertain(&marked.plan_token, 1).map(drop))),
        (
            "rejection_lifted",
            Box::new(move |w| w.ada().lift_rejection("write", lifted.fingerprint.to_string(), "").map(drop)),
        ),
        (
            "purged",
            Box::new(|w: &World| {
                w.advance(1);
                w.operator().purge(std::time::Duration::ZERO).map(drop)
            }),
        ),
        (
            "expired",
            Box::new(|w: &World| {
                w.advance(16 * 60 * 1000);
                w.operator().sweep().map(drop)
            }),
        ),
    ]
}

#[test]
fn a_transition_whose_audit_row_cannot_be_written_did_not_happen() {
    let world = World::new();
    let sql = world.sql();
    for (event, mut call) in transitions(&world) {
        let before = dump(&sql);
        let trigger = format!(
            "CREATE TRIGGER broken BEFORE INSERT ON audit_events WHEN NEW.event = '{event}' \
             BEGIN SELECT RAISE(ABORT, 'the audit is broken'); END"
        );
        sql.execute_batch(&trigger).unwrap();
        let error = call(&world).expect_err(event);
        assert!(error.is_storage() && error.to_string().contains("the audit is broken"), "{event}: {error}");
        assert_eq!(dump(&sql), before, "{event}");
        sql.execute_batch("DROP TRIGGER broken").unwrap();
        world.assert_intact();
        call(&world).unwrap_or_else(|error| panic!("{event}, once the audit works: {error}"));
        assert_ne!(dump(&sql), before, "{event}");
        world.assert_intact();
    }
}

#[test]
fn a_refusal_whose_row_cannot_be_written_is_a_storage_error() {
    let world = World::new();
    let created = world.gated(&payload(1));
    let sql = world.sql();
    sql.execute_batch(
        "CREATE TRIGGER broken BEFORE INSERT ON audit_events BEGIN SELECT RAISE(ABORT, 'the audit is broken'); END",
    )
    .unwrap();
    let before = dump(&sql);
    let answers = [
        world.agent().begin_execute(stored(&created)).map(drop),
        world.agent().begin_execute(Redeem::stored("nonsense", "write")).map(drop),
        world.ada().approve(&created.plan_token, "0".repeat(64)).map(drop),
        world.operator().settle(&created.plan_token, &Outcome::NotDone).map(drop),
    ];
    for answer in answers {
        let error = answer.unwrap_err();
        assert!(error.is_storage() && !error.is_refused(), "{error}");
    }
    // Reads refuse without a row, so they still can.
    assert_eq!(code(world.agent().plan("nonsense")), "UNKNOWN_TOKEN");
    assert_eq!(dump(&sql), before);
}

#[test]
fn an_audit_row_that_a_trigger_swallows_stops_the_transition_too() {
    let world = World::new();
    let created = world.free(&payload(1));
    let sql = world.sql();
    sql.execute_batch("CREATE TRIGGER quiet BEFORE INSERT ON audit_events BEGIN SELECT RAISE(IGNORE); END").unwrap();
    let before = dump(&sql);
    let answer = world.agent().begin_execute(stored(&created)).map(drop);
    assert!(answer.unwrap_err().is_storage());
    assert_eq!(dump(&sql), before);
    sql.execute_batch(
        "DROP TRIGGER quiet; CREATE TRIGGER quiet BEFORE INSERT ON tombstones BEGIN SELECT RAISE(IGNORE); END",
    )
    .unwrap();
    world.ada().reject(&created.plan_token, None).unwrap_err();
    sql.execute_batch(
        "DROP TRIGGER quiet; CREATE TRIGGER quiet BEFORE INSERT ON plans BEGIN SELECT RAISE(IGNORE); END",
    )
    .unwrap();
    let p = payload(2);
    world.agent().create(NewPlan::new("write", &p, Approval::NotNeeded)).unwrap_err();
    sql.execute_batch(
        "DROP TRIGGER quiet; CREATE TRIGGER quiet BEFORE UPDATE ON plans BEGIN SELECT RAISE(IGNORE); END",
    )
    .unwrap();
    world.agent().begin_execute(stored(&created)).unwrap_err();
    sql.execute_batch("DROP TRIGGER quiet").unwrap();
    assert_eq!(dump(&sql), before);
    world.assert_intact();
}
