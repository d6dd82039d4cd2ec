//! The connections of one open database: one that writes, some that read.
//!
//! Locking: the writer pool holds exactly one connection, so the threads of a process queue for it in memory and meet
//! the other processes as one contender. Whoever holds the writer must not ask for it again.
//!
//! A connection that comes back inside a transaction, or that its holder calls broken, is closed and never handed on:
//! with a leaked BEGIN the next caller would block every other process.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use r2d2::ManageConnection;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::Connection;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::busy;
use super::conn::Conn;
use super::connections::{Connections, Counted};
use super::fs_check::{self, FileStat, shown};
use super::open::{self, OpenFile, Role};
use super::queue::{Place, Queue};
use super::schema::Created;
use super::sql_error::sql_error;
use crate::error::{Error, Result};

/// How often a caller asks again whether a connection can be opened, or why none could, where nobody would wake it.
const POLL: Duration = Duration::from_millis(20);

/// How long a caller without patience waits for a connection that is being opened: nobody holds it.
const OPENING: Duration = Duration::from_secs(1);

/// How long the end of a gate waits for a connection that is being opened at this moment.
const CLOSING: Duration = Duration::from_secs(5);

/// How to open a database.
pub(crate) struct OpenOptions {
    pub(crate) path: PathBuf,
    /// How long a verb waits for locks and for the writer.
    pub(crate) busy_deadline: Duration,
    pub(crate) readers: u32,
    pub(crate) any_file_system: bool,
    /// Whether a file that is not there, or is empty, becomes a database.
    pub(crate) create: bool,
    pub(crate) hooks: ConnHooks,
}

/// What a test does to every connection. Empty in a release.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnHooks {
    /// Statements that run at the end of a connection's settings, as `PRAGMA max_page_count=50`.
    #[cfg(feature = "test-hooks")]
    pub(crate) sql: Vec<String>,
}

impl ConnHooks {
    pub(super) fn run(&self, connection: &Connection) -> rusqlite::Result<()> {
        #[cfg(feature = "test-hooks")]
        for sql in &self.sql {
            connection.execute_batch(sql)?;
        }
        let _ = connection;
        Ok(())
    }
}

/// A connection on loan.
pub(crate) type PooledConn = r2d2::PooledConnection<Manager>;

/// The writing connection on loan.
pub(crate) struct Writer<'a> {
    /// Given back first: whoever is next finds it in its pool.
    conn: PooledConn,
    _place: Place<'a>,
}

