//! One open transaction of a connection. Its BEGIN and COMMIT are kept prepared like every other statement.

use std::ops::Deref;

use rusqlite::Connection;

/// Rolls back when it is dropped, unless it was committed.
pub(crate) struct Transaction<'c> {
    sql: &'c Connection,
}

impl<'c> Transaction<'c> {
    /// Takes the write lock now, so that nothing read inside can be stale.
    pub(super) fn immediate(sql: &'c Connection) -> rusqlite::Result<Self> {
        run(sql, "BEGIN IMMEDIATE")?;
        Ok(Self { sql })
    }

    /// All of its statements see the state of this moment: BEGIN alone takes no snapshot, the first read does.
    pub(super) fn snapshot(sql: &'c Connection) -> rusqlite::Result<Self> {
        run(sql, "BEGIN")?;
        let this = Self { sql };
        sql.prepare_cached("SELECT 1 FROM sqlite_schema LIMIT 1")?.exists([])?;
        Ok(this)
    }

    /// Where it fails the transaction is rolled back, as far as SQLite has not done so.
    pub(super) fn commit(self) -> rusqlite::Result<()> {
        run(self.sql, "COMMIT")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SQLite ends a transaction by itself after some errors, and a commit has ended it.
        if !self.sql.is_autocommit() {
            // The first error is the one that counts; a connection that is still inside is closed by its pool.
            let _ = run(self.sql, "ROLLBACK");
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.sql
    }
}

fn run(sql: &Connection, statement: &str) -> rusqlite::Result<()> {
    sql.prepare_cached(statement)?.execute([]).map(drop)
}
