//! The store: one SQLite file, opened, locked and written as sqlite.md measured it.
//!
//! # Locking
//! Every transaction that may write is `BEGIN IMMEDIATE`. In one process all writers queue for the one writer
//! connection; between processes SQLite's lock decides, polled with a deadline. No read is held open across host code.
//!
//! # Crash
//! A transition, its audit rows and its tombstone are one transaction: a kill at any instruction leaves either all of
//! them or none.
//!
//! # Compatibility
//! Schema changes are new files in `migrations/`; a file with a newer schema than this version knows is refused.

mod audit_index;
mod backup;
mod busy;
mod checkpoint;
mod conn;
mod connections;
pub(crate) mod doctor;
mod fs_check;
mod head_file;
pub(crate) mod open;
pub(crate) mod pool;
mod queries;
mod queue;
pub(crate) mod read;
pub(crate) mod rows;
mod schema;
mod sql_error;
pub(crate) mod transaction;
pub(crate) mod transition;
pub(crate) mod tx;
pub(crate) mod verify;
mod walk;
mod watch;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crate::audit::{AuditEvent, AuditSink};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::failpoint::hit;
use crate::names::{Actor, Channel};
use crate::refusal::RefusalCode;
use conn::Conn;
use fs_check::FileStat;
use head_file::HeadFile;
use pool::{OpenOptions, Pools};
use read::Reader;
use sql_error::sql_error;
use transaction::Transaction;
use tx::{Draft, No, Seen, Tx};
use watch::Watch;

pub(crate) use watch::Subscription;

/// The open file, with what a gate remembers of it.
pub(crate) struct Store {
    /// Dropped first: its connection is closed while the file still counts as open.
    watch: Watch,
    pools: Pools,
    clock: Arc<dyn Clock>,
    instance_id: String,
    /// The newest audit head that this gate saw.
    seen: Mutex<Option<Seen>>,
    sink: Option<Arc<dyn AuditSink>>,
    outbox: Mutex<Outbox>,
    opened_by: u32,
    /// The main file's size and time of change when it was last looked at before a claim.
    looked_at: Mutex<Option<FileStat>>,
    head_file: OnceLock<HeadFile>,
    /// The file was a copy that `backup` made, not accepted, when this gate opened it.
    unaccepted_backup: AtomicBool,
}

/// Whether the remembered head is asked for.
#[derive(Clone, Copy)]
enum Guard {
    Check,
    Accept,
}

/// What a committed transaction answers, and its audit rows.
type Committed<T> = (Result<T, No>, Vec<AuditEvent>);

/// Committed events on their way to the sink, in order.
struct Outbox {
    events: VecDeque<AuditEvent>,
    delivering: bool,
}