impl Deref for Writer<'_> {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for Writer<'_> {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

/// The connections of one open database.
pub(crate) struct Pools {
    path: PathBuf,
    file_id: (u64, u64),
    busy_deadline: Duration,
    opened_by: u32,
    hooks: ConnHooks,
    /// `None` only while it is dropped.
    pools: Option<(Pool, Pool)>,
    /// Who waits for the writer.
    queue: Queue,
    connections: Arc<Connections>,
    /// Dropped last: the file is open until the connections are closed.
    _entry: OpenFile,
}

struct Pool {
    role: Role,
    pool: r2d2::Pool<Manager>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Pools {
    /// The whole open sequence. `created` runs inside the transaction that makes the schema of a new file.
    pub(crate) fn open(options: OpenOptions, created: Created<'_>) -> Result<Self> {
        if options.readers == 0 {
            return Err(Error::invalid("the pool needs at least one reader"));
        }
        let opened = open::open(&options, created)?;
        let file_id = opened.file.id();
        let connections = Arc::<Connections>::default();
        let pool = |role, size, first| {
            let mut manager =
                Manager::new(role, first, &opened.path, file_id, options.busy_deadline, options.hooks.clone());
            manager.connections = Arc::clone(&connections);
            Pool::new(manager, size)
        };
        let writer = pool(Role::Writer, 1, Some(opened.connection));
        let reader = pool(Role::Reader, options.readers, None);
        let pools = Self {
            file_id,
            busy_deadline: options.busy_deadline,
            opened_by: std::process::id(),
            hooks: options.hooks.clone(),
            pools: Some((writer, reader)),
            queue: Queue::default(),
            connections,
            path: opened.path,
            _entry: opened.entry,
        };
        // The background thread hands the first connection over now, not while the gate is being closed again.
        pools.writer(Instant::now())?;
        Ok(pools)
    }

    /// Absolute and without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How long a verb waits.
    pub(super) fn busy_deadline(&self) -> Duration {
        self.busy_deadline
    }

    /// Device and inode of the file that is open.
    pub(crate) fn file_id(&self) -> (u64, u64) {
        self.file_id
    }

    /// What stands at the path now; [`Error::is_moved`] where nothing does.
    pub(crate) fn stat(&self) -> Result<FileStat> {
        fs_check::stat(&self.path)
    }

    /// The size of the write-ahead log now; 0 where there is none.
    pub(crate) fn wal_bytes(&self) -> Result<u64> {
        let path = fs_check::with_suffix(&self.path, "-wal");
        match std::fs::symlink_metadata(&path) {
            Ok(seen) => Ok(seen.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(Error::from_io("cannot look at", &path, &error)),
        }
    }

    /// The one writing connection. Waits in the queue of this process, at most until the deadline counted from
    /// `started`.
    pub(crate) fn writer(&self, started: Instant) -> Result<Writer<'_>> {
        let (writer, _) = self.pools.as_ref().ok_or_else(Error::closed)?;
        let place = self.queue.enter(busy::deadline(started, self.busy_deadline));
        let place = place.ok_or_else(|| Error::busy(started.elapsed()))?;
        Ok(Writer { conn: writer.checkout(started, self.busy_deadline)?, _place: place })
    }

    /// A connection that refuses to write.
    pub(crate) fn reader(&self) -> Result<PooledConn> {
        let (_, reader) = self.pools.as_ref().ok_or_else(Error::closed)?;
        reader.checkout(Instant::now(), self.busy_deadline)
    }

    /// A reading connection of its own, beside the pool, with its own patience. Its holder closes it before the gate's
    /// end.
    pub(super) fn dedicated(&self, busy_deadline: Duration) -> Result<Conn> {
        let hooks = self.hooks.clone();
        let manager = Manager::new(Role::Reader, None, &self.path, self.file_id, self.busy_deadline, hooks);
        manager.conn(busy_deadline)
    }
}

impl Drop for Pools {
    /// In a fork the connections belong to the parent: closing them there would drop the parent's locks and reset a log
    /// that it is using, so they are leaked.
    ///
    /// Otherwise it returns when the last connection is closed, also one that the background thread is opening now: who
    /// copies or replaces the file then finds the log folded into it.
    fn drop(&mut self) {
        if self.opened_by != std::process::id() {
            mem::forget(self.pools.take());
            return;
        }
        self.connections.refuse();
        drop(self.pools.take());
        self.connections.wait_until_closed(CLOSING);
    }
}

impl Pool {
    /// The writer is ready from the start and replaced at once when it is thrown away. Readers are opened on demand: a
    /// process that never reads opens none, and none is being opened while the gate is closed.
    fn new(manager: Manager, size: u32) -> Self {
        let (role, failure) = (manager.role, Arc::clone(&manager.failure));
        let pool = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(u32::from(role == Role::Writer)))
            .max_lifetime(None)
            .idle_timeout(None)
            .test_on_check_out(false)
            .connection_timeout(manager.busy_deadline.max(Duration::from_millis(1)))
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .thread_pool(background_thread())
            .build_unchecked(manager);
        Self { role, pool, failure }
    }

