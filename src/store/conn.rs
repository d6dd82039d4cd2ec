//! One connection, as the pools lend it.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::busy;
use super::checkpoint::Checkpoints;
use super::connections::Counted;
use super::sql_error::sql_error;
use super::transaction::Transaction;
use crate::error::Result;

/// A connection of a pool.
pub(crate) struct Conn {
    sql: Connection,
    busy_deadline: Duration,
    checkpoints: Checkpoints,
    broken: bool,
    /// Dropped last: until the connection is closed it counts.
    _counted: Counted,
}

impl Conn {
    pub(super) fn new(sql: Connection, busy_deadline: Duration, counted: Counted) -> Self {
        Self { sql, busy_deadline, checkpoints: Checkpoints::default(), broken: false, _counted: counted }
    }

    /// For statements outside a transaction: each waits for locks at most until the deadline of the verb that checked
    /// this connection out, or a deadline of its own when that one is over.
    pub(crate) fn sql(&self) -> &Connection {
        busy::arm_if_past(self.busy_deadline);
        &self.sql
    }

    /// BEGIN IMMEDIATE: takes the write lock now, so that nothing read inside can be stale. Dropped, it rolls back.
    pub(crate) fn begin_immediate(&self, started: Instant) -> Result<Transaction<'_>> {
        busy::arm(busy::deadline(started, self.busy_deadline));
        Transaction::immediate(&self.sql).map_err(|e| sql_error(e, started))
    }

    /// A read transaction: all of its statements see the state of this moment. It must end before host code runs,
    /// because the log cannot be reset beneath it.
    pub(crate) fn begin_read(&self) -> Result<Transaction<'_>> {
        let started = Instant::now();
        busy::arm(busy::deadline(started, self.busy_deadline));
        Transaction::snapshot(&self.sql).map_err(|e| sql_error(e, started))
    }

    /// To be called after a commit. A checkpoint that fails changes no answer: what was committed stands in the log.
    pub(crate) fn checkpoint(&mut self) {
        if let Err(error) = self.checkpoints.after_commit(&self.sql) {
            crate::report::problem(&format!("the write-ahead log cannot be folded into the database: {error}"));
        }
    }

    /// The pool closes this connection when it comes back: after a COMMIT that failed on I/O its page cache may show a
    /// state that the disk does not hold.
    pub(crate) fn mark_broken(&mut self) {
        self.broken = true;
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken || !self.sql.is_autocommit()
    }
}
