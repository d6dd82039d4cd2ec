//! Whose claim is it, and does that host live? Nobody touches a live host's work, and a dead one's is settled.
#![allow(clippy::disallowed_methods, reason = "lock files, and copies of closed databases")]

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::common::child::{Child, Start};
use crate::common::{self, host, invariants, ledger::Ledger, tools};

fn path() -> PathBuf {
    common::directory().join("gate.db")
}

/// A host that is inside the side effect of a plan.
fn inside(start: Start, path: &Path) -> (Child, String) {
    let mut host = host::start_by(start, path);
    let token = host.create(1);
    host.tell(&json!({"op": "execute", "token": token}).to_string());
    host.expect("inside");
    (host, token)
}

/// Everything that others may try on a live host's plan, from two other hosts.
fn is_left_alone(path: &Path, token: &str) {
    let mut others = [host::start(path), host::start(path)];
    for other in &mut others {
        let report = other.ask(&json!({"op": "recover"}));
        assert_eq!(report["alive"], json!([token]), "{report}");
        assert_eq!((&report["settled"], &report["unknown_owner"]), (&json!([]), &json!([])));
        for op in ["settle", "settle_not_done", "mark", "reconcile", "claim"] {
            assert_eq!(other.refused_on(op, token), "ALREADY_EXECUTING", "{op}");
        }
        assert_eq!(other.on("state", token), "executing");
    }
    others.into_iter().for_each(Child::finish);
}

/// A dead host's plan, whose effect did not happen, can run again after the next recovery.
fn is_settled(path: &Path, token: &str) {
    let mut other = host::start(path);
    let report = other.ask(&json!({"op": "recover"}));
    assert_eq!(report["settled"], json!([[token, "previewed"]]), "{report}");
    // What the first settled is asked about no more.
    let again = other.ask(&json!({"op": "recover"}));
    assert_eq!((&again["settled"], &again["alive"]), (&json!([]), &json!([])));
    other.on("claim", token);
    other.on("effect", token);
    other.on("confirm", token);
    other.finish();
    invariants::effects_match(path, &Ledger::beside(path));
    invariants::sound(&common::builder(path).open().unwrap());
}

#[test]
fn a_live_host_is_left_alone_and_settled_after_a_kill() {
    let path = path();
    let (mut host, token) = inside(Start::plain(), &path);
    is_left_alone(&path, &token);
    host.kill();
    is_settled(&path, &token);
}

#[test]
fn a_host_that_stands_still_is_alive_and_goes_on_unharmed() {
    let path = path();
    let (mut host, token) = inside(Start::plain(), &path);
    host.signal(Signal::STOP);
    tools::until("the host is stopped", || tools::process_state(host.pid()) == Some('T'));
    // Nothing in liveness has a timeout: longer than every one of them is no different.
    is_left_alone(&path, &token);
    host.signal(Signal::CONT);
    host.tell("go on");
    assert_eq!(serde_json::from_str::<Value>(&host.expect("ok")).unwrap(), "done");
    assert_eq!(host.on("state", &token), "executed");
    host.finish();
    invariants::effects_match(&path, &Ledger::beside(&path));
}

#[test]
fn a_host_that_is_a_zombie_is_dead() {
    let path = path();
    let (host, token) = inside(Start::plain(), &path);
    host.signal(Signal::KILL);
    tools::until("the host is a zombie", || tools::process_state(host.pid()) == Some('Z'));
    is_settled(&path, &token);
    drop(host);
}

#[test]
fn a_program_that_outlives_its_host_does_not_keep_it_alive() {
    let path = path();
    let mut host = host::start(&path);
    let token = host.create(1);
    host.on("claim", &token);
    let pid = host.ask(&json!({"op": "spawn"})).as_i64().unwrap();
    host.kill();
    assert!(matches!(tools::process_state(u32::try_from(pid).unwrap()), Some('S' | 'R')));
    is_settled(&path, &token);
    let program = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(program, Signal::KILL).unwrap();
}

#[test]
fn a_host_in_another_pid_namespace_is_seen_alive_and_dead() {
    let unshare = ["unshare", "--pid", "--fork", "--kill-child"];
    if !tools::can("root, for unshare --pid", tools::run(unshare[0], &["--pid", "--fork", "--kill-child", "true"])) {
        return;
    }
    let path = path();
    let (mut host, token) = inside(Start::behind(unshare), &path);
    is_left_alone(&path, &token);
    host.kill();
    // The wrapper is gone; its child dies with it, a moment later.
    let mut other = host::start(&path);
    tools::until("the host behind the wrapper is dead", || {
        other.ask(&json!({"op": "recover"}))["settled"] == json!([[token, "previewed"]])
    });
    other.finish();
}

