//! The README's SQL, each query by its title, on a file in which everything happened once.

use std::collections::BTreeSet;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use crate::common::populated::Populated;
use crate::{blocks, common};

/// The query with this title.
fn query(title: &str) -> &'static str {
    let wanted = format!("-- {title}");
    let found = blocks("sql").into_iter().find(|block| block.lines().next() == Some(wanted.as_str()));
    found.unwrap_or_else(|| panic!("no query {title:?}"))
}

const TITLES: &[&str] = &[
    "Who approved what, and when",
    "Anything that ran without approval",
    "Everything stuck: claimed, and nobody has said what came of it",
    "Time from request to decision, slowest first",
    "Refusals by code",
];

fn rows(connection: &Connection, title: &str) -> Vec<Vec<Value>> {
    let mut statement = connection.prepare(query(title)).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect()).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn read_only(world: &Populated) -> Connection {
    Connection::open_with_flags(world.gate.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn every_query_is_tested_here_and_runs_in_an_older_shell() {
    let titles: Vec<&str> =
        blocks("sql").iter().filter_map(|block| block.lines().next()?.strip_prefix("-- ")).collect();
    assert_eq!(titles, TITLES);
    if !common::has("sqlite3") {
        return;
    }
    let world = common::populated();
    let connection = read_only(&world);
    for title in TITLES {
        let uri = format!("file:{}?mode=ro", world.gate.path().display());
        let run = std::process::Command::new("sqlite3")
            .args(["-json", &uri, &format!("\n{}", query(title))])
            .output()
            .unwrap();
        assert!(run.status.success(), "{title}: {}", String::from_utf8_lossy(&run.stderr));
        let answer: Vec<serde_json::Value> = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(answer.len(), rows(&connection, title).len(), "{title}");
    }
}

#[test]
fn the_approvals_are_listed_with_reviewer_and_seal() {
    let world = common::populated();
    let found = rows(&read_only(&world), TITLES[0]);
    let listed: Vec<(&str, &str)> = found.iter().map(|row| (text(&row[1]), text(&row[5]))).collect();
    let expected = [
        ("reviewer-a", "awaiting-one-of-two"),
        ("reviewer-b", "approved"),
        ("reviewer-b", "regated"),
        ("reviewer-a", "executed"),
        ("reviewer-a", "executed-by-two"),
        ("reviewer-b", "executed-by-two"),
    ];
    assert_eq!(listed, expected.map(|(reviewer, label)| (reviewer, world.token(label).as_str())));
    let seal = world.gate.reviewer("reviewer-a").unwrap().plan(world.token("executed")).unwrap().seal;
    assert_eq!(text(&found[3][6]), seal.as_str());
}

#[test]
fn what_ran_without_approval_is_what_needed_none() {
    let world = common::populated();
    let found = rows(&read_only(&world), TITLES[1]);
    assert!(found.iter().all(|row| text(&row[5]) == "needed none"));
    let ran =
        ["purged-executed", "purged-failed", "executed-retried", "executed-retried", "executed-adopted", "consumed"];
    let ran = ran.iter().chain(&["executing", "uncertain", "failed"]).map(|label| world.token(label).as_str());
    assert_eq!(found.iter().map(|row| text(&row[3])).collect::<Vec<_>>(), ran.collect::<Vec<_>>());
}

#[test]
fn a_gated_plan_that_ran_without_its_approval_is_a_finding() {
    let world = common::populated();
    let copy = common::directory().join("copy.db");
    read_only(&world).execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let forged = Connection::open(&copy).unwrap();
    // One that nobody decided, and one whose approval was taken back.
    for label in ["awaiting", "regated"] {
        forged
            .execute(
                "INSERT INTO audit_events (seq, at, plan_token, event, from_state, to_state, actor, channel, instance_id,
                                           prev_hash, hash)
                 SELECT max(seq) + 1, max(at), ?1, 'executing', 'approved', 'executing', 'x', 'x', 'x', hash, hash
                   FROM audit_events",
                [world.token(label).as_str()],
            )
            .unwrap();
    }
    let findings: Vec<Vec<Value>> =
        rows(&forged, TITLES[1]).into_iter().filter(|row| text(&row[5]) == "GATED").collect();
    let tokens: Vec<&str> = findings.iter().map(|row| text(&row[3])).collect();
    assert_eq!(tokens, [world.token("awaiting").as_str(), world.token("regated").as_str()]);
}

#[test]
fn everything_stuck_is_what_the_operator_lists() {
    let world = common::populated();
    let stuck = world.gate.operator("operator").unwrap().executing(10).unwrap();
    let listed: Vec<&str> = stuck.items.iter().map(|stuck| stuck.plan.plan_token.as_str()).collect();
    let found = rows(&read_only(&world), TITLES[2]);
    assert_eq!(found.iter().map(|row| text(&row[0])).collect::<Vec<_>>(), listed);
}

#[test]
fn the_time_to_a_decision_is_from_creation_to_the_last_vote() {
    let world = common::populated();
    let found = rows(&read_only(&world), TITLES[3]);
    assert_eq!(found[0][0], Value::Real(91.0));
    assert_eq!((text(&found[0][1]), text(&found[0][4])), ("approved", world.token("approved").as_str()));
    assert_eq!(found[1][0], Value::Real(32.0), "the second of two votes decides");
    let rejected = tokens_of(&found, "rejected");
    let expected = ["purged-rejected", "lifted", "rejected"].map(|label| world.token(label).as_str().to_owned());
    assert_eq!(rejected, expected.into());
}

fn tokens_of(found: &[Vec<Value>], decision: &str) -> BTreeSet<String> {
    found.iter().filter(|row| text(&row[1]) == decision).map(|row| text(&row[4]).to_owned()).collect()
}

#[test]
fn the_refusals_are_counted_by_code() {
    let world = common::populated();
    let found = rows(&read_only(&world), TITLES[4]);
    let counted: Vec<(&str, &Value, &Value)> = found.iter().map(|row| (text(&row[0]), &row[1], &row[2])).collect();
    let (one, two) = (Value::Integer(1), Value::Integer(2));
    let expected = [
        ("AWAITING_APPROVAL", &two, &two),
        ("PLAN_USED", &two, &two),
        ("DATA_DIGEST_MISMATCH", &one, &one),
        ("PLAN_MISMATCH", &one, &one),
        ("PLAN_REJECTED", &one, &one),
        ("SELF_APPROVAL", &one, &one),
        ("UNKNOWN_TOKEN", &one, &one),
    ];
    assert_eq!(counted, expected);
}
