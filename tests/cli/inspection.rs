//! Figures and the examination.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::host::Host;
use super::run::{Terminal, command, directory, lengthen_at, on_terminal, run, stable};

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
    // Also those that find nothing to write.
    let writing: [&[&str]; 5] = [
        &["sweep"],
        &["purge", "--older-than", "1d"],
        &["recover"],
        &["audit", "index", "on"],
        &["audit", "index", "off"],
    ];
    for verb in writing {
        let said = run(&db, verb).failed(3);
        assert!(said.contains("ROLLED_BACK") && said.contains("countersign accept-restore"), "{verb:?}: {said}");
    }
    assert!(Host::start(&db).tell("plan coats").starts_with("ROLLED_BACK"));
}

#[track_caller]
fn level(db: &Path, check: &str) -> (String, String) {
    let ran = run(db, &["doctor", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    // The exit status follows.
    assert_eq!(ran.code, if report["level"] == "failure" { 3 } else { 0 }, "{report}");
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|found| found["check"] == check).unwrap_or_else(|| panic!("{check}: {report}"));
    if found["level"] != "ok" {
        assert!(found["advice"].as_str().is_some_and(|advice| advice.len() > 20), "it says what to do: {found}");
    }
    (found["level"].as_str().unwrap().to_owned(), found["found"].as_str().unwrap().to_owned())
}

#[track_caller]
fn is(found: (String, String), level: &str, said: &str) {
    assert!(found.0 == level && found.1.contains(said), "{found:?}");
}

fn made() -> (tempfile::TempDir, PathBuf) {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    host.tell(&format!("run {token}"));
    drop(host);
    (dir, db)
}

fn sql(db: &Path, statements: &str) {
    rusqlite::Connection::open(db).unwrap().execute_batch(statements).unwrap();
}

#[test]
fn another_journal_mode_is_named() {
    let (_dir, db) = made();
    is(level(&db, "journal mode"), "ok", "wal");
    sql(&db, "PRAGMA journal_mode = DELETE");
    is(level(&db, "journal mode"), "warning", "delete, not wal");
}

#[test]
fn a_schema_that_was_changed_is_named() {
    for (change, said) in [
        ("DROP TRIGGER plans_immutable", "trigger plans_immutable is missing"),
        ("DROP INDEX plans_live", "index plans_live is missing"),
        ("DROP VIEW audit_log; CREATE VIEW audit_log AS SELECT 1", "view audit_log was changed"),
        ("PRAGMA user_version = 99", "schema 99"),
    ] {
        let (_dir, db) = made();
        is(level(&db, "schema"), "ok", "every table");
        sql(&db, change);
        is(level(&db, "schema"), "failure", said);
    }
}

#[test]
fn a_damaged_page_is_named() {
    let (_dir, db) = made();
    is(level(&db, "integrity"), "ok", "ok");
    let root: u32 = rusqlite::Connection::open(&db)
        .unwrap()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_plans_1'", [], |row| row.get(0))
        .unwrap();
    // Nobody has it open: the count of the index's cells is another now.
    let mut bytes = std::fs::read(&db).unwrap();
    bytes[(root as usize - 1) * 4096 + 4] ^= 1;
    std::fs::write(&db, bytes).unwrap();
    let found = level(&db, "integrity");
    assert_eq!(found.0, "failure", "{found:?}");
}

#[test]
fn a_second_name_of_the_file_is_named() {
    let (dir, db) = made();
    is(level(&db, "file"), "ok", "bytes");
    std::fs::hard_link(&db, dir.path().join("other.db")).unwrap();
    is(level(&db, "file"), "failure", "2 hard links");
}

#[test]
fn a_clock_behind_the_newest_rows_is_named() {
    let (_dir, db) = made();
    is(level(&db, "clock"), "ok", "this machine's clock reads 20");
    lengthen_at(&db, 1, 9_000_000_000_000);
    is(level(&db, "clock"), "failure", "ahead of this machine's clock");
    is(level(&db, "audit chain"), "ok", "agree");
}

#[test]
fn hosts_that_live_that_died_and_that_nobody_knows_are_counted() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let (mut host, mut other) = (Host::start(&db), Host::start(&db));
    is(level(&db, "instances"), "ok", "0 alive, 0 dead, 0 unknown");
    // A host registers before its first claim.
    for host in [&mut host, &mut other] {
        let token = host.tell("plan shoes");
        assert_eq!(host.tell(&format!("claim {token}")), "claimed");
    }
    is(level(&db, "instances"), "ok", "2 alive, 0 dead, 0 unknown");
    other.kill();
    is(level(&db, "instances"), "warning", "1 alive, 1 dead, 0 unknown");
    sql(&db, "INSERT INTO instances VALUES ('00', 1, 1, 'another boot', 'another host', 1, 1)");
    is(level(&db, "instances"), "warning", "1 alive, 1 dead, 1 unknown");
}