#[test]
fn a_host_under_another_host_name_is_seen_alive_and_dead() {
    let script = "hostname another-host && exec \"$0\" \"$@\"";
    if !tools::can("root, for unshare --uts", tools::run("unshare", &["--uts", "sh", "-c", script, "true"])) {
        return;
    }
    let path = path();
    let (mut host, token) = inside(Start::behind(["unshare", "--uts", "sh", "-c", script]), &path);
    assert_eq!(invariants::number(&path, "SELECT count(*) FROM instances WHERE host_name = 'another-host'"), 1);
    is_left_alone(&path, &token);
    host.kill();
    is_settled(&path, &token);
}

#[test]
fn a_hosts_own_work_is_alive_to_itself_and_dropped_work_is_not() {
    let path = path();
    let mut host = host::start(&path);
    let token = host.create(1);
    host.on("claim", &token);
    // The hook would answer that nothing happened, and the plan would run again beside the work.
    assert_eq!(host.refused_on("reconcile", &token), "ALREADY_EXECUTING");
    assert_eq!(host.refused_on("mark", &token), "ALREADY_EXECUTING");
    assert_eq!(host.ask(&json!({"op": "recover"}))["alive"], json!([token]));
    host.on("drop", &token);
    is_left_alone(&path, &token);
    assert_eq!(host.ask(&json!({"op": "recover"}))["settled"], json!([[token, "previewed"]]));
    host.finish();
}

#[test]
fn a_host_that_closes_with_a_claim_open_is_dead_not_unknown() {
    let path = path();
    let mut host = host::start(&path);
    let token = host.create(1);
    host.on("claim", &token);
    host.on("close", &token);
    assert_eq!(host.refused_on("confirm", &token), "CLOSED");
    is_settled(&path, &token);
    host.finish();
}

/// Where the lock of the only registered instance lies.
fn lock_file(path: &Path) -> PathBuf {
    let directory = path.with_file_name("gate.db.owners");
    let id: String = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("SELECT instance_id FROM instances", [], |row| row.get(0))
        .unwrap();
    directory.join(format!("{id}.lock"))
}

/// Nobody can tell whether the owner lives: untouched, reported, and an operator settles it by hand.
fn is_unknown(path: &Path, token: &str) {
    let mut other = host::start(path);
    let report = other.ask(&json!({"op": "recover"}));
    assert_eq!(report["unknown_owner"], json!([token]), "{report}");
    assert_eq!(other.on("state", token), "executing");
    assert_eq!(other.refused_on("settle", token), "ALREADY_EXECUTING");
    assert_eq!(other.refused_on("reconcile", token), "ALREADY_EXECUTING");
    assert_eq!(other.on("mark", token), "uncertain");
    assert_eq!(other.on("settle", token), "executed");
    other.finish();
    invariants::sound(&common::builder(path).open().unwrap());
}

#[test]
fn a_host_whose_lock_file_is_gone_is_unknown() {
    let path = path();
    let (mut host, token) = inside(Start::plain(), &path);
    std::fs::remove_file(lock_file(&path)).unwrap();
    is_unknown(&path, &token);
    // It was alive all the time: its confirm comes too late, and leaves its evidence.
    host.tell("go on");
    assert_eq!(host.expect("no").split(' ').next(), Some("NOT_EXECUTING"));
    let kept = "SELECT count(*) FROM audit_events WHERE code = 'NOT_EXECUTING' AND detail LIKE '%confirm_executed%'";
    assert_eq!(invariants::number(&path, kept), 1);
    host.finish();
}

#[test]
fn a_host_whose_lock_file_was_made_again_is_unknown() {
    let path = path();
    let (mut host, token) = inside(Start::plain(), &path);
    let lock = lock_file(&path);
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, "").unwrap();
    is_unknown(&path, &token);
    host.kill();
}

#[test]
fn in_a_copy_at_another_place_the_hosts_are_unknown_with_and_without_their_locks() {
    let path = path();
    let mut host = host::start(&path);
    let token = host.create(1);
    host.on("claim", &token);
    // A copy as a backup makes it, while the host lives.
    let copy = |with_owners: bool| {
        let place = common::directory().join("gate.db");
        let into = place.to_str().unwrap().to_owned();
        rusqlite::Connection::open(&path).unwrap().execute("VACUUM INTO ?1", [into]).unwrap();
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        if with_owners {
            let (from, to) = (path.with_file_name("gate.db.owners"), place.with_file_name("gate.db.owners"));
            std::fs::DirBuilder::new().mode(0o700).create(&to).unwrap();
            for entry in std::fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
        place
    };
    for with_owners in [false, true] {
        is_unknown(&copy(with_owners), &token);
    }
    host.kill();
    for with_owners in [false, true] {
        is_unknown(&copy(with_owners), &token);
    }
    is_settled(&path, &token);
}
