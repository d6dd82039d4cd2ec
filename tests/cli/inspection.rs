//! Figures and the examination.

use super::host::Host;
use super::run::{directory, on_terminal, run, stable};

#[test]
fn stats_count_plans_decisions_and_refusals() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let (one, two) = (host.tell("gated shoes"), host.tell("plan hats"));
    host.tell(&format!("run {one}"));
    host.tell(&format!("run {one}"));
    host.tell(&format!("run {two}"));
    let seal = run(&db, &["show", &one, "--json"]).json()["plan"]["seal"].as_str().unwrap().to_owned();
    run(&db, &["approve", &one, "--as", "ada", "--seal", &seal]).done();
    let stats = run(&db, &["stats", "--json"]).json();
    assert_eq!(
        stats["plans"],
        serde_json::json!([{"state": "approved", "plans": 1}, {"state": "executed", "plans": 1}])
    );
    assert_eq!(stats["refusals"], serde_json::json!([{"code": "AWAITING_APPROVAL", "refusals": 2}]));
    assert_eq!(stats["decision_time"]["decisions"], 1);
    assert!(stats["decision_time"]["p50_ms"].as_i64().unwrap() >= 0);
    assert_eq!((&stats["audit_rows"], &stats["overdue"]), (&8.into(), &0.into()));
    assert!(stats["file_bytes"].as_u64().unwrap() > 0 && stats["wal_bytes"].as_u64().unwrap() > 0);
    let (code, table) = on_terminal(&db, &["stats"]);
    assert!(code == 0 && table.contains("refused AWAITING_APPROVAL"), "{table}");
}

#[test]
fn a_sound_file_passes_every_check() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    host.tell("plan shoes");
    let report = run(&db, &["doctor", "--json", "--head", run(&db, &["audit", "head"]).done().trim()]).json();
    assert_eq!(report["level"], "ok", "{report}");
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    insta::assert_snapshot!("the_names_of_the_checks", names.join("\n"));
    assert!(checks.iter().all(|check| check["advice"].is_null()));
    let (code, seen) = on_terminal(&db, &["doctor"]);
    assert_eq!(code, 0);
    let seen = seen.replace(dir.path().to_str().unwrap(), "[dir]");
    stable(|| {
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(r"\d+ bytes", "[n] bytes");
        settings.add_filter(r"user \d+", "user [n]");
        settings.add_filter(r"SQLite 3\.\d+\.\d+", "SQLite [version]");
        settings.add_filter(r"clock reads .*", "clock reads [now]");
        settings.bind(|| insta::assert_snapshot!("doctor", seen));
    });
}

#[test]
fn what_others_can_read_or_write_is_named_with_the_command_that_ends_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    let chmod = |mode| std::fs::set_permissions(&db, std::fs::Permissions::from_mode(mode)).unwrap();
    chmod(0o644);
    let readable = run(&db, &["doctor"]).done();
    assert!(readable.contains("warning  permissions") && readable.contains("chmod go-r"), "{readable}");
    chmod(0o620);
    let writable = run(&db, &["doctor"]);
    assert_eq!(writable.code, 3);
    assert!(writable.stdout.contains("failure  permissions") && writable.stdout.contains("chmod go-w"));
    assert!(run(&db, &["pending"]).failed(3).contains("run chmod 600"));
}

#[test]
fn an_older_copy_put_back_is_named() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    host.tell("plan shoes");
    drop(host);
    let old = dir.path().join("old.db");
    std::fs::copy(&db, &old).unwrap();
    let mut host = Host::start(&db);
    host.tell("plan hats");
    drop(host);
    for beside in ["gate.db-wal", "gate.db-shm"] {
        let _ = std::fs::remove_file(dir.path().join(beside));
    }
    std::fs::copy(&old, &db).unwrap();
    let doctor = run(&db, &["doctor"]);
    assert_eq!(doctor.code, 3);
    assert!(
        doctor.stdout.contains("failure  history") && doctor.stdout.contains("accept-restore"),
        "{}",
        doctor.stdout
    );
    assert!(run(&db, &["sweep"]).failed(3).contains("countersign accept-restore"));
    assert!(Host::start(&db).tell("plan coats").starts_with("ROLLED_BACK"));
}
