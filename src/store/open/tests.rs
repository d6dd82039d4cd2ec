//! The open sequence, from outside: what is created, what is refused, and what stays as it was.
#![allow(clippy::disallowed_methods)] // The tests read and write files that nobody has open.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;
use std::time::Duration;

use super::super::pool::Pools;
use super::*;

fn options(path: &Path) -> OpenOptions {
    OpenOptions {
        path: path.to_owned(),
        busy_deadline: Duration::from_secs(5),
        readers: 2,
        any_file_system: true,
        create: true,
        hooks: ConnHooks::default(),
    }
}

fn open_at(path: &Path) -> Result<Pools> {
    Pools::open(options(path), &|_| Ok(()))
}

fn refusal(path: &Path) -> Error {
    open_at(path).map(|_| ()).expect_err("refused")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn sqlite(path: &Path, sql: &str) {
    Connection::open(path).expect("open").execute_batch(sql).expect("sql");
}

/// All files of a directory and what is in them.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir).expect("list").map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).expect("read"))).collect()
}

#[test]
fn only_versions_that_keep_committed_data_are_accepted() {
    let sound = [3_044_006, 3_044_099, 3_050_007, 3_050_099, 3_051_003, 3_051_099, 3_052_001, 3_053_002, 4_000_000];
    let unsound = [0, 3_007_000, 3_044_005, 3_045_000, 3_049_001, 3_050_006, 3_051_000, 3_051_002, 3_052_000];
    for number in sound {
        assert!(check_version(number).is_ok(), "{number}");
    }
    for number in unsound {
        assert!(check_version(number).unwrap_err().is_unsupported(), "{number}");
    }
    assert!(check_version(3_051_002).unwrap_err().to_string().contains("3.51.2"));
    check_version(rusqlite::version_number()).expect("the linked one");
}

#[test]
fn a_new_file_is_private_and_opens_again() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    let created = std::cell::Cell::new(0);
    for _ in 0..2 {
        let pools = Pools::open(options(&path), &|transaction| {
            created.set(created.get() + 1);
            transaction.execute_batch("SELECT count(*) FROM plans").map_err(|e| sql_error(e, Instant::now()))
        })
        .expect("open");
        let found = fs::metadata(&path).expect("stat");
        assert_eq!(found.mode() & 0o7777, 0o600);
        assert_eq!(pools.file_id(), (found.dev(), found.ino()));
        assert_eq!(pools.stat().expect("stat").size, found.size());
        assert_eq!(pools.path(), dir.path().canonicalize().expect("real").join("gate.db"));
        pools.writer(Instant::now()).expect("writer");
        for suffix in ["-wal", "-shm"] {
            let beside = fs::metadata(fs_check::with_suffix(&path, suffix)).expect("it is there");
            assert_eq!(beside.mode() & 0o7777, 0o600, "{suffix}");
        }
    }
    assert_eq!(created.get(), 1);
}

#[test]
fn a_zero_length_file_is_a_new_database() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    fs::write(&path, "").expect("write");
    chmod(&path, 0o600);
    open_at(&path).expect("open");
}

#[test]
fn any_name_is_a_name_of_a_file() {
    let dir = directory();
    for name in ["a?mode=memory", "a%20b", "a b", "a#b", "gäte-数据库.db", ":memory:", "file:x.db", "-x", "a'b\"c"]
    {
        let path = dir.path().join(name);
        let pools = open_at(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file: String = {
            let conn = pools.reader().expect("reader");
            conn.sql().query_row("PRAGMA database_list", [], |row| row.get(2)).expect("list")
        };
        assert_eq!(Path::new(&file), pools.path());
        assert!(path.is_file(), "{name}");
    }
}

#[test]
fn a_symbolic_link_leads_to_the_real_file() {
    let dir = directory();
    let real = directory();
    let link = dir.path().join("gate.db");
    open_at(&real.path().join("real.db")).expect("open");
    std::os::unix::fs::symlink(real.path().join("real.db"), &link).expect("link");
    let pools = open_at(&link).expect("open");
    assert_eq!(pools.path(), real.path().canonicalize().expect("real").join("real.db"));
}

#[test]
fn what_is_no_database_is_refused_and_left_as_it_is() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    for bytes in [&b"short"[..], &[0x5A; 9_000]] {
        fs::write(&path, bytes).expect("write");
        chmod(&path, 0o600);
        let before = content(dir.path());
        assert!(refusal(&path).is_corrupt());
        assert_eq!(content(dir.path()), before);
    }
}

