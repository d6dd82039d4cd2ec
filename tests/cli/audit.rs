//! Reading and checking the audit.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::host::Host;
use super::run::{command, directory, on_terminal, run, stable};

#[test]
fn rows_are_found_by_tool_caller_event_code_plan_and_time() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let (one, two) = (host.tell("gated shoes"), host.tell("plan hats"));
    host.tell(&format!("run {one}"));
    host.tell(&format!("run {two}"));
    let found = |args: &[&str]| {
        let mut all = vec!["audit", "search", "--json"];
        all.extend(args);
        let events = run(&db, &all).json()["events"].clone();
        events.as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["store_created", "awaiting_approval", "previewed", "refused", "executing", "executed"];
    assert_eq!(found(&[]), all);
    assert_eq!(found(&["--since", "1h"]), all);
    assert_eq!(found(&["--until", "1h"]), [""; 0]);
    assert_eq!(found(&["--since", "2026-01-01", "--until", "9999-01-01T00:00:00Z"]), all);
    assert_eq!(found(&["--plan", &two]), ["previewed", "executing", "executed"]);
    assert_eq!(found(&["--tool", "update_prices", "--limit", "2"]), ["awaiting_approval", "previewed"]);
    assert_eq!(found(&["--caller", "PRICING-agent", "--newest-first", "--limit", "1"]), ["executed"]);
    assert_eq!(found(&["--code", "AWAITING_APPROVAL"]), ["refused"]);
    assert_eq!(found(&["--event", "executed", "--tool", "no_such_tool"]), [""; 0]);
    let (_, table) = on_terminal(&db, &["audit", "search", "--plan", &two]);
    stable(|| insta::assert_snapshot!("audit_table", table));
    stable(|| insta::assert_snapshot!("audit_piped", run(&db, &["audit", "tail", "-n", "2"]).done()));
}

#[test]
fn a_follower_prints_each_row_as_it_comes_and_ends_with_its_pipe() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let mut follower = command(Some(&db), &["audit", "tail", "-n", "1", "--follow", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["event"], "store_created");
    let token = host.tell("plan shoes");
    let row = next();
    assert_eq!((row["event"].as_str(), row["plan_token"].as_str()), (Some("previewed"), Some(&*token)));
    host.tell(&format!("run {token}"));
    assert_eq!((next()["event"].clone(), next()["event"].clone()), ("executing".into(), "executed".into()));
    // Nobody reads any more: the next row ends it, without a word.
    drop(lines);
    host.tell("plan hats");
    let output = follower.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn an_export_holds_every_row_and_can_be_checked_by_anybody() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    for category in ["shoes", "hats", "coats"] {
        let token = host.tell(&format!("plan {category}"));
        host.tell(&format!("run {token}"));
    }
    let lines = run(&db, &["audit", "export", "--format", "jsonl"]).done();
    let rows: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 10);
    for (before, row) in rows.iter().zip(&rows[1..]) {
        assert_eq!(before["hash"], row["prev_hash"]);
    }
    let csv = run(&db, &["audit", "export", "--format", "csv"]).done();
    let mut csv = csv.lines();
    let header: Vec<_> = csv.next().unwrap().split(',').collect();
    assert_eq!(header.len(), 20);
    assert!(header.iter().all(|name| rows[0].get(*name).is_some()), "{header:?}");
    assert_eq!(csv.count(), 10);
    assert_eq!(run(&db, &["audit", "export", "--format", "csv", "--event", "executed"]).done().lines().count(), 4);
}

#[test]
fn a_head_kept_elsewhere_is_taken_back_and_a_wrong_one_named() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    host.tell("plan shoes");
    let head = run(&db, &["audit", "head"]).done();
    let head = head.trim();
    host.tell("plan hats");
    let verified = run(&db, &["audit", "verify", "--head", head, "--json"]).json();
    assert_eq!((&verified["intact"], &verified["tail_checked"]), (&true.into(), &true.into()));
    let without = run(&db, &["audit", "verify"]).done();
    assert!(without.contains("a tail that was cut off would not show"), "{without}");
    let garbled = run(&db, &["audit", "verify", "--head", "nonsense"]).failed(2);
    assert!(garbled.contains("STORE:SEQ:HASH"), "{garbled}");
    let mut parts: Vec<_> = head.split(':').collect();
    let other = "0".repeat(64);
    parts[2] = &other;
    let wrong = run(&db, &["audit", "verify", "--head", &parts.join(":")]);
    assert_eq!(wrong.code, 3);
    assert!(wrong.stdout.contains("the chain was replaced"), "{}", wrong.stdout);
}

#[test]
fn the_indexes_for_auditors_go_on_and_off_beside_a_living_host() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    for (switch, already) in [("on", false), ("on", true), ("off", false), ("off", true), ("on", false)] {
        let answer = run(&db, &["audit", "index", switch, "--json"]).json();
        assert_eq!(answer, serde_json::json!({"audit_index": switch == "on", "already": already}));
        let token = host.tell(&format!("plan {switch}"));
        assert_eq!(host.tell(&format!("run {token}")), "executed");
        run(&db, &["doctor"]).done();
    }
    assert_eq!(run(&db, &["stats", "--json"]).json()["audit_index"], true);
    assert_eq!(Host::start(&db).tell("hello"), "hello");
}
