//! Plain SQL is an interface: the sqlite3 shell of the system, an older SQLite than ours, reads a file read-only while
//! a gate has it open.

mod common;

use std::path::Path;
use std::process::Command;

use common::populated::{ENDS, HOSTILE, Populated};
use countersign::escape::visible;
use serde_json::Value;

/// What the shell answers, as JSON rows.
fn shell(file: &Path, sql: &str) -> Vec<Value> {
    let run = Command::new("sqlite3").args(["-json", &uri(file), sql]).output().unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && error.is_empty(), "{sql}: {error}");
    if run.stdout.is_empty() { Vec::new() } else { serde_json::from_slice(&run.stdout).unwrap() }
}

/// The test directories' names have no character that a URI would have to escape.
fn uri(file: &Path) -> String {
    format!("file:{}?mode=ro", file.display())
}

fn open() -> Option<Populated> {
    common::has("sqlite3").then(common::populated)
}

#[test]
fn the_shell_reads_every_table_and_view_while_a_gate_is_open() {
    let Some(world) = open() else { return };
    let file = world.gate.path();
    for object in ["plans", "approvals", "tombstones", "audit_events", "instances"] {
        assert!(!shell(file, &format!("SELECT * FROM {object}")).is_empty(), "{object}");
    }
    let head = world.gate.operator("operator").unwrap().audit().head().unwrap();
    let log = shell(file, "SELECT * FROM audit_log");
    assert_eq!(log.len() as i64, head.seq);
    assert_eq!(log[0]["event"], "store_created");
    assert!(log[0]["at"].as_str().unwrap().ends_with('Z'));

    let pending = shell(file, "SELECT * FROM pending_plans");
    assert_eq!(pending.len() as u64, world.gate.reviewer("reviewer-a").unwrap().pending(10).unwrap().total);
    let stuck = shell(file, "SELECT * FROM stuck_plans");
    assert_eq!(stuck.len() as u64, world.gate.operator("operator").unwrap().executing(10).unwrap().total);
    assert_eq!(stuck[0]["pid"], std::process::id());

    let timeline = shell(file, "SELECT DISTINCT plan_token FROM plan_timeline");
    // The unknown token that was refused once has a row as well.
    assert_eq!(timeline.len(), ENDS.len() + 1);
}

#[test]
fn no_view_shows_an_agents_text_unescaped() {
    let Some(world) = open() else { return };
    for view in ["audit_log", "pending_plans", "stuck_plans", "plan_timeline"] {
        let text = serde_json::to_string(&shell(world.gate.path(), &format!("SELECT * FROM {view}"))).unwrap();
        assert!(!text.contains('\u{202E}') && !text.contains("\\u001b") && !text.contains("line two\\n"), "{view}");
    }
    let pending = shell(world.gate.path(), "SELECT reason FROM pending_plans WHERE reason LIKE 'harmless%'");
    assert_eq!(pending[0]["reason"], visible(HOSTILE).as_ref());
}

#[test]
fn the_shell_cannot_change_a_file_that_it_opened_read_only() {
    let Some(world) = open() else { return };
    let run = Command::new("sqlite3").args([&uri(world.gate.path()), "DELETE FROM tombstones"]).output().unwrap();
    assert!(!run.status.success());
    assert!(String::from_utf8_lossy(&run.stderr).contains("readonly"));
}

#[test]
fn the_gate_goes_on_after_the_shell_has_read() {
    let Some(mut world) = open() else { return };
    shell(world.gate.path(), "SELECT * FROM audit_log");
    world.claims[0].confirm_executed("done").unwrap();
    let executed = "SELECT count(*) AS n FROM plans WHERE idempotency_key = 'executing' AND state = 'executed'";
    assert_eq!(shell(world.gate.path(), executed)[0]["n"], 1);
    assert_eq!(world.gate.operator("operator").unwrap().audit().verify(None).unwrap().difference, None);
}
