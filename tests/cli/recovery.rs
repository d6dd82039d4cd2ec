//! After a crash: what an operator does without writing Rust.

use super::host::Host;
use super::run::{Terminal, directory, on_terminal, run, stable};

#[test]
fn a_killed_hosts_plan_is_found_marked_and_settled() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    assert_eq!(host.tell(&format!("claim {token}")), "claimed");

    // While it lives, nobody takes its plan away.
    let alive = run(&db, &["executing", "--json"]).json();
    assert_eq!((&alive["plans"][0]["owner"], &alive["total"]), (&"alive".into(), &1.into()));
    let settle = ["settle", &token, "--outcome", "done", "--result", "{\"rows\":12}", "--as", "olga"];
    let refused = run(&db, &settle).failed(1);
    assert!(refused.contains("ALREADY_EXECUTING") && refused.contains("`countersign executing`"), "{refused}");
    let recovered = run(&db, &["recover", "--json"]).json();
    assert_eq!(recovered["alive"][0], token);
    host.kill();

    let (code, doctor) = on_terminal(&db, &["doctor"]);
    assert_eq!(code, 0, "warnings leave 0: {doctor}");
    assert!(doctor.contains("1 executing with a dead owner"), "{doctor}");
    let (_, table) = on_terminal(&db, &["executing"]);
    assert!(table.contains("dead"), "{table}");
    run(&db, &["audit", "verify"]).done();
    let recovered = run(&db, &["recover", "--json"]).json();
    assert_eq!(recovered["uncertain"][0], token);
    // Its dead owner is forgotten: nobody is sent to look for an unknown one.
    let listed = run(&db, &["executing"]).done();
    assert!(listed.contains("\tuncertain\t1\t") && listed.contains("\t-\t"), "{listed}");
    let settled = run(&db, &settle).done();
    assert!(settled.starts_with("It is executed now. Recorded as olga via cli:"), "{settled}");
    assert!(run(&db, &settle).failed(1).contains("NOT_EXECUTING"));
    let (_, shown) = on_terminal(&db, &["show", &token]);
    assert!(shown.contains('┆') && shown.contains("\"rows\": 12"), "{shown}");
    let shown = run(&db, &["show", &token]).done();
    assert!(shown.contains("\tuncertain > executed\tolga via cli:"), "{shown}");
    stable(|| insta::assert_snapshot!("a_settled_plan", shown));
    run(&db, &["audit", "verify"]).done();
    assert!(run(&db, &["doctor"]).done().contains("no plan waits for an operator"));
}

#[test]
fn settled_as_not_done_it_runs_again_and_as_failed_never() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let (again, never) = (host.tell("plan shoes"), host.tell("plan hats"));
    host.tell(&format!("claim {again}"));
    host.tell(&format!("claim {never}"));
    host.kill();
    let settle = |token: &str, rest: &[&str]| {
        let mut args = vec!["settle", token, "--as", "olga"];
        args.extend(rest);
        run(&db, &args)
    };
    assert!(settle(&again, &["--outcome", "not-done"]).done().contains("It is previewed now."));
    assert!(settle(&never, &["--outcome", "failed", "--error", "undone by hand"]).done().contains("It is failed now."));
    let mut host = Host::start(&db);
    assert_eq!(host.tell(&format!("run {again}")), "executed");
    assert!(host.tell(&format!("run {never}")).starts_with("PLAN_USED"));
    for (rest, what) in [
        (&["--outcome", "done", "--error", "x"][..], "--error goes with"),
        (&["--outcome", "failed", "--result", "1"], "--result goes with"),
        (&["--outcome", "not-done", "--result", "1"], "takes no --result"),
        (&["--outcome", "done", "--result", "{rows"], "quote text"),
    ] {
        assert!(settle(&again, rest).failed(2).contains(what), "{what}");
    }
}

