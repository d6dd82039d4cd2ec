//! When the write-ahead log is folded into the file and begun anew.
//!
//! SQLite's own rule asks for a checkpoint at every commit past 1,000 pages. With several writers it never gets the whole
//! log: while it copies, the next one commits; so the log is not begun anew, and from then on every commit pays for a
//! checkpoint, two more syncs, and the log grows (bare SQLite with 8 processes fell to 0.4 of one process's rate). Here
//! the copying is the same, then the rest is copied and the log begun anew under the write lock.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::busy;

/// SQLite's own threshold: about 4 MiB of log.
const PAGES: i32 = 1_000;

/// How long the others may be kept waiting because somebody still reads an older part of the log.
const PATIENCE: Duration = Duration::from_millis(20);

/// When an attempt that was in vain is repeated, unless the log doubles before.
const PAUSE: Duration = Duration::from_secs(1);

thread_local! {
    /// SQLite calls the hook on the thread that commits, and rusqlite's hook carries no state of its own.
    static LOG_PAGES: Cell<i32> = const { Cell::new(0) };
}

/// Takes the place of SQLite's own rule on this connection.
pub(super) fn install(connection: &Connection) {
    connection.wal_hook(Some(|_, pages| {
        LOG_PAGES.set(pages);
        // An error would be the answer of a COMMIT that has happened.
        Ok(())
    }));
}

/// When one connection does the next one.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// The last one was in vain: the next one at this length of the log, or at this time.
    again: Option<(i32, Instant)>,
}

impl Checkpoints {
    /// To be called after a commit of that connection, on its thread.
    pub(super) fn after_commit(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let pages = LOG_PAGES.replace(0);
        if pages < PAGES {
            self.again = None;
            return Ok(());
        }
        if self.again.is_some_and(|(length, time)| pages < length && Instant::now() < time) {
            return Ok(());
        }
        // Whoever reads holds the log, whoever copies it shuts the others out, and to try at each commit would cost more
        // than a log that grows.
        self.again = Some((pages.saturating_mul(2), Instant::now() + PAUSE));
        // Most of it, while the others go on.
        checkpoint(connection, "PASSIVE")?;
        busy::arm(busy::deadline(Instant::now(), PATIENCE));
        if checkpoint(connection, "RESTART")? {
            self.again = None;
        }
        Ok(())
    }
}

/// True when nothing stood in its way.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?
        .query_row([], |row| row.get::<_, i64>(0).map(|busy| busy == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> Connection {
        let connection = Connection::open(path).expect("opens");
        busy::install(&connection).expect("a handler");
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).expect("a mode");
        assert_eq!(mode, "wal");
        install(&connection);
        connection
    }

    /// Commits about so many pages; the length of the log after it.
    fn commit(connection: &Connection, pages: i32) -> i32 {
        let blob = vec![0_u8; usize::try_from(pages).expect("a size") * 4096];
        connection.execute("INSERT INTO t VALUES (?1)", [blob]).expect("committed");
        LOG_PAGES.get()
    }

    #[test]
    fn past_the_threshold_the_log_begins_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let connection = opened(&directory.path().join("gate.db"));
        connection.execute_batch("CREATE TABLE t (x)").expect("a table");
        let mut checkpoints = Checkpoints::default();
        assert!(commit(&connection, 500) < PAGES);
        checkpoints.after_commit(&connection).expect("not yet");
        assert!(commit(&connection, 600) >= PAGES, "SQLite's own rule is off");
        checkpoints.after_commit(&connection).expect("done");
        assert!(checkpoints.again.is_none());
        assert!(commit(&connection, 1) < 10);
    }

    #[test]
    fn a_reader_holds_the_log_and_nobody_waits_for_it_at_each_commit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("gate.db");
        let connection = opened(&path);
        connection.execute_batch("CREATE TABLE t (x)").expect("a table");
        let reader = opened(&path);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").expect("a snapshot");
        let mut checkpoints = Checkpoints::default();
        let pages = commit(&connection, 1_100);
        checkpoints.after_commit(&connection).expect("in vain is no error");
        let (length, time) = checkpoints.again.expect("in vain");
        assert_eq!(length, 2 * pages);

        // Neither twice as long nor a second later: nothing is tried.
        commit(&connection, 1);
        checkpoints.again = Some((length, time + PAUSE));
        checkpoints.after_commit(&connection).expect("nothing");
        assert_eq!(checkpoints.again, Some((length, time + PAUSE)));

        reader.execute_batch("COMMIT").expect("the reader leaves");
        assert!(commit(&connection, 1_200) >= length);
        checkpoints.after_commit(&connection).expect("done");
        assert!(checkpoints.again.is_none());
        assert!(commit(&connection, 1) < 10);
    }
}
