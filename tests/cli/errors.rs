//! Every error says what to do, and its exit code says what kind it is.

use super::host::Host;
use super::run::{command, directory, ran, run};

#[test]
fn a_mistyped_path_is_an_error_and_no_new_database() {
    let dir = directory();
    let db = dir.path().join("gaet.db");
    for args in [&["pending"][..], &["sweep"], &["audit", "verify"], &["doctor"], &["stats"]] {
        let failed = run(&db, args);
        assert_eq!(failed.code, 3, "{args:?}");
        let said = failed.stdout + &failed.stderr;
        assert!(said.contains("there is no database at") && said.contains("COUNTERSIGN_DB"), "{said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn without_a_database_the_ways_to_name_one_are_said() {
    let said = ran(command(None, &["pending"])).failed(2);
    insta::assert_snapshot!(said);
    let json = ran(command(None, &["pending", "--json"]));
    assert_eq!(json.code, 2);
    let error: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(error["error"]["code"], "NO_DATABASE");
    assert!(error["error"]["hint"].as_str().unwrap().contains("--db"));
}

#[test]
fn what_is_no_gate_is_refused_unchanged() {
    let dir = directory();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database at all, but a text of more than a hundred bytes, so that it could hold a header of one, were it one").unwrap();
    std::fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let foreign = dir.path().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (a); PRAGMA user_version = 7").unwrap();
    std::fs::set_permissions(&foreign, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for (path, said) in [(&text, "CORRUPT"), (&foreign, "belongs to another application")] {
        let before = std::fs::read(path).unwrap();
        let failed = run(path, &["pending"]).failed(3);
        assert!(failed.contains(said) && failed.contains("countersign doctor"), "{failed}");
        let doctor = run(path, &["doctor"]);
        assert_eq!(doctor.code, 3);
        assert!(doctor.stdout.contains("failure"), "{}", doctor.stdout);
        assert_eq!(std::fs::read(path).unwrap(), before);
    }
}

#[test]
fn refusals_name_their_code_and_the_next_command() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("plan shoes");
    for (args, code, said) in [
        (vec!["show", "0a0a"], 1, "UNKNOWN_TOKEN"),
        (vec!["approve", "0a0a", "--as", "ada"], 1, "`countersign pending`"),
        (vec!["settle", &token, "--outcome", "not-done", "--as", "olga"], 1, "NOT_EXECUTING"),
        (vec!["mark-interrupted", &token, "--attempt", "1", "--as", "olga"], 1, "`countersign show TOKEN`"),
        (vec!["reject", &token, "--as", "unknown"], 2, "give the person's own name"),
        (vec!["reject", &token, "--as", "not a name"], 2, "is not a name: use"),
        (vec!["settle", &token, "--outcome", "done"], 2, "--as <NAME>"),
        (vec!["audit", "search", "--since", "yesterday"], 2, "2d for two days ago"),
        (vec!["frobnicate"], 2, "Usage"),
    ] {
        let failed = run(&db, &args);
        assert_eq!(failed.code, code, "{args:?} {}", failed.stderr);
        assert!(failed.stderr.contains(said), "{args:?} {}", failed.stderr);
        assert!(failed.stderr.lines().count() >= 2, "{args:?} says what to do: {}", failed.stderr);
    }
}

#[test]
fn a_locked_database_is_busy_and_says_how_to_wait_longer() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let token = Host::start(&db).tell("plan shoes");
    // Another program that sits on the write lock.
    let other = rusqlite::Connection::open(&db).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = run(&db, &["settle", &token, "--outcome", "not-done", "--as", "olga", "--wait", "50ms"]).failed(3);
    assert!(busy.contains("BUSY") && busy.contains("--wait 30s"), "{busy}");
    // Reading is not kept waiting, and who waits for nobody still gets what is free.
    run(&db, &["show", &token, "--wait", "50ms"]).done();
    run(&db, &["show", &token, "--wait", "0s"]).done();
    other.execute_batch("ROLLBACK").unwrap();
    run(&db, &["sweep", "--wait", "0s"]).done();
}

#[test]
fn a_file_locked_as_a_whole_is_named_by_the_doctor() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    let other = rusqlite::Connection::open(&db).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE").unwrap();
    let doctor = run(&db, &["doctor"]);
    assert_eq!(doctor.code, 3);
    assert!(doctor.stdout.contains("Another program holds the file locked"), "{}", doctor.stdout);
}

#[test]
fn a_wrong_command_line_is_json_where_json_is_wanted() {
    for args in [&["frobnicate", "--json"][..], &["--json", "settle", "0a", "--outcome", "done"], &["show", "--json"]] {
        let failed = ran(command(None, args));
        assert_eq!((failed.code, failed.stderr.as_str()), (2, ""), "{args:?}");
        let error: serde_json::Value = serde_json::from_str(&failed.stdout).unwrap();
        assert_eq!(error["error"]["code"], "USAGE", "{args:?}");
        assert!(!error["error"]["message"].as_str().unwrap().starts_with("error:"), "{error}");
        assert!(error["error"]["hint"].as_str().unwrap().contains("Usage: countersign"), "{error}");
    }
}

#[test]
fn what_was_pasted_into_an_argument_is_escaped_in_the_error_about_it() {
    let pasted = "\u{1b}[2J\u{9b}31m\u{202e}\n\nok";
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    for args in [
        &["audit", "search", "--since", pasted][..],
        &[pasted],
        &["show", pasted],
        &["settle", "0a", "--outcome", pasted, "--as", "olga"],
        &["settle", "0a", "--outcome", "done", "--result", pasted, "--as", "olga"],
        &["reject", "0a", "--as", pasted],
        &["backup", pasted],
        &["--db", pasted, "pending"],
    ] {
        for json in [&[][..], &["--json"]] {
            // A backup is made where it was asked for.
            let mut command = command(Some(&db), &[args, json].concat());
            command.current_dir(dir.path());
            let failed = ran(command);
            let said = (failed.stdout + &failed.stderr).replace(['\n', '\t'], "");
            assert!(said.chars().all(|c| countersign::escape::classify(c).is_none()), "{args:?} {said:?}");
            assert!(!said.is_empty(), "{args:?}");
        }
    }
}

#[test]
fn a_database_that_is_named_wins_over_the_environment() {
    let dir = directory();
    let (named, other) = (dir.path().join("named.db"), dir.path().join("other.db"));
    let token = Host::start(&named).tell("plan shoes");
    drop(Host::start(&other));
    run(&other, &["show", &token]).failed(1);
    run(&other, &["--db", named.to_str().unwrap(), "show", &token]).done();
    run(&other, &["show", &token, "--db", named.to_str().unwrap()]).done();
}