/// Locks a mutex whose data is whole after each statement, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub(crate) fn open(
        options: OpenOptions,
        clock: Arc<dyn Clock>,
        instance_id: String,
        sink: Option<Arc<dyn AuditSink>>,
    ) -> Result<Self> {
        let store_id = crate::names::random_hex::<16>()?;
        let now = clock.now_ms();
        let actor = Actor { name: "countersign".to_owned(), channel: Channel::library() };
        let first = RefCell::new(Vec::new());
        let created = |sql: &rusqlite::Connection| {
            let mut tx = Tx::begin(sql, now, &instance_id, &actor, Instant::now())?;
            tx.audit(Draft { detail: Some(store_id.clone()), ..Draft::new("store_created") })?;
            *first.borrow_mut() = tx.finish().1;
            Ok(())
        };
        let pools = Pools::open(options, &created)?;
        let first = first.into_inner();
        crate::report::events(&first);
        let events = if sink.is_some() { first.into() } else { VecDeque::new() };
        Ok(Self {
            watch: Watch::new(clock.clone()),
            pools,
            clock,
            instance_id,
            seen: Mutex::new(None),
            sink,
            outbox: Mutex::new(Outbox { events, delivering: false }),
            opened_by: std::process::id(),
            looked_at: Mutex::new(None),
            head_file: OnceLock::new(),
            unaccepted_backup: AtomicBool::new(false),
        })
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now_ms()
    }

    pub(crate) fn is_own_process(&self) -> bool {
        self.opened_by == std::process::id()
    }

    /// A fork shares the parent's connections and must not touch them.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_own_process() { Ok(()) } else { Err(Error::forked(self.opened_by, std::process::id())) }
    }

    /// Remembers the newest head: the file's own, unless the head file names one that the file does not carry. Then that
    /// one is remembered, and every writing verb finds that the file was put back.
    pub(crate) fn remember_head(&self, directory: &Path) -> Result<()> {
        let (store_id, backup) = self.read(|reader| Ok((reader.audit_head()?.store_id, reader.is_backup()?)))?;
        self.unaccepted_backup.store(backup, Ordering::Release);
        let file = HeadFile::open(directory, store_id);
        // Read before the database: what another process commits in between is in the newer snapshot.
        let said = file.read();
        let seen = self.read(|reader| {
            let head = reader.head()?;
            let stands = match &said {
                None => true,
                Some(said) => reader.audit_hash_at(said.seq)?.is_some_and(|hash| hash == said.hash),
            };
            Ok(if stands { head } else { said.clone() })
        })?;
        // A new file, or one that came without its head: from now on there is one to miss.
        if let (None, Some(head), false) = (&said, &seen, backup) {
            file.write(head.seq, &head.hash, true);
        }
        *lock(&self.seen) = seen;
        // Set once, by the opening of the gate.
        let _ = self.head_file.set(file);
        Ok(())
    }

    /// Reads a snapshot. `f` is this crate's code and never the host's.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.check_process()?;
        let started = Instant::now();
        let conn = self.pools.reader()?;
        let tx = conn.begin_read()?;
        f(&Reader { sql: &tx, now: self.now(), started })
    }

    /// Runs one transaction of `actor`. A refusal is written as its `refused` row and committed; an error rolls
    /// everything back. The first error is the answer, whatever a rollback says after it.
    pub(crate) fn write<T>(&self, actor: &Actor, f: impl FnOnce(&mut Tx<'_>) -> Result<Result<T, No>>) -> Result<T> {
        self.check_process()?;
        let started = Instant::now();
        let mut conn = self.pools.writer(started)?;
        let answer = self.write_on(&mut conn, actor, started, Guard::Check, f);
        drop(conn);
        if answer.as_ref().is_err_and(Error::is_ambiguous) {
            self.barrier();
        }
        self.answer(answer, Guard::Check)
    }

    /// As `write`, by an operator who accepts that the file was put back: the remembered head is not asked for.
    pub(crate) fn write_accepting<T>(
        &self,
        actor: &Actor,
        f: impl FnOnce(&mut Tx<'_>, bool) -> Result<Result<T, No>>,
    ) -> Result<T> {
        self.check_process()?;
        let started = Instant::now();
        let mut conn = self.pools.writer(started)?;
        let seen = lock(&self.seen).clone();
        let answer = self.write_on(&mut conn, actor, started, Guard::Accept, |tx| {
            let backup = tx.is_backup()?;
            let rolled_back = match tx.check_not_rolled_back(seen.as_ref()) {
                Ok(()) => backup,
                Err(error) if error.is_rolled_back() => true,
                Err(error) => return Err(error),
            };
            if backup {
                tx.unmark_backup()?;
            }
            f(tx, rolled_back)
        });
        drop(conn);
        if answer.is_ok() {
            self.unaccepted_backup.store(false, Ordering::Release);
        }
        if answer.as_ref().is_err_and(Error::is_ambiguous) {
            self.barrier();
        }
        self.answer(answer, Guard::Accept)
    }

    /// Takes the write lock. Where the main file changed since the last look (a checkpoint, or a copy put over it), the
    /// page cache goes before anything is read: the head, and what is written beside it, then come from the file and not
    /// from memory.
    fn begin<'c>(&self, conn: &'c Conn, started: Instant) -> Result<Transaction<'c>> {
        let sql = conn.begin_immediate(started)?;
        // Waiting for the lock may have taken long, so the look comes after it.
        let stat = self.same_file()?;
        if *lock(&self.looked_at) == Some(stat) {
            return Ok(sql);
        }
        // A page that a transaction uses stays in the cache.
        drop(sql);
        map_sql(conn.sql().execute_batch("PRAGMA shrink_memory"), started)?;
        // Only now: while the cache may hold pages of before, every write looks again.
        *lock(&self.looked_at) = Some(stat);
        let sql = conn.begin_immediate(started)?;
        self.same_file()?;
        Ok(sql)
    }

    /// The file must still be the one that was opened: on a deleted one every write still answers that it is done.
    fn same_file(&self) -> Result<FileStat> {
        let stat = self.pools.stat()?;
        if stat.id() == self.pools.file_id() { Ok(stat) } else { Err(Error::moved("another file stands at its path")) }
    }

    /// After a commit that failed on I/O this process does not see its frames, and whoever recovers the log after a kill
    /// may: one more commit takes their place, and from then on what is read is what stands. Best effort: where it fails
    /// too, the next writing verb does the same.
    fn barrier(&self) {
        let written = self.pools.writer(Instant::now()).and_then(|mut conn| {
            let actor = Actor { name: "countersign".to_owned(), channel: Channel::library() };
            self.write_on(&mut conn, &actor, Instant::now(), Guard::Check, |tx| Ok(Ok(tx.touch()?)))
        });
        if let Err(error) = written {
            crate::report::problem(&format!("after a failed commit the database still cannot be written: {error}"));
        }
    }

    fn write_on<T>(
        &self,
        conn: &mut Conn,
        actor: &Actor,
        started: Instant,
        guard: Guard,
        f: impl FnOnce(&mut Tx<'_>) -> Result<Result<T, No>>,
    ) -> Result<Committed<T>> {
        let outcome = self.transact(conn, actor, started, guard, f);
        if let Err(error) = &outcome
            && (error.is_ambiguous() || error.is_storage())
        {
            conn.mark_broken();
        }
        if outcome.is_ok() {
            conn.checkpoint();
        }
        // The writer is still held: events enter the outbox in the order of their commits.
        if let (Ok((_, events)), Some(_)) = (&outcome, &self.sink) {
            lock(&self.outbox).events.extend(events.iter().cloned());
        }
        outcome
    }

    /// Tells of what was committed, after the writer was given back: what is told may take its time.
    fn answer<T>(&self, done: Result<Committed<T>>, guard: Guard) -> Result<T> {
        let (answer, events) = done?;
        if let Some(head) = events.last() {
            if let Some(file) = self.head_file.get() {
                file.write(head.seq, &head.hash, matches!(guard, Guard::Accept));
            }
            self.watch.committed();
            crate::report::events(&events);
        }
        answer.map_err(|no| Error::refused(no.refusal))
    }

    /// A place among those who are woken when the plan changes or its time is over, or at the deadline; without a plan,
    /// on every change. Subscribe first, then read.
    pub(crate) fn subscribe(
        &self,
        token: Option<&str>,
        expires_at: Option<i64>,
        deadline: Option<Instant>,
    ) -> Result<Subscription> {
        self.check_process()?;
        self.watch.subscribe(&self.pools, token, expires_at, deadline)
    }

    /// Wakes everybody who waits; nobody waits on a closed gate.
    pub(crate) fn stop_waiting(&self) {
        self.watch.close();
    }

    fn transact<T>(
        &self,
        conn: &Conn,
        actor: &Actor,
        started: Instant,
        guard: Guard,
        f: impl FnOnce(&mut Tx<'_>) -> Result<Result<T, No>>,
    ) -> Result<Committed<T>> {
        hit("before_begin");
        let sql = self.begin(conn, started)?;
        // The clock is read under the lock: times follow the order of the commits.
        let mut tx = Tx::begin(&sql, self.now(), &self.instance_id, actor, started)?;
        if matches!(guard, Guard::Check) {
            self.no_backup()?;
            tx.check_not_rolled_back(lock(&self.seen).as_ref())?;
        }
        let answer = f(&mut tx)?;
        if let Err(no) = &answer {
            tx.refused(no)?;
        }
        let (seen, events) = tx.finish();
        hit("before_commit");
        sql.commit().map_err(|error| sql_error::commit_error(error, started))?;
        hit("after_commit");
        *lock(&self.seen) = seen;
        Ok((answer, events))
    }

    /// A mark that came with the file stays what this gate saw, even if another gate accepts it meanwhile.
    fn no_backup(&self) -> Result<()> {
        if self.unaccepted_backup.load(Ordering::Acquire) {
            return Err(Error::rolled_back("it is a copy that `backup` made, and no operator has accepted it"));
        }
        Ok(())
    }

    /// For a writing verb that may find nothing to write: it answers `rolled back` all the same.
    pub(crate) fn check_not_rolled_back(&self) -> Result<()> {
        self.no_backup()?;
        // Taken before the snapshot, which is therefore newer.
        let seen = lock(&self.seen).clone();
        self.read(|reader| reader.check_not_rolled_back(seen.as_ref()))
    }

    /// Makes or drops the indexes for heavy auditing, each in its own transaction. True when nothing changed.
    pub(crate) fn audit_index(&self, actor: &Actor, on: bool) -> Result<bool> {
        let mut already = true;
        for (name, create) in audit_index::indexes() {
            if self.read(|reader| reader.has_index(name))? != on {
                let statement = if on { create.to_owned() } else { format!("DROP INDEX IF EXISTS {name}") };
                self.write(actor, |tx| Ok(Ok(tx.define(&statement)?)))?;
                already = false;
            }
        }
        Ok(already)
    }

    /// Hands committed events to the sink, in order, one at a time, without holding a lock while the host's code runs:
    /// a sink may use the gate. Another thread that is delivering takes this one's events along.
    pub(crate) fn deliver(&self) {
        let Some(sink) = &self.sink else { return };
        {
            let mut outbox = lock(&self.outbox);
            if outbox.delivering || outbox.events.is_empty() {
                return;
            }
            outbox.delivering = true;
        }
        loop {
            let event = {
                let mut outbox = lock(&self.outbox);
                match outbox.events.pop_front() {
                    Some(event) => event,
                    None => {
                        outbox.delivering = false;
                        return;
                    }
                }
            };
            let call = std::panic::AssertUnwindSafe(|| sink.on_event(&event));
            if std::panic::catch_unwind(call).is_err() {
                crate::report::problem("the audit sink panicked; the event is committed all the same");
            }
        }
    }
}

/// Refuses about a plan that is not there for this asker. A token of the right shape stands in the row.
pub(crate) fn unknown_token(token: &str) -> No {
    let mut no = No::new(crate::refusal::Refusal::new(RefusalCode::UnknownToken));
    no.draft.plan_token = crate::names::PlanToken::parse(token).map(|token| token.as_str().to_owned());
    no
}

pub(crate) fn map_sql<T>(result: rusqlite::Result<T>, started: Instant) -> Result<T> {
    result.map_err(|error| sql_error(error, started))
}

/// The SQLite that is linked.
pub(crate) fn sqlite_version() -> &'static str {
    rusqlite::version()
}
