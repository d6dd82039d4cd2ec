//! Whose file is it, and is it whole?

use super::*;

fn identity_of(application_id: i32, user_version: i32, empty: bool) -> Identity {
    Identity { application_id, user_version, empty }
}

fn migrated() -> Connection {
    let mut connection = Connection::open_in_memory().expect("in memory");
    migrate(&mut connection, Instant::now(), &|_| Ok(())).expect("migrated");
    connection
}

#[test]
fn only_an_empty_file_and_one_of_ours_are_accepted() {
    let newest = i32::try_from(MIGRATIONS.len()).expect("few migrations");
    assert_eq!(identity_of(0, 0, true).standing().expect("fresh"), Standing::Fresh);
    assert_eq!(identity_of(APPLICATION_ID, newest, false).standing().expect("ours"), Standing::Current);
    for foreign in
        [identity_of(0, 0, false), identity_of(0, 3, true), identity_of(7, 0, true), identity_of(7, 1, false)]
    {
        let error = foreign.standing().unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("another application"), "{error}");
    }
    let newer = identity_of(APPLICATION_ID, newest + 1, false).standing().unwrap_err();
    assert!(newer.is_unsupported() && newer.to_string().contains("update countersign"), "{newer}");
    for impossible in [0, -1] {
        assert!(identity_of(APPLICATION_ID, impossible, false).standing().unwrap_err().is_corrupt());
    }
}

#[test]
fn the_creation_runs_once_and_in_the_transaction_of_the_schema() {
    let mut connection = Connection::open_in_memory().expect("in memory");
    let failing = migrate(&mut connection, Instant::now(), &|_| Err(Error::storage("no"))).unwrap_err();
    assert!(failing.is_storage());
    assert_eq!(standing(&mut connection, Instant::now()).expect("still empty"), Standing::Fresh);

    let calls = std::cell::Cell::new(0);
    for _ in 0..2 {
        migrate(&mut connection, Instant::now(), &|transaction| {
            calls.set(calls.get() + 1);
            assert!(!transaction.is_autocommit());
            Ok(())
        })
        .expect("migrated");
    }
    assert_eq!(calls.get(), 1);
    verify(&connection, Instant::now()).expect("whole");
}

#[test]
fn a_migration_that_breaks_halfway_leaves_nothing_behind() {
    let mut connection = Connection::open_in_memory().expect("in memory");
    {
        let transaction = connection.transaction().expect("begin");
        run(&transaction, 0).expect("ran");
        // Dropped without a commit, as a kill does it.
    }
    assert_eq!(standing(&mut connection, Instant::now()).expect("empty"), Standing::Fresh);
}

#[test]
fn a_planted_trigger_is_refused_and_named() {
    for planted in [
        "CREATE TRIGGER planted AFTER INSERT ON plans BEGIN SELECT 1; END",
        "CREATE TRIGGER planted AFTER UPDATE ON \"PLANS\" BEGIN SELECT 1; END",
        "CREATE TRIGGER planted INSTEAD OF INSERT ON audit_log BEGIN SELECT 1; END",
    ] {
        let connection = migrated();
        connection.execute_batch(planted).expect("planted");
        let error = verify(&connection, Instant::now()).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("planted"), "{error}");
    }
}

#[test]
fn the_name_of_a_planted_trigger_is_escaped() {
    let connection = migrated();
    connection
        .execute_batch("CREATE TRIGGER \"a\u{1b}[2J\" AFTER INSERT ON plans BEGIN SELECT 1; END")
        .expect("planted");
    assert!(!verify(&connection, Instant::now()).unwrap_err().to_string().contains('\u{1b}'));
}

#[test]
fn a_missing_or_changed_object_is_corruption() {
    for (change, name) in [
        ("DROP TRIGGER plans_immutable", "plans_immutable"),
        ("DROP VIEW audit_log", "audit_log"),
        ("DROP INDEX plans_idempotency", "plans_idempotency"),
        ("DROP TABLE approvals", "approvals"),
        ("ALTER TABLE plans ADD COLUMN more TEXT", "plans"),
        (
            "DROP TRIGGER audit_events_no_delete;
             CREATE TRIGGER audit_events_no_delete BEFORE DELETE ON audit_events BEGIN SELECT 1; END",
            "audit_events_no_delete",
        ),
    ] {
        let connection = migrated();
        connection.execute_batch(change).expect("changed");
        let error = verify(&connection, Instant::now()).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(name), "{change}: {error}");
    }
}

#[test]
fn what_a_host_adds_beside_our_tables_is_its_own_business() {
    let connection = migrated();
    connection
        .execute_batch(
            "CREATE TABLE host (id INTEGER PRIMARY KEY);
             CREATE TRIGGER host_trigger AFTER INSERT ON host BEGIN SELECT 1; END;
             CREATE VIEW host_view AS SELECT plan_token FROM plans;
             CREATE INDEX audit_by_actor ON audit_events (actor)",
        )
        .expect("added");
    verify(&connection, Instant::now()).expect("whole");
}
