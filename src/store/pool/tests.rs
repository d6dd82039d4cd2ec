//! Who gets a connection, in what state, and how long it waits.

use super::super::open::verify_settings;
use super::*;

fn open_with(path: &Path, busy_deadline: Duration, readers: u32) -> Pools {
    let options = OpenOptions {
        path: path.to_owned(),
        busy_deadline,
        readers,
        any_file_system: true,
        create: true,
        hooks: ConnHooks::default(),
    };
    Pools::open(options, &|_| Ok(())).expect("open")
}

fn opened(busy_deadline: Duration) -> (tempfile::TempDir, Pools) {
    let dir = tempfile::tempdir().expect("a directory");
    let pools = open_with(&dir.path().join("gate.db"), busy_deadline, 1);
    (dir, pools)
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(60);

#[test]
fn every_connection_of_both_pools_has_its_settings() {
    let (_dir, pools) = opened(LONG);
    let now = Instant::now();
    let (writer, reader) = (pools.writer(now).expect("writer"), pools.reader().expect("reader"));
    let (writer, reader): (&Conn, &Conn) = (&writer, &reader);
    for (conn, role) in [(writer, Role::Writer), (reader, Role::Reader)] {
        verify_settings(conn.sql(), role, now).expect("settings");
        let one = |sql: &str| conn.sql().query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number");
        assert_eq!(one("PRAGMA synchronous"), 2);
        assert_eq!(one("PRAGMA foreign_keys"), 1);
        assert_eq!(one("PRAGMA journal_size_limit"), 67_108_864);
        let mode: String = conn.sql().query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("mode");
        assert_eq!(mode, "wal");
    }
}

#[test]
fn a_writer_thrown_away_is_replaced_by_one_with_the_same_settings() {
    let (_dir, pools) = opened(LONG);
    pools.writer(Instant::now()).expect("writer").mark_broken();
    let conn = pools.writer(Instant::now()).expect("another");
    verify_settings(conn.sql(), Role::Writer, Instant::now()).expect("settings");
}

#[test]
fn a_reader_refuses_to_write() {
    let (_dir, pools) = opened(LONG);
    let conn = pools.reader().expect("reader");
    assert!(conn.sql().execute_batch("DELETE FROM instances").is_err());
}

#[test]
fn a_leaked_begin_is_never_handed_on() {
    let (dir, pools) = opened(LONG);
    for begin in ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"] {
        let conn = pools.writer(Instant::now()).expect("writer");
        conn.sql().execute_batch("CREATE TEMP TABLE mark (a)").expect("mark");
        conn.sql().execute_batch(begin).expect("begin");
        drop(conn);
        let next = pools.writer(Instant::now()).expect("another");
        assert!(next.sql().is_autocommit());
        assert!(next.sql().prepare("SELECT * FROM temp.mark").is_err(), "it is another connection");
        next.begin_immediate(Instant::now()).expect("nothing holds the lock");
    }
    let other = open_with(&dir.path().join("gate.db"), SHORT, 1);
    other.writer(Instant::now()).expect("writer").begin_immediate(Instant::now()).expect("nor across processes");
}

#[test]
fn a_transaction_that_is_dropped_by_a_panic_is_rolled_back() {
    let (_dir, pools) = opened(LONG);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let conn = pools.writer(Instant::now()).expect("writer");
        let transaction = conn.begin_immediate(Instant::now()).expect("begin");
        transaction.execute_batch("CREATE TABLE half (a)").expect("sql");
        panic!("host code");
    }));
    assert!(panicked.is_err());
    let conn = pools.writer(Instant::now()).expect("writer");
    assert!(conn.sql().is_autocommit());
    assert!(conn.sql().prepare("SELECT * FROM half").is_err());
}

#[test]
fn there_is_one_writer_and_whoever_waits_for_it_is_told_how_long() {
    let (_dir, pools) = opened(SHORT);
    let held = pools.writer(Instant::now()).expect("writer");
    let error = pools.writer(Instant::now()).map(drop).unwrap_err();
    assert!(error.waited().is_some_and(|waited| waited >= SHORT), "{error}");
    drop(held);
    pools.writer(Instant::now()).expect("free again");
}

#[test]
fn time_spent_before_counts_against_the_deadline() {
    let (_dir, pools) = opened(LONG);
    let _held = pools.writer(Instant::now()).expect("writer");
    let long_ago = Instant::now().checked_sub(LONG).expect("the machine runs that long");
    let before = Instant::now();
    assert!(pools.writer(long_ago).map(drop).unwrap_err().is_busy());
    assert!(before.elapsed() < LONG / 2);
}

