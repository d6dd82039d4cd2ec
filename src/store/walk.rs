//! What a walk over the whole file reads by.

use std::time::Instant;

use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator as _;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, OptionalExtension as _, Row, Rows};

use super::conn::Conn;
use super::queries as q;
use super::read::Reader;
use super::rows::{self, FullRow};
use super::{Store, map_sql};
use crate::error::Result;

/// The page cache of a walk. Approvals, and rows that do not stand where they are expected, are looked up by random
/// tokens: SQLite's own 2 MB hold the indexes of some ten thousand plans, and past that each lookup would read a page of
/// the file.
pub(super) const WALK_CACHE_KIB: i64 = -4 * 1024;

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

/// How far a walk is in a table that it reads beside the chain, and how many of its rows it met there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    after: i64,
    pub(super) met: u64,
}

impl Place {
    pub(super) const START: Self = Self { after: i64::MIN, met: 0 };
}

/// `plans` by rowid stand in the order in which the chain begins them, `tombstones` in the order in which it ends them:
/// the walk meets most rows as the next of their table, which costs a third of a lookup by token. Where another row is
/// next, or none (purged, or somebody wrote past the gate), the lookup answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) plans: Place,
    pub(super) tombstones: Place,
}

/// The statements of [`Lookups`] that are read from end to end.
pub(super) struct Scans<'r> {
    plans: CachedStatement<'r>,
    tombstones: CachedStatement<'r>,
}

impl<'r> Scans<'r> {
    pub(super) fn new(reader: &'r Reader<'_>) -> Result<Self> {
        let prepare = |statement| map_sql(reader.sql.prepare_cached(statement), reader.started);
        Ok(Self { plans: prepare(q::PLANS_VERIFIED_AFTER)?, tombstones: prepare(q::TOMBSTONES_VERIFIED_AFTER)? })
    }
}

/// A table, row by row. Its statement ends in the rowid.
struct Ordered<'s> {
    rows: Rows<'s>,
    /// The column of the token.
    token: usize,
    place: Place,
    /// The row that stands there has not been met.
    waiting: bool,
    started: Instant,
}

impl<'s> Ordered<'s> {
    fn new(statement: &'s mut CachedStatement<'_>, token: &str, place: Place, started: Instant) -> Result<Self> {
        let rows = statement.column_index(token).and_then(|at| Ok((at, statement.query([place.after])?)));
        let (token, rows) = map_sql(rows, started)?;
        Ok(Self { rows, token, place, waiting: false, started })
    }

    /// The next row, if it is that plan's.
    fn meet<T>(&mut self, token: &str, read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>) -> Result<Option<T>> {
        let met = || {
            if !self.waiting {
                self.rows.advance()?;
                self.waiting = true;
            }
            let Some(row) = self.rows.get() else { return Ok(None) };
            if row.get_ref(self.token)? != ValueRef::Text(token.as_bytes()) {
                return Ok(None);
            }
            let value = read(row)?;
            self.place = Place { after: row.get(row.as_ref().column_count() - 1)?, met: self.place.met + 1 };
            self.waiting = false;
            Ok(Some(value))
        };
        map_sql(met(), self.started)
    }
}

/// What the walk asks about the plans of one piece. The statements are prepared once a piece: finding them by their text
/// each time costs as much as running them.
pub(super) struct Lookups<'s> {
    next_plan: Ordered<'s>,
    next_tombstone: Ordered<'s>,
    tombstone: CachedStatement<'s>,
    row: CachedStatement<'s>,
    approvals: CachedStatement<'s>,
    started: Instant,
}

impl<'s> Lookups<'s> {
    pub(super) fn new(reader: &'s Reader<'_>, scans: &'s mut Scans<'_>, places: Places) -> Result<Self> {
        let prepare = |statement| map_sql(reader.sql.prepare_cached(statement), reader.started);
        Ok(Self {
            next_plan: Ordered::new(&mut scans.plans, "plan_token", places.plans, reader.started)?,
            next_tombstone: Ordered::new(&mut scans.tombstones, "plan_token", places.tombstones, reader.started)?,
            tombstone: prepare(q::TOMBSTONE_VERIFIED)?,
            row: prepare(q::PLAN_UNCOUNTED)?,
            approvals: prepare(q::APPROVALS_VERIFIED)?,
            started: reader.started,
        })
    }

    pub(super) fn places(&self) -> Places {
        Places { plans: self.next_plan.place, tombstones: self.next_tombstone.place }
    }

    /// The plan's row, if it is the next one. One that cannot be read is left to [`row`](Self::row).
    pub(super) fn meet_plan(&mut self, token: &str) -> Result<Option<FullRow>> {
        Ok(self.next_plan.meet(token, FullRow::read)?.and_then(Result::ok))
    }

    /// True when the plan's tombstone is the next one, and says this.
    pub(super) fn meets_tombstone(&mut self, token: &str, said: rows::BuriedRef<'_>) -> Result<bool> {
        Ok(self.next_tombstone.meet(token, |row| Ok(rows::buried(row)? == said))? == Some(true))
    }

    pub(super) fn tombstone(&mut self, token: &str) -> Result<Option<rows::Buried>> {
        map_sql(self.tombstone.query_row([token], rows::tombstone_verified).optional(), self.started)
    }

    pub(super) fn row(&mut self, token: &str) -> Result<Option<FullRow>> {
        map_sql(self.row.query_row([token], |row: &Row<'_>| FullRow::read(row)).optional(), self.started)?.transpose()
    }

    /// True when these approvals, all of that seal, stand, and no other.
    pub(super) fn are_approved(&mut self, token: &str, given: &[(String, String, i64)], seal: &str) -> Result<bool> {
        let mut same = || {
            let mut rows = self.approvals.query([token])?;
            let mut standing = 0;
            while let Some(row) = rows.next()? {
                let (reviewer, its_seal, channel, at) = rows::approval(row)?;
                let is_given =
                    |(by, through, then): &(String, String, i64)| *then == at && by == reviewer && through == channel;
                if its_seal != seal || !given.iter().any(is_given) {
                    return Ok(false);
                }
                standing += 1;
            }
            // A reviewer has one row a plan, so no two rows were found in one place.
            Ok(standing == given.len())
        };
        map_sql(same(), self.started)
    }
}