#[test]
fn another_applications_database_keeps_every_byte_and_its_journal_mode() {
    for setup in [
        "CREATE TABLE theirs (a)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 77; CREATE TABLE plans (a)",
        "PRAGMA journal_mode = WAL; CREATE TABLE theirs (a)",
    ] {
        let dir = directory();
        let path = dir.path().join("gate.db");
        sqlite(&path, setup);
        chmod(&path, 0o600);
        let before = content(dir.path());
        let error = refusal(&path);
        assert!(error.is_unsupported() && error.to_string().contains("another application"), "{setup}: {error}");
        let after = content(dir.path());
        let without_index = |files: Vec<(PathBuf, Vec<u8>)>| -> Vec<_> {
            // The log's index is memory that any reader of a WAL database makes, and an empty log comes with it.
            files.into_iter().filter(|(path, bytes)| !path.ends_with("gate.db-shm") && !bytes.is_empty()).collect()
        };
        assert_eq!(without_index(after), without_index(before), "{setup}");
    }
}

#[test]
fn the_log_of_another_application_is_not_moved_into_its_file() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    let theirs = Connection::open(&path).expect("open");
    theirs
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
        .expect("sql");
    theirs.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("config");
    drop(theirs);
    for name in ["gate.db", "gate.db-wal", "gate.db-shm"] {
        chmod(&dir.path().join(name), 0o600);
    }
    let before = (fs::read(&path).expect("read"), fs::read(dir.path().join("gate.db-wal")).expect("read"));
    assert!(!before.1.is_empty());
    assert!(refusal(&path).is_unsupported());
    let after = (fs::read(&path).expect("read"), fs::read(dir.path().join("gate.db-wal")).expect("read"));
    assert!(before == after);
}

#[test]
fn a_newer_schema_is_refused() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    open_at(&path).expect("open");
    sqlite(&path, "PRAGMA user_version = 99");
    let error = refusal(&path);
    assert!(error.is_unsupported() && error.to_string().contains("schema 99"), "{error}");
}

#[test]
fn a_planted_trigger_stops_the_open() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    open_at(&path).expect("open");
    sqlite(&path, "CREATE TRIGGER planted AFTER INSERT ON audit_events BEGIN SELECT 1; END");
    assert!(refusal(&path).to_string().contains("planted"));
}

#[test]
fn a_file_that_others_can_write_or_that_nobody_can_is_refused() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    open_at(&path).expect("open");
    for mode in [0o620, 0o602, 0o666, 0o400, 0o444] {
        chmod(&path, mode);
        let error = refusal(&path);
        assert!(error.is_unsupported() && error.to_string().contains("chmod 600"), "{mode:o}: {error}");
    }
    for mode in [0o600, 0o640, 0o644] {
        chmod(&path, mode);
        open_at(&path).unwrap_or_else(|error| panic!("{mode:o}: {error}"));
    }
}

#[test]
fn a_log_that_others_can_write_is_refused() {
    for suffix in ["-wal", "-shm", "-journal"] {
        let dir = directory();
        let path = dir.path().join("gate.db");
        let beside = fs_check::with_suffix(&path, suffix);
        fs::write(&beside, "").expect("write");
        chmod(&beside, 0o666);
        let error = refusal(&path);
        assert!(error.is_unsupported() && error.to_string().contains(suffix), "{error}");
    }
}

#[test]
fn another_users_file_is_refused() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    open_at(&path).expect("open");
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let error = refusal(&path);
    assert!(error.is_unsupported() && error.to_string().contains("belongs to user 12345"), "{error}");
}

#[test]
fn a_file_with_two_names_is_refused() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    open_at(&path).expect("open");
    fs::hard_link(&path, dir.path().join("second.db")).expect("link");
    let error = refusal(&path);
    assert!(error.is_unsupported() && error.to_string().contains("hard links"), "{error}");
}