#[test]
fn plans_past_their_time_are_counted_until_they_are_swept() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let token = Host::start(&db).tell("brief shoes");
    let state = || run(&db, &["show", &token, "--json"]).json()["plan"]["state"].clone();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while state() != "expired" {
        assert!(std::time::Instant::now() < until, "its time has passed");
    }
    is(level(&db, "expiry"), "ok", "1 unused plans are past their time");
    assert_eq!(run(&db, &["stats", "--json"]).json()["overdue"], 1);
    assert_eq!(run(&db, &["sweep"]).done(), "1 plans past their time are expired now.\n");
    is(level(&db, "expiry"), "ok", "no unused plan is past its time");
    assert_eq!(run(&db, &["stats", "--json"]).json()["overdue"], 0);
    assert_eq!(run(&db, &["sweep", "--json"]).json()["expired"], 0);
}

#[test]
fn colours_are_for_a_terminal_that_wants_them() {
    let (_dir, db) = made();
    let green = "\u{1b}[32mok     \u{1b}[0m  sqlite";
    let (_, seen) = on_terminal(&db, &["doctor"]);
    assert!(seen.contains(green), "{seen:?}");
    assert!(!run(&db, &["doctor"]).done().contains('\u{1b}'));
    assert!(!on_terminal(&db, &["doctor", "--json"]).1.contains('\u{1b}'));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut plain = command(Some(&db), &["doctor"]);
        plain.env(name, value);
        let (_, seen) = Terminal::of(plain, None).finish();
        assert!(seen.contains("ok       sqlite") && !seen.contains('\u{1b}'), "{name}: {seen:?}");
    }
}

#[test]
fn a_sound_file_has_no_failure_while_hosts_write_it() {
    use countersign::{Approval, Doctor, Gate, Level, NewPlan};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let dir = directory();
    let db = dir.path().join("gate.db");
    let gate = Gate::open(&db).unwrap();
    let (done, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let agent = gate.agent("agent").unwrap();
            while !done.load(Ordering::Acquire) {
                let number = made.fetch_add(1, Ordering::AcqRel);
                agent.create(NewPlan::new("write", &number, Approval::NotNeeded)).unwrap();
            }
        });
        // On a slow disk few plans are made while one report is: go on until both have had their turns.
        let mut reports = Vec::new();
        while (reports.len() < 60 || made.load(Ordering::Acquire) < 60) && !writer.is_finished() {
            reports.push(Doctor::new(&db).examine());
        }
        done.store(true, Ordering::Release);
        writer.join().unwrap();
        for report in reports {
            assert!(report.level() < Level::Failure, "{report}");
        }
    });
}

#[test]
fn indexes_for_auditing_that_were_made_in_part_are_named() {
    let (_dir, db) = made();
    is(level(&db, "audit index"), "ok", "off");
    run(&db, &["audit", "index", "on"]).done();
    is(level(&db, "audit index"), "ok", "on");
    let sql = rusqlite::Connection::open(&db).unwrap();
    sql.execute_batch("DROP INDEX audit_events_by_tool").unwrap();
    is(level(&db, "audit index"), "warning", " stand");
    run(&db, &["audit", "index", "on"]).done();
    is(level(&db, "audit index"), "ok", "on");
}

#[test]
fn a_file_that_its_owner_cannot_write_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    std::fs::set_permissions(&db, std::fs::Permissions::from_mode(0o400)).unwrap();
    let ran = run(&db, &["doctor"]);
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert!(ran.stdout.contains("its owner cannot write it (mode 400)"), "{}", ran.stdout);
}
