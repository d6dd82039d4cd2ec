//! What a walk over the whole file reads by.

use std::time::Instant;

use rusqlite::{CachedStatement, OptionalExtension as _, Row};

use super::pool::Conn;
use super::queries as q;
use super::read::Reader;
use super::rows::{self, FullRow};
use super::{Store, map_sql};
use crate::error::Result;

/// The page cache of a walk. It looks every plan up by its random token: SQLite's own 2 MB hold the indexes of some ten
/// thousand plans, and past that the walk would read a page of the file for each lookup.
pub(super) const WALK_CACHE_KIB: i64 = -16 * 1024;

/// See [`Store::walker`].
pub(crate) struct Walker<'s> {
    store: &'s Store,
    conn: Conn,
}

impl Walker<'_> {
    pub(crate) fn read<T>(&mut self, f: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.store.check_process()?;
        let started = Instant::now();
        let tx = self.conn.begin_read()?;
        f(&Reader { sql: &tx, now: self.store.now(), started })
    }
}

impl Store {
    /// A reader of its own for a walk over the whole file: each read is a snapshot of its own, as with [`Store::read`],
    /// and its page cache goes with it.
    pub(crate) fn walker(&self) -> Result<Walker<'_>> {
        self.check_process()?;
        let conn = self.pools.dedicated(self.pools.busy_deadline())?;
        map_sql(conn.sql().pragma_update(None, "cache_size", WALK_CACHE_KIB), Instant::now())?;
        Ok(Walker { store: self, conn })
    }
}

/// The statements that the walk asks for every plan that ended, prepared once a piece: finding them by their text each
/// time costs as much as running them.
pub(super) struct Lookups<'r> {
    tombstone: CachedStatement<'r>,
    row: CachedStatement<'r>,
    approvals: CachedStatement<'r>,
    started: Instant,
}

impl<'r> Lookups<'r> {
    pub(super) fn new(reader: &'r Reader<'_>) -> Result<Self> {
        let prepare = |statement| map_sql(reader.sql.prepare_cached(statement), reader.started);
        Ok(Self {
            tombstone: prepare(q::TOMBSTONE_VERIFIED)?,
            row: prepare(q::PLAN_VERIFIED)?,
            approvals: prepare(q::APPROVALS_VERIFIED)?,
            started: reader.started,
        })
    }

    pub(super) fn tombstone(&mut self, token: &str) -> Result<Option<rows::Buried>> {
        map_sql(self.tombstone.query_row([token], rows::tombstone_verified).optional(), self.started)
    }

    pub(super) fn row(&mut self, token: &str) -> Result<Option<FullRow>> {
        map_sql(self.row.query_row([token], |row: &Row<'_>| FullRow::read(row)).optional(), self.started)?.transpose()
    }

    pub(super) fn approvals(&mut self, token: &str) -> Result<Vec<rows::Approved>> {
        let found = self.approvals.query_map([token], rows::approval).and_then(Iterator::collect);
        map_sql(found, self.started)
    }
}
