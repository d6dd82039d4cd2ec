//! Whoever writes past the gate is named, and what he wrote never runs.

use std::path::Path;

use super::host::Host;
use super::run::{directory, run};

/// As somebody with an SQL shell would.
fn sql(db: &Path, statements: &str) {
    rusqlite::Connection::open(db).unwrap().execute_batch(statements).unwrap();
}

#[track_caller]
fn named(db: &Path, args: &[&str], what: &str) {
    let failed = run(db, args);
    let said = failed.stdout + &failed.stderr;
    assert_eq!(failed.code, 3, "{args:?} {said}");
    assert!(said.contains(what), "{args:?} {said}");
}

#[test]
fn a_state_set_by_hand_is_named_and_does_not_run() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("gated shoes");
    sql(&db, "UPDATE plans SET state = 'approved', decided_at = created_at");
    named(&db, &["audit", "verify"], "it is approved, and the audit says awaiting_approval");
    named(&db, &["doctor"], &format!("plan {token}: it is approved"));
    assert!(host.tell(&format!("run {token}")).starts_with("AWAITING_APPROVAL"));
    // The refusal's row tells of the forged state, which no earlier row leads to.
    named(&db, &["audit", "verify"], "the plan was awaiting_approval then");
}

#[test]
fn an_approval_set_by_hand_is_named() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    host.tell("gated shoes");
    sql(
        &db,
        "INSERT INTO approvals (plan_token, reviewer, seal, channel, approved_at)
           SELECT plan_token, 'ada', seal, 'cli:root', created_at FROM plans",
    );
    named(&db, &["audit", "verify"], "its approvals are not the ones in the audit");
    named(&db, &["doctor"], "its approvals are not the ones in the audit");
}

#[test]
fn a_payload_and_its_fingerprint_edited_together_are_named_and_do_not_run() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    let forged = "{\"category\":\"everything\",\"percent\":99}";
    let fingerprint = countersign::canonical_json_from_text(forged).unwrap().fingerprint();
    // The trigger in the way is taken away and put back word for word.
    let path = db.clone();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let trigger: String = connection
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'plans_immutable'", [], |row| row.get(0))
        .unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN; DROP TRIGGER plans_immutable;
             UPDATE plans SET payload = '{forged}', fingerprint = '{fingerprint}'; {trigger}; COMMIT"
        ))
        .unwrap();
    drop(connection);
    let said = host.tell(&format!("run {token}"));
    assert!(said.starts_with("CORRUPT") && said.contains("it was not run"), "{said}");
    named(&db, &["audit", "verify"], "does not match the seal");
    named(&db, &["doctor"], "audit chain");
}

#[test]
fn a_cut_tail_is_named_by_an_exported_head_and_stops_an_open_gate() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    host.tell(&format!("run {token}"));
    host.tell("plan hats");
    let head = run(&db, &["audit", "head"]).done();
    let connection = rusqlite::Connection::open(&db).unwrap();
    let trigger: String = connection
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'audit_events_no_delete'", [], |row| row.get(0))
        .unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN; DROP TRIGGER audit_events_no_delete;
             DELETE FROM audit_events WHERE seq = (SELECT max(seq) FROM audit_events); {trigger}; COMMIT"
        ))
        .unwrap();
    drop(connection);
    named(&db, &["audit", "verify", "--head", head.trim()], "its tail was cut");
    named(&db, &["doctor", "--head", head.trim()], "its tail was cut");
    // Without a head: the plan that lost its only row, and the head file beside the database.
    named(&db, &["audit", "verify"], "no audit row accounts for");
    named(&db, &["doctor"], "failure  history");
    assert!(host.tell("plan coats").starts_with("ROLLED_BACK"));
}

#[test]
fn a_planted_trigger_is_named_and_nobody_opens_the_file() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    sql(
        &db,
        "CREATE TRIGGER helpful AFTER INSERT ON plans BEGIN
           UPDATE plans SET expires_at_iso = NULL WHERE 0; END",
    );
    named(&db, &["doctor"], "helpful");
    named(&db, &["pending"], "a trigger that is not countersign's stands on its table plans: helpful");
    named(&db, &["audit", "verify"], "countersign doctor");
}

#[test]
fn an_edited_audit_row_is_named() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    Host::start(&db).tell("plan shoes");
    let connection = rusqlite::Connection::open(&db).unwrap();
    let trigger: String = connection
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'audit_events_no_update'", [], |row| row.get(0))
        .unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN; DROP TRIGGER audit_events_no_update;
             UPDATE audit_events SET reason = 'harmless' WHERE seq = 2; {trigger}; COMMIT"
        ))
        .unwrap();
    drop(connection);
    named(&db, &["audit", "verify"], "audit row 2: plan");
    named(&db, &["doctor"], "the row was edited");
}
