//! Files and directories that are not what a gate needs, through the public door.
#![allow(clippy::disallowed_methods, reason = "files that no gate of this process has open")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use countersign::{Approval, Error, Gate, NewPlan};
use rusqlite::Connection;

fn refused(path: &Path) -> Error {
    Gate::open(path).map(drop).expect_err("refused")
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A file that a gate made and closed.
fn made(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("gate.db");
    drop(Gate::open(&path).unwrap());
    path
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// With CI=true a test that cannot run fails.
fn skip(what: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "needs {what}");
    eprintln!("skipped: needs {what}");
}

#[test]
fn a_file_that_is_no_database_is_corrupt_and_kept() {
    let dir = directory();
    for bytes in [&b"hello, I am a text file"[..], &[0xA5; 20_000], b"SQLite format 3\0 and then nothing"] {
        let path = dir.path().join("text.db");
        fs::write(&path, bytes).unwrap();
        chmod(&path, 0o600);
        let error = refused(&path);
        assert!(error.is_corrupt(), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn another_applications_database_is_unsupported_and_kept() {
    let dir = directory();
    let path = dir.path().join("theirs.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE plans (a); INSERT INTO plans VALUES (7)").unwrap();
    chmod(&path, 0o600);
    let before = fs::read(&path).unwrap();
    let error = refused(&path);
    assert!(error.is_unsupported() && error.to_string().contains("another application"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_schema_is_unsupported() {
    let dir = directory();
    let path = made(dir.path());
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    let error = refused(&path);
    assert!(error.is_unsupported() && error.to_string().contains("update countersign"), "{error}");
}

#[test]
fn a_changed_schema_and_a_planted_trigger_are_refused() {
    for (change, said) in [
        ("CREATE TRIGGER x AFTER INSERT ON audit_events BEGIN SELECT 1; END", "not countersign's"),
        ("CREATE TRIGGER x BEFORE UPDATE ON plans BEGIN SELECT RAISE(IGNORE); END", "not countersign's"),
        ("CREATE TRIGGER x AFTER INSERT ON APPROVALS BEGIN SELECT 1; END", "not countersign's"),
        ("CREATE TRIGGER x INSTEAD OF INSERT ON audit_log BEGIN SELECT 1; END", "not countersign's"),
        ("DROP TRIGGER plans_immutable", "missing"),
        ("DROP TRIGGER audit_events_no_delete", "missing"),
        ("DROP INDEX plans_idempotency", "missing"),
        ("ALTER TABLE plans ADD COLUMN more TEXT", "changed"),
        ("DROP VIEW audit_log; CREATE VIEW audit_log AS SELECT 1", "changed"),
    ] {
        let dir = directory();
        let path = made(dir.path());
        Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let error = refused(&path);
        assert!(error.to_string().contains(said), "{change}: {error}");
        assert!(error.is_unsupported() || error.is_corrupt());
    }
}

#[test]
fn a_file_that_is_read_only_or_that_others_can_write_is_refused() {
    let dir = directory();
    let path = made(dir.path());
    for mode in [0o400, 0o444, 0o660, 0o606, 0o666, 0o622] {
        chmod(&path, mode);
        let error = refused(&path);
        assert!(error.is_unsupported() && error.to_string().contains("chmod 600"), "{mode:o}: {error}");
    }
    chmod(&path, 0o600);
    Gate::open(&path).unwrap();
}

#[test]
fn another_users_file_is_refused() {
    if !is_root() {
        return skip("root, to give a file away");
    }
    let dir = directory();
    let path = made(dir.path());
    std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
    let error = refused(&path);
    assert!(error.is_unsupported() && error.to_string().contains("user 12345"), "{error}");
}

#[test]
fn a_missing_directory_is_named_and_not_created() {
    let dir = directory();
    let error = refused(&dir.path().join("no/such/gate.db"));
    assert!(error.is_storage() && error.to_string().contains("does not exist"), "{error}");
    assert!(!dir.path().join("no").exists());
    for path in ["", "/", ".."] {
        assert!(refused(Path::new(path)).is_invalid_input(), "{path:?}");
    }
    assert!(refused(dir.path()).to_string().contains("is a directory"));
    let nul = std::ffi::OsString::from(format!("{}/a\0b", dir.path().display()));
    assert!(refused(Path::new(&nul)).is_invalid_input());
}

const CHILD: &str = "COUNTERSIGN_TEST_UNWRITABLE";

/// Not a test of its own: the child of the next one, as a user whom a read-only directory stops.
#[test]
fn child_that_is_refused() {
    if let Ok(path) = std::env::var(CHILD) {
        println!("answer: {}", refused(Path::new(&path)).code());
    }
}

#[test]
fn an_unwritable_directory_is_refused_and_so_is_one_that_everybody_can_write() {
    const NOBODY: u32 = 65_534;
    let dir = directory();
    let path = dir.path().join("gate.db");
    chmod(dir.path(), 0o777);
    let error = refused(&path);
    assert!(error.is_unsupported(), "others could replace the file: {error}");
    chmod(dir.path(), 0o500);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "files::child_that_is_refused", "--nocapture"]).env(CHILD, &path);
    if is_root() {
        // Nothing stops root.
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        child.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    let answer = child.output();
    chmod(dir.path(), 0o700);
    let Ok(output) = answer else { return skip("a test binary that every user can run") };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("answer: STORAGE\n"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    assert!(!path.exists());
}

#[test]
fn a_directory_of_owners_that_is_not_one_is_refused() {
    let dir = directory();
    fs::write(dir.path().join("gate.db.owners"), "").unwrap();
    assert!(refused(&dir.path().join("gate.db")).is_unsupported());
    fs::create_dir(dir.path().join("open.db.owners")).unwrap();
    chmod(&dir.path().join("open.db.owners"), 0o777);
    let error = refused(&dir.path().join("open.db"));
    assert!(error.is_unsupported() && error.to_string().contains("chmod 700"), "{error}");
}

#[test]
fn a_path_with_any_characters_is_that_path() {
    let dir = directory();
    for name in
        ["a?mode=memory", "a%20b", "a b", "a#b", "gäte-数据库.db", ":memory:", "file:x.db?mode=ro", "-x", "a'b\"c;"]
    {
        let path = dir.path().join(name);
        let gate = Gate::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let created = gate.agent("a").unwrap().create(NewPlan::new("write", &1, Approval::NotNeeded)).unwrap();
        assert_eq!(gate.path(), dir.path().canonicalize().unwrap().join(name));
        drop(gate);
        assert!(path.is_file(), "{name}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Gate::open(&path).unwrap();
        again.agent("a").unwrap().plan(&created.plan_token).unwrap();
    }
}
