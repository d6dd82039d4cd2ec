//! The cookbook's questions: each query runs, and answers what stands below it, in the bundled SQLite and in the
//! system's older `sqlite3` shell, both reading only. `UPDATE_COOKBOOK=1` writes the answers down.
#![allow(clippy::disallowed_methods, reason = "files that no gate of this process has open as a database")]

mod common;
#[path = "cookbook/sample.rs"]
mod sample;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use sample::Sample;

/// Where the chapter stands.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

/// A question, its query, and its answer as it is written down.
struct Entry {
    title: String,
    sql: String,
    answer: String,
}

fn entries(text: &str) -> Vec<Entry> {
    let block = |section: &str, language: &str| {
        let start = section.find(&format!("```{language}\n")).unwrap_or_else(|| panic!("no {language}: {section}"));
        let body = &section[start + language.len() + 4..];
        body[..body.find("```").unwrap()].to_owned()
    };
    let start = text.find("## Cookbook").expect("the chapter stands there");
    let chapter = &text[start..];
    let end = chapter.find("\n## ").unwrap_or(chapter.len());
    chapter[..end]
        .split("\n### ")
        .skip(1)
        .map(|section| Entry {
            title: section.lines().next().unwrap().to_owned(),
            sql: block(section, "sql"),
            answer: block(section, "console"),
        })
        .collect()
}

/// A header and a row a line, as the shell prints them.
fn bundled(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(sql).unwrap();
    let names: Vec<_> = statement.column_names().into_iter().map(str::to_owned).collect();
    let mut shown = String::new();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        if shown.is_empty() {
            writeln!(shown, "{}", names.join("|")).unwrap();
        }
        let cells: Vec<_> = (0..names.len())
            .map(|column| match row.get_ref(column).unwrap() {
                ValueRef::Null => String::new(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                other => panic!("no cell for people: {other:?}"),
            })
            .collect();
        writeln!(shown, "{}", cells.join("|")).unwrap();
    }
    shown
}

fn shell(db: &Path, sql: &str) -> String {
    let output = Command::new("sqlite3").args(["-readonly", "-header", "-list"]).arg(db).arg(sql).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_question_is_answered_as_written() {
    let text = std::fs::read_to_string(FILE).unwrap();
    let entries = entries(&text);
    assert!(entries.len() >= 15, "{}", entries.len());
    let sample = Sample::make(&common::directory().join("gate.db"));
    let connection = Connection::open_with_flags(&sample.path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut updated = text.clone();
    for entry in &entries {
        let sql = sample.real(&entry.sql);
        let answer = sample.shown(&bundled(&connection, &sql));
        if std::env::var_os("UPDATE_COOKBOOK").is_some() {
            let section = updated.find(&format!("### {}\n", entry.title)).unwrap();
            let start = section + updated[section..].find("```console\n").unwrap() + 11;
            let end = start + updated[start..].find("```").unwrap();
            updated.replace_range(start..end, &answer);
            continue;
        }
        assert_eq!(entry.answer, answer, "{}", entry.title);
        if common::has("sqlite3") {
            assert_eq!(sample.shown(&shell(&sample.path, &sql)), answer, "{} in the shell", entry.title);
        }
    }
    if updated != text {
        std::fs::write(FILE, sample.shown(&updated)).unwrap();
    }
}

#[test]
fn the_questions_are_asked_of_the_views() {
    for entry in entries(&std::fs::read_to_string(FILE).unwrap()) {
        for table in ["audit_events", "FROM plans", "JOIN plans", "tombstones", "FROM approvals", "instances"] {
            assert!(!entry.sql.contains(table), "{}: {table}", entry.title);
        }
    }
}

/// With the indexes for auditors on, whatever names a plan, a tool, a caller, a code or a day is looked up, not scanned
/// for; without them only the plan is.
#[test]
fn with_the_audit_index_on_no_question_that_names_something_scans_the_audit() {
    let sample = Sample::make(&common::directory().join("gate.db"));
    let plan_of = |sql: &str| {
        let connection = Connection::open_with_flags(&sample.path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let lines = statement.query_map([], |row| row.get::<_, String>("detail")).unwrap();
        lines.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
    };
    let named = [
        (
            "event, count(*) FROM audit_log WHERE tool = 'a' AND at >= '2026-03-02' AND at < '2026-03-03' GROUP BY event",
            "audit_events_by_tool_at",
        ),
        ("* FROM audit_log WHERE plan_token = 'a'", "audit_events_plan"),
        ("* FROM plan_timeline WHERE plan_token = 'a'", "audit_events_plan"),
        ("* FROM audit_log WHERE tool = 'a' ORDER BY seq LIMIT 50", "audit_events_by_tool"),
        ("* FROM audit_log WHERE tool = 'a' ORDER BY seq DESC LIMIT 50", "audit_events_by_tool"),
        ("* FROM audit_log WHERE tool = 'a' AND at >= '2026-03-02' AND at < '2026-03-03'", "audit_events_by_tool_at"),
        ("* FROM audit_log WHERE caller = 'a' ORDER BY seq LIMIT 50", "audit_events_by_caller"),
        (
            "* FROM audit_log WHERE caller = 'a' AND at >= '2026-03-02' AND at < '2026-03-03'",
            "audit_events_by_caller_at",
        ),
        (
            "* FROM audit_log WHERE tool = 'a' AND event = 'rejected' ORDER BY seq DESC LIMIT 50",
            "audit_events_by_tool_event",
        ),
        (
            "* FROM audit_log WHERE caller = 'a' AND event = 'rejected' ORDER BY seq LIMIT 50",
            "audit_events_by_caller_event",
        ),
        (
            "* FROM audit_log WHERE tool = 'a' AND event = 'refused' AND at >= '2026-03-02' AND at < '2026-03-03'",
            "audit_events_by_tool_at",
        ),
        (
            "* FROM audit_log WHERE caller = 'a' AND event = 'refused' AND at >= '2026-03-02' AND at < '2026-03-03'",
            "audit_events_by_caller_at",
        ),
        ("* FROM audit_log WHERE at >= '2026-03-02' AND at < '2026-03-03'", "audit_events_by_at"),
        ("* FROM audit_log WHERE code = 'SELF_APPROVAL' ORDER BY seq LIMIT 50", "audit_events_by_code"),
    ];
    let operator = sample.gate.operator("auditor").unwrap();
    for on in [false, true] {
        operator.audit_index(on).unwrap();
        for (question, index) in named {
            let plan = plan_of(&format!("SELECT {question}"));
            let searched = plan.contains(&format!("USING INDEX {index} ("));
            assert_eq!(searched, on || index == "audit_events_plan", "{on} {question}\n{plan}");
            assert!(!searched || !plan.contains("SCAN audit_events"), "{question}\n{plan}");
        }
    }
    // What `stats` counts, and counts over all time, come from an index alone.
    for (counted, index) in [
        ("code, count(*) FROM audit_events WHERE event = 'refused' AND code IS NOT NULL GROUP BY code", "by_code"),
        ("event, count(*) FROM audit_events WHERE tool = 'a' GROUP BY event", "by_tool_event"),
        ("event, count(*) FROM audit_events WHERE caller = 'a' GROUP BY event", "by_caller_event"),
    ] {
        let plan = plan_of(&format!("SELECT {counted}"));
        assert!(plan.contains(&format!("COVERING INDEX audit_events_{index}")), "{counted}\n{plan}");
    }
}