    fn checkout(&self, started: Instant, busy_deadline: Duration) -> Result<PooledConn> {
        let deadline = busy::deadline(started, busy_deadline);
        if let Some(conn) = self.pool.try_get().filter(|conn| !conn.is_broken()) {
            busy::arm(deadline);
            return Ok(conn);
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // r2d2 wakes nobody when a connection is thrown away or cannot be opened. The writer's queue is left alone
            // otherwise: whoever asks again has lost its place.
            let opening = self.pool.state().connections < self.pool.max_size() && started.elapsed() < OPENING;
            let poll = self.role == Role::Reader || self.pool.state().connections == 0;
            let patience = if opening { left.max(POLL) } else { left };
            match self.pool.get_timeout(if poll { patience.min(POLL) } else { patience }) {
                Ok(conn) if conn.is_broken() => drop(conn),
                Ok(conn) => {
                    busy::arm(deadline);
                    return Ok(conn);
                }
                Err(_) => {
                    let failed = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(error) = failed {
                        return Err(error);
                    }
                }
            }
            if !opening && Instant::now() >= deadline {
                return Err(Error::busy(started.elapsed()));
            }
        }
    }
}

/// r2d2 opens connections on this thread. One for the process, because r2d2 would start three for each pool.
///
/// A fork has no threads but its own, so the process id stands beside it; and a fork may have copied the lock while it
/// was held, so nobody ever waits for it: whoever does not get it at once starts a thread of its own.
fn background_thread() -> Arc<ScheduledThreadPool> {
    static SHARED: Mutex<Option<(u32, Arc<ScheduledThreadPool>)>> = Mutex::new(None);
    let start = || {
        let pool = ScheduledThreadPool::builder()
            .num_threads(1)
            .thread_name_pattern("countersign-pool-{}")
            .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
            .build();
        Arc::new(pool)
    };
    let me = std::process::id();
    let Ok(mut shared) = SHARED.try_lock() else { return start() };
    if let Some((pid, pool)) = &*shared
        && *pid == me
    {
        return Arc::clone(pool);
    }
    let pool = start();
    // The parent's: its own locks may have been held when the process was copied.
    mem::forget(shared.replace((me, Arc::clone(&pool))));
    pool
}

/// Opens connections for a pool, each with the whole of its settings, and only to the file that the gate opened.
pub(crate) struct Manager {
    inner: SqliteConnectionManager,
    role: Role,
    path: PathBuf,
    file_id: (u64, u64),
    busy_deadline: Duration,
    /// The connection that went through the open sequence.
    first: Mutex<Option<Connection>>,
    /// Why the last attempt failed: r2d2 itself keeps only a text.
    failure: Arc<Mutex<Option<Error>>>,
    connections: Arc<Connections>,
}

impl Manager {
    fn new(
        role: Role,
        first: Option<Connection>,
        path: &Path,
        file_id: (u64, u64),
        busy_deadline: Duration,
        hooks: ConnHooks,
    ) -> Self {
        Self {
            inner: SqliteConnectionManager::file(path)
                .with_flags(open::FLAGS)
                .with_init(move |connection| open::configure(connection, role, &hooks)),
            role,
            path: path.to_owned(),
            file_id,
            busy_deadline,
            first: Mutex::new(first),
            failure: Arc::default(),
            connections: Arc::default(),
        }
    }

    /// Counted before it is opened, so that nobody misses one that is on its way.
    fn conn(&self, busy_deadline: Duration) -> Result<Conn> {
        let counted = Counted::enter(&self.connections)?;
        Ok(Conn::new(self.open()?, busy_deadline, counted))
    }

    fn open(&self) -> Result<Connection> {
        if let Some(first) = self.first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(first);
        }
        let started = Instant::now();
        busy::arm(busy::deadline(started, self.busy_deadline));
        self.same_file()?;
        let connection = self.inner.connect().map_err(|e| sql_error(e, started))?;
        open::verify_settings(&connection, self.role, started)?;
        self.same_file()?;
        Ok(connection)
    }

    /// A new connection to a file that took the old one's place would mix two databases in one gate.
    fn same_file(&self) -> Result<()> {
        if fs_check::stat(&self.path)?.id() == self.file_id {
            return Ok(());
        }
        Err(Error::moved(format!("{} is another file now", shown(&self.path))))
    }
}

impl ManageConnection for Manager {
    type Connection = Conn;
    type Error = Error;

    fn connect(&self) -> Result<Conn> {
        let opened = self.conn(self.busy_deadline);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = None;
        match opened {
            Ok(conn) => Ok(conn),
            Err(error) => {
                let text = error.to_string();
                *failure = Some(error);
                Err(Error::storage(text))
            }
        }
    }

    fn is_valid(&self, _: &mut Conn) -> Result<()> {
        Ok(())
    }

    fn has_broken(&self, conn: &mut Conn) -> bool {
        conn.is_broken()
    }
}

#[cfg(test)]
mod tests;