#[test]
fn a_lock_held_elsewhere_gives_busy_after_the_deadline() {
    let (dir, pools) = opened(LONG);
    let other = open_with(&dir.path().join("gate.db"), SHORT, 1);
    let holder = pools.writer(Instant::now()).expect("writer");
    let held = holder.begin_immediate(Instant::now()).expect("begin");
    let conn = other.writer(Instant::now()).expect("writer");
    let started = Instant::now();
    let error = conn.begin_immediate(started).map(drop).unwrap_err();
    assert!(error.waited().is_some_and(|waited| waited >= SHORT), "{error}");
    assert!(started.elapsed() < LONG);
    drop(held);
    conn.begin_immediate(Instant::now()).expect("free again");
}

#[test]
fn without_patience_a_connection_that_nobody_holds_is_still_opened() {
    let (dir, pools) = opened(Duration::ZERO);
    let held = pools.reader().expect("opened on demand");
    assert!(pools.reader().map(drop).unwrap_err().is_busy(), "somebody holds it");
    drop(held);
    let other = open_with(&dir.path().join("gate.db"), LONG, 1);
    let writer = other.writer(Instant::now()).expect("writer");
    let lock = writer.begin_immediate(Instant::now()).expect("begin");
    let mine = pools.writer(Instant::now()).expect("writer");
    assert!(mine.begin_immediate(Instant::now()).map(drop).unwrap_err().is_busy(), "somebody holds the lock");
    drop(lock);
    mine.begin_immediate(Instant::now()).expect("nobody waits");
}

#[test]
fn a_read_transaction_sees_one_state() {
    let (_dir, pools) = opened(LONG);
    let count = |conn: &Connection| -> i64 {
        conn.query_row("SELECT count(*) FROM instances", [], |row| row.get(0)).expect("count")
    };
    let reader = pools.reader().expect("reader");
    let snapshot = reader.begin_read().expect("read");
    let writer = pools.writer(Instant::now()).expect("writer");
    writer.sql().execute_batch("INSERT INTO instances VALUES ('i', 1, 1, 'b', 'h', 1, 1)").expect("insert");
    assert_eq!(count(&snapshot), 0);
    drop(snapshot);
    assert_eq!(count(reader.sql()), 1);
}

#[test]
fn a_file_that_was_deleted_or_replaced_is_moved_and_no_new_connection_goes_to_it() {
    let (dir, pools) = opened(Duration::from_secs(2));
    let path = dir.path().join("gate.db");
    let second = dir.path().join("second.db");
    drop(open_with(&second, LONG, 1));
    pools.stat().expect("there");
    std::fs::rename(&second, &path).expect("replace");
    assert_ne!(pools.stat().expect("another").id(), pools.file_id());
    pools.writer(Instant::now()).expect("writer").mark_broken();
    let error = pools.writer(Instant::now()).map(drop).unwrap_err();
    assert!(error.is_moved(), "{error}");
    std::fs::remove_file(&path).expect("delete");
    assert!(pools.stat().unwrap_err().is_moved());
}

#[test]
fn waiting_threads_get_a_new_connection_after_a_broken_one() {
    let (_dir, pools) = opened(LONG);
    let mut held = pools.reader().expect("reader");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pools.reader().map(drop));
        std::thread::sleep(Duration::from_millis(20));
        held.mark_broken();
        drop(held);
        waiting.join().expect("no panic").expect("a reader");
    });
}

#[test]
fn a_pool_without_readers_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = OpenOptions {
        path: dir.path().join("gate.db"),
        busy_deadline: LONG,
        readers: 0,
        any_file_system: true,
        create: true,
        hooks: ConnHooks::default(),
    };
    assert!(Pools::open(options, &|_| Ok(())).map(drop).unwrap_err().is_invalid_input());
}

/// A reader whose opening takes its time, and nobody waits for it: the end of the gate comes while it is being opened.
#[cfg(feature = "test-hooks")]
#[test]
fn the_end_of_a_gate_is_the_end_of_a_connection_that_is_being_opened() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("gate.db");
    drop(open_with(&path, LONG, 1));
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500000) SELECT sum(i) FROM n";
    let options = OpenOptions {
        path: path.clone(),
        busy_deadline: Duration::from_millis(100),
        readers: 1,
        any_file_system: true,
        create: false,
        hooks: ConnHooks { sql: vec![slow.to_owned()] },
    };
    let pools = Pools::open(options, &|_| Ok(())).expect("open");
    let (_, reader) = pools.pools.as_ref().expect("open");
    assert!(reader.pool.get_timeout(Duration::from_millis(100)).is_err(), "nobody waits for it");
    drop(pools);
    for suffix in ["-wal", "-shm"] {
        assert!(!fs_check::with_suffix(&path, suffix).exists(), "{suffix} is left: a connection is still open");
    }
}