#[test]
fn a_claim_of_an_unknown_owner_needs_a_person_who_made_sure() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    host.tell(&format!("claim {token}"));
    host.kill();
    // Its lock file is gone: nobody can tell any more.
    for entry in std::fs::read_dir(dir.path().join("gate.db.owners")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(run(&db, &["executing", "--json"]).json()["plans"][0]["owner"], "unknown");
    let doctor = run(&db, &["doctor"]).done();
    assert!(doctor.contains("0 executing with a dead owner, 1 with an unknown owner"), "{doctor}");
    assert_eq!(run(&db, &["recover", "--json"]).json()["unknown_owner"][0], token);
    let refused = run(&db, &["settle", &token, "--outcome", "not-done", "--as", "olga"]).failed(1);
    assert!(refused.contains("make sure that it is gone, then mark"), "{refused}");
    let stale = run(&db, &["mark-interrupted", &token, "--attempt", "2", "--as", "olga"]).failed(1);
    assert!(stale.contains("STALE_CLAIM"), "{stale}");
    let marked = run(&db, &["mark-interrupted", &token, "--attempt", "1", "--as", "olga"]).done();
    assert!(marked.contains("It is uncertain now."), "{marked}");
    run(&db, &["settle", &token, "--outcome", "not-done", "--as", "olga"]).done();
}

#[test]
fn a_backup_is_written_to_only_after_somebody_accepted_it() {
    let dir = directory();
    let (db, copy) = (dir.path().join("gate.db"), dir.path().join("copy.db"));
    let mut host = Host::start(&db);
    let (open, claimed) = (host.tell("gated shoes"), host.tell("plan hats"));
    host.tell(&format!("claim {claimed}"));
    let backup = run(&db, &["backup", copy.to_str().unwrap(), "--json"]).json();
    assert_eq!(backup["head"]["seq"], 4);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&copy).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let exists = run(&db, &["backup", copy.to_str().unwrap()]).failed(2);
    assert!(exists.contains("exists already"), "{exists}");

    // It can be read, and is intact; nothing is decided on it.
    run(&copy, &["audit", "verify", "--head", &run(&db, &["audit", "head"]).done()]).done();
    let pending = run(&copy, &["pending", "--json"]).json();
    let seal = pending["plans"][0]["seal"].as_str().unwrap();
    let refused = run(&copy, &["approve", &open, "--as", "ada", "--seal", seal]).failed(3);
    assert!(refused.contains("ROLLED_BACK") && refused.contains("countersign accept-restore"), "{refused}");
    let doctor = run(&copy, &["doctor"]).done();
    assert!(doctor.contains("warning  history: the file is a copy that `backup` made"), "{doctor}");
    assert!(Host::start(&copy).tell("plan coats").starts_with("ROLLED_BACK"));

    let accept = ["accept-restore", "--as", "olga"];
    assert!(run(&copy, &accept).failed(2).contains("--yes"));
    let mut terminal = Terminal::start(&copy, &accept);
    terminal.wait_for("[yes/no] ");
    terminal.send("yes\n");
    let (code, seen) = terminal.finish();
    assert!(code == 0 && seen.contains("Accepted: 1 plans expired, 1 are uncertain."), "{seen}");
    assert_eq!(run(&copy, &["accept-restore", "--as", "olga", "--yes", "--json"]).json()["already"], true);
    let mut restored = Host::start(&copy);
    let token = restored.tell("plan coats");
    assert_eq!(restored.tell(&format!("run {token}")), "executed");
    run(&copy, &["audit", "verify"]).done();
    // The original never noticed.
    assert_eq!(run(&db, &["show", &open, "--json"]).json()["plan"]["state"], "awaiting_approval");
}

#[test]
fn sweeping_and_purging_keep_every_answer() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    host.tell(&format!("run {token}"));
    assert_eq!(run(&db, &["sweep", "--json"]).json()["expired"], 0);
    assert_eq!(run(&db, &["purge", "--older-than", "90d", "--json"]).json()["purged"], 0);
    assert!(run(&db, &["purge", "--older-than", "soon"]).failed(2).contains("90d"));
    // Settled longer ago than no time at all: the millisecond of the settlement has to pass.
    let before = std::time::SystemTime::now() + std::time::Duration::from_millis(2);
    while std::time::SystemTime::now() < before {
        std::thread::yield_now();
    }
    let (code, seen) = on_terminal(&db, &["purge", "--older-than", "0s"]);
    assert!(code == 0 && seen.contains("1 settled plans purged"), "{seen}");
    assert!(host.tell(&format!("run {token}")).starts_with("PLAN_USED"));
    let shown = run(&db, &["show", &token]).done();
    assert!(shown.contains("was purged; what is left is its timeline") && shown.contains("executed"), "{shown}");
    assert_eq!(run(&db, &["show", &token, "--json"]).json()["plan"], serde_json::Value::Null);
    assert_eq!(run(&db, &["stats", "--json"]).json()["purged"], 1);
    run(&db, &["audit", "verify"]).done();
}
