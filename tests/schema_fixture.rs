//! A file that schema 1 made, in every state, opens for ever.
//!
//! `tests/fixtures/schema_0001.db` is never written again once a release has its schema. Before that,
//! `UPDATE_FIXTURE=1 cargo test --all-features --test schema_fixture` makes it anew through the public API; the head of
//! its audit, as it was exported then, stands beside it.
#![allow(clippy::disallowed_methods, reason = "the fixture and its copies are no gate's open files")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use common::populated::{ENDS, HOSTILE, Populated, payload};
use countersign::escape::visible;
use countersign::{Approval, Clock as _, Gate, Head, Liveness, NewPlan, State, TestClock};
use rusqlite::Connection;

/// When the fixture's history began.
const BEGAN_MS: i64 = 1_700_000_000_000;
/// A moment in which its open plans are still in time.
const NOW_MS: i64 = BEGAN_MS + 2 * 24 * 60 * 60 * 1_000 + 5 * 60 * 1_000;

fn fixture(extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema_0001").with_extension(extension)
}

/// Makes the fixture anew, when asked to.
fn update() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("UPDATE_FIXTURE").is_none() {
            return;
        }
        let file = common::directory().join("schema_0001.db");
        let clock = Arc::new(TestClock::at_ms(BEGAN_MS));
        let gate = Gate::builder(&file).clock(clock.clone()).open().unwrap();
        let filled = Populated::fill(gate, clock);
        let head = filled.gate.operator("operator").unwrap().audit().head().unwrap();
        assert!(filled.clock.now_ms() < NOW_MS);
        // The claims go, their plans stay executing and uncertain.
        drop(filled);
        let connection = Connection::open(&file).unwrap();
        // Nothing of the machine that made it: this table is not under the chain.
        connection
            .execute(
                "UPDATE instances SET host_name = 'fixture', boot_id = 'fixture', pid = 1, lock_dev = 1, lock_ino = 1",
                [],
            )
            .unwrap();
        connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(connection);
        assert!(!file.with_extension("db-wal").exists(), "the log is in the file");
        fs::create_dir_all(fixture("db").parent().unwrap()).unwrap();
        fs::copy(file, fixture("db")).unwrap();
        fs::write(fixture("head"), format!("{head}\n")).unwrap();
    });
}

/// A copy that this user alone can write, as a gate wants it.
fn copy() -> PathBuf {
    update();
    let file = common::directory().join("gate.db");
    fs::copy(fixture("db"), &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

fn open(file: &Path) -> Gate {
    Gate::builder(file).clock(Arc::new(TestClock::at_ms(NOW_MS))).open().unwrap()
}

/// The tokens by their labels, from the tables alone.
fn tokens(file: &Path) -> BTreeMap<String, String> {
    let connection = Connection::open(file).unwrap();
    let sql = "SELECT idempotency_key, plan_token FROM plans UNION SELECT idempotency_key, plan_token FROM tombstones";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_plan_of_a_schema_1_file_reads_as_it_was_left() {
    let file = copy();
    let tokens = tokens(&file);
    let labels: Vec<&str> = tokens.keys().map(String::as_str).collect();
    let mut expected: Vec<&str> = ENDS.iter().map(|(label, _)| *label).collect();
    expected.sort_unstable();
    assert_eq!(labels, expected);

    let gate = open(&file);
    let operator = gate.operator("operator").unwrap();
    for (label, state) in ENDS {
        let token = &tokens[*label];
        let history = operator.history(token).unwrap();
        assert!(history.iter().all(|event| event.hash == event.computed_hash()), "{label}");
        if label.starts_with("purged") {
            assert!(operator.plan(token).unwrap_err().is_refused(), "{label}");
            continue;
        }
        let plan = operator.plan(token).unwrap();
        assert_eq!(plan.state, *state, "{label}");
        assert_eq!(plan.seal_fields().seal(), plan.seal, "{label}");
        assert_eq!(plan.payload.as_str(), countersign::canonical_json(&payload(label)).unwrap().as_str());
        assert_eq!(history.last().and_then(|event| event.to_state.clone()).as_deref(), Some(state.as_str()), "{label}");
    }
    let awaiting = operator.plan(&tokens["awaiting"]).unwrap();
    assert_eq!(awaiting.reason.as_deref(), Some(HOSTILE));
    let history = operator.history(&tokens["awaiting"]).unwrap();
    assert_eq!(history[0].reason.as_deref(), Some(&*visible(HOSTILE)));
}

#[test]
fn the_chain_of_a_schema_1_file_verifies_against_the_head_that_was_exported() {
    let file = copy();
    let head: Head = fs::read_to_string(fixture("head")).unwrap().parse().unwrap();
    let report = open(&file).operator("auditor").unwrap().audit().verify(Some(&head)).unwrap();
    assert_eq!(report.difference, None);
    assert!(report.tail_checked);
    assert_eq!(report.plans, ENDS.len() as u64);
    assert_eq!(report.head, Some(head));
}

#[test]
fn a_schema_1_file_goes_on_where_it_stood() {
    let file = copy();
    let tokens = tokens(&file);
    let gate = open(&file);
    let agent = gate.agent("pricing-agent").unwrap();
    let create = |label: &str, key: Option<&str>| {
        let payload = payload(label);
        let mut plan = NewPlan::new("update_prices", &payload, Approval::NotNeeded);
        if let Some(key) = key {
            plan = plan.idempotency_key(key);
        }
        agent.create(plan)
    };
    // A purged plan still holds its key, and a rejected payload is still remembered, lifted ones are not.
    assert_eq!(create("purged-executed", Some("purged-executed")).unwrap_err().code(), "PLAN_USED");
    assert_eq!(create("purged-rejected", None).unwrap().state, State::AwaitingApproval);
    assert_eq!(create("lifted", None).unwrap().state, State::Previewed);
    assert_eq!(create("rejected", None).unwrap().earlier_rejection.unwrap().reason.as_deref(), Some("below cost"));

    // Its claims belong to an instance of another machine: nobody can tell, so nobody settles them.
    let operator = gate.operator("operator").unwrap();
    let stuck = operator.executing(10).unwrap();
    assert_eq!(stuck.total, 2);
    assert!(stuck.items.iter().all(|stuck| stuck.owner == Liveness::Unknown && stuck.pid == Some(1)));
    assert_eq!(operator.mark_interrupted_as_uncertain(&tokens["executing"], 1).unwrap().state, State::Uncertain);
    assert_eq!(operator.audit().verify(None).unwrap().difference, None);
}

#[test]
fn the_fixture_has_the_schema_of_migration_1() {
    update();
    let made = Connection::open(common::directory().join("migrated.db")).unwrap();
    let migration = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/0001_init.sql");
    made.execute_batch(&fs::read_to_string(migration).unwrap()).unwrap();
    let schema = |connection: &Connection| -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(schema(&Connection::open(copy()).unwrap()), schema(&made), "migration 1 was edited after this file");
}