#[test]
fn a_missing_directory_and_a_directory_are_told_apart() {
    let dir = directory();
    let missing = refusal(&dir.path().join("no/gate.db"));
    assert!(missing.is_storage() && missing.to_string().contains("does not exist"), "{missing}");
    let itself = refusal(dir.path());
    assert!(itself.is_unsupported() && itself.to_string().contains("is a directory"), "{itself}");
}

#[test]
fn a_reader_in_the_way_of_the_switch_to_wal_gives_busy_after_the_deadline() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    sqlite(&path, "VACUUM");
    chmod(&path, 0o600);
    let other = Connection::open(&path).expect("open");
    other.execute_batch("BEGIN EXCLUSIVE").expect("begin");
    let options = OpenOptions { busy_deadline: Duration::from_millis(80), ..options(&path) };
    let error = Pools::open(options, &|_| Ok(())).map(|_| ()).unwrap_err();
    assert!(error.waited().is_some_and(|waited| waited >= Duration::from_millis(80)), "{error}");
    other.execute_batch("ROLLBACK").expect("rollback");
    open_at(&path).expect("open");
}

#[test]
fn a_fork_of_a_process_that_has_the_file_open_is_refused() {
    let dir = directory();
    let path = dir.path().join("gate.db");
    let pools = open_at(&path).expect("open");
    open_at(&path).expect("the same process opens it as often as it likes");
    let me = std::process::id();
    let child = OpenFile::enter(me + 1, pools.file_id()).unwrap_err();
    assert!(child.is_forked(), "{child}");
    let id = pools.file_id();
    drop(pools);
    // Open in nobody: a fork may open it, and its entry is not this process's to remove.
    drop(OpenFile::enter(me + 1, id).expect("not open any more"));
    assert!(refusal(&path).is_forked());
    OPEN_FILES.lock().expect("list").retain(|(_, file)| *file != id);
    open_at(&path).expect("open");
}

#[test]
fn closing_the_last_gate_leaves_one_file() {
    let dir = directory();
    for n in 0..20 {
        let pools = open_at(&dir.path().join(format!("{n}.db"))).expect("open");
        pools.reader().expect("reader");
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(content(dir.path()).len(), 20);
}

#[test]
fn eight_threads_open_one_new_file() {
    for _ in 0..10 {
        let dir = directory();
        let path = dir.path().join("gate.db");
        let created = std::sync::atomic::AtomicUsize::new(0);
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let count = |_: &rusqlite::Connection| {
                        created.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        Ok(())
                    };
                    Pools::open(options(&path), &count).expect("open")
                });
            }
        });
        assert_eq!(created.into_inner(), 1);
    }
}

const CHILD: &str = "COUNTERSIGN_TEST_OPEN";

/// Not a test of its own: the children of the next one.
#[test]
fn child_that_opens() {
    if let Ok(path) = std::env::var(CHILD) {
        for n in 0..10 {
            open_at(&Path::new(&path).join(format!("{n}.db"))).expect("open");
        }
    }
}

#[test]
fn eight_processes_open_the_same_new_files() {
    let dir = directory();
    let me = std::env::current_exe().expect("the test binary");
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(&me)
                .args(["--exact", "store::open::tests::child_that_opens", "--nocapture"])
                .env(CHILD, dir.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("spawn")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("wait").success());
    }
}

#[test]
fn without_create_nothing_comes_into_being() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("gate.db");
    let options = || OpenOptions { create: false, ..options(&path) };
    let error = Pools::open(options(), &|_| Ok(())).map(drop).unwrap_err();
    assert!(error.is_storage() && error.to_string().contains("there is no database at"), "{error}");
    assert!(!path.exists());
    std::fs::write(&path, "").expect("an empty file");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("chmod");
    let error = Pools::open(options(), &|_| Ok(())).map(drop).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("is empty"), "{error}");
    assert_eq!(std::fs::metadata(&path).expect("still there").len(), 0);
    open_at(&path).expect("a host makes it");
    Pools::open(options(), &|_| Ok(())).map(drop).expect("then it opens");
}
