//! The open sequence. Its order is the point: each step relies on the ones before it.
//!
//! 1. The linked SQLite is one that does not lose data.
//! 2. The directory may hold a gate.
//! 3. The file exists, only its owner can write it, and it is one of ours or empty: found out before anything changes.
//! 4. It is in WAL mode.
//! 5. Every setting of the connection is made and read back.
//! 6. The schema is the newest, and nobody changed it or hung a trigger on it.
//!
//! Crash: a kill in between leaves an empty file, an empty file in WAL mode, or a finished one; each of them opens.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::busy;
use super::checkpoint;
use super::fs_check::{self, FileStat, shown};
use super::pool::{ConnHooks, OpenOptions};
use super::schema::{self, Created, Standing};
use super::sql_error::{is_busy, sql_error};
use crate::error::{Error, Result};

/// No CREATE: a file that is gone must not come back empty. No URI: a path is a path, whatever characters it has. No
/// mutex: a connection is used by one thread at a time, which the pool and `&mut` see to.
pub(super) const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// One prepared statement for each query of the crate.
const STATEMENT_CACHE: usize = 128;

/// FULL, because at NORMAL a power loss forgets the last commits: a claim would be forgotten and its effect would run
/// twice. A log that a long reader let grow is cut back to 64 MiB.
const SETTINGS: &[(&str, i64)] = &[
    ("synchronous", 2),
    ("foreign_keys", 1),
    ("trusted_schema", 0),
    ("cell_size_check", 1),
    ("recursive_triggers", 1),
    ("mmap_size", 0),
    ("journal_size_limit", 64 * 1024 * 1024),
    #[cfg(target_vendor = "apple")]
    ("fullfsync", 1),
    #[cfg(target_vendor = "apple")]
    ("checkpoint_fullfsync", 1),
];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Writer,
    /// Refuses to write: a read never changes anything.
    Reader,
}

/// A database that went through the whole sequence, and the connection that did.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: FileStat,
    pub(super) connection: Connection,
    pub(super) entry: OpenFile,
}

/// Runs the sequence. The error is the first one that occurred, and nothing of a foreign file has changed then.
pub(super) fn open(options: &OpenOptions, created: Created<'_>) -> Result<Opened> {
    let started = Instant::now();
    let deadline = busy::deadline(started, options.busy_deadline);
    check_version(rusqlite::version_number())?;
    let path = fs_check::resolve(&options.path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs_check::check_directory(directory, options.any_file_system)?;
    if options.create {
        create_if_absent(&path)?;
    } else {
        fs_check::check_present(&path)?;
    }
    let file = fs_check::check_files(&path)?;
    let entry = OpenFile::enter(std::process::id(), file.id())?;

    busy::arm(deadline);
    let mut connection = Connection::open_with_flags(&path, FLAGS).map_err(|e| sql_error(e, started))?;
    prepare(&connection).map_err(|e| sql_error(e, started))?;
    // A file that turns out to be another application's must be left as it is: closing it must not move its log either.
    let leave_log = |connection: &Connection, on| {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on).map_err(|e| sql_error(e, started))
    };
    leave_log(&connection, true)?;
    if schema::standing(&mut connection, started)? == Standing::Fresh && !options.create {
        return Err(Error::unsupported(format!("{} is empty: no host has opened it yet", shown(&path))));
    }
    leave_log(&connection, false)?;
    switch_to_wal(&connection, started, deadline)?;
    configure(&connection, Role::Writer, &options.hooks).map_err(|e| sql_error(e, started))?;
    verify_settings(&connection, Role::Writer, started)?;
    schema::migrate(&mut connection, started, created)?;
    schema::verify(&connection, started)?;

    if fs_check::stat(&path)?.id() != file.id() {
        return Err(Error::moved(format!("{} was replaced while it was being opened", shown(&path))));
    }
    Ok(Opened { path, file, connection, entry })
}

/// WAL before 3.51.3 can lose committed data when one connection checkpoints while another resets the log, which is what
/// several processes do. The cure was ported back to two older lines; 3.52.0 was withdrawn.
pub(super) fn check_version(number: i32) -> Result<()> {
    let sound =
        matches!(number, 3_044_006..3_045_000 | 3_050_007..3_051_000) || (number >= 3_051_003 && number != 3_052_000);
    if sound {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "the linked SQLite {}.{}.{} can lose committed data in WAL mode; needed is 3.51.3 or newer (not 3.52.0), 3.50.7 or \
         3.44.6, or the feature `bundled`",
        number / 1_000_000,
        number / 1_000 % 1_000,
        number % 1_000
    )))
}

/// Creates the file with mode 0600, which `-wal` and `-shm` inherit. One that exists is left alone.
///
/// The mutex: the descriptor of the creation must be closed before any thread of this process has SQLite open the file,
/// because closing it later would drop that connection's locks. Other processes' descriptors do no harm.
#[allow(clippy::disallowed_methods)] // SQLite cannot have open what does not exist, and O_EXCL opens nothing else.
fn create_if_absent(path: &Path) -> Result<()> {
    static CREATING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::from_io("cannot create the database", path, &error)),
    }
}

/// An entry in the list of the files that this process has open, taken out when it is dropped.
///
/// SQLite counts its locks on a file once for the process, in memory that a fork copies while the locks themselves stay
/// with the parent. A forked child that opens the same file believes that it holds them: the last of the others deletes
/// the log beneath it, and what the child commits is lost. The list is copied too, and tells the child.
#[derive(Debug)]
pub(super) struct OpenFile {
    pid: u32,
    id: (u64, u64),
}

/// Process id, then device and inode.
static OPEN_FILES: Mutex<Vec<(u32, (u64, u64))>> = Mutex::new(Vec::new());

impl OpenFile {
    fn enter(pid: u32, id: (u64, u64)) -> Result<Self> {
        // A fork may have copied the lock while it was held: then nobody will ever release it.
        let patience = Instant::now() + Duration::from_secs(1);
        let mut files = loop {
            match OPEN_FILES.try_lock() {
                Ok(files) => break files,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if busy::pause_until(patience, 0) => {}
                Err(TryLockError::WouldBlock) => return Err(Error::forked(0, pid)),
            }
        };
        if let Some((parent, _)) = files.iter().find(|(owner, file)| *file == id && *owner != pid) {
            return Err(Error::forked(*parent, pid));
        }
        files.push((pid, id));
        Ok(Self { pid, id })
    }
}

impl Drop for OpenFile {
    /// In a fork the parent's entry stays: the copied connections are leaked there, not closed.
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        let mut files = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = files.iter().position(|file| *file == (self.pid, self.id)) {
            files.swap_remove(position);
        }
    }
}

/// What a connection needs before its first statement: it waits for locks, and believes nothing that the file says about
/// functions it may call.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    busy::install(connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(())
}

/// The pragma that switches to WAL does not call the busy handler, so it is repeated here until the deadline.
fn switch_to_wal(connection: &Connection, started: Instant, deadline: Instant) -> Result<()> {
    let ask = |sql| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    for attempt in 0.. {
        let answer = match ask("PRAGMA journal_mode") {
            Ok(mode) if mode != "wal" => ask("PRAGMA journal_mode=WAL"),
            other => other,
        };
        match answer {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(Error::unsupported(format!("the database cannot use a write-ahead log ({mode})"))),
            Err(error) if is_busy(&error) && busy::pause_until(deadline, attempt) => {}
            Err(error) => return Err(sql_error(error, started)),
        }
    }
    Err(Error::busy(started.elapsed()))
}

/// Every setting of a connection. The same for the first one and for those that a pool opens.
pub(super) fn configure(connection: &Connection, role: Role, hooks: &ConnHooks) -> rusqlite::Result<()> {
    prepare(connection)?;
    checkpoint::install(connection);
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    for (name, value) in SETTINGS {
        connection.pragma_update(None, name, value)?;
    }
    if role == Role::Reader {
        connection.pragma_update(None, "query_only", true)?;
    }
    hooks.run(connection)
}

/// A pragma that SQLite does not know, or cannot follow, is ignored without an error: only its answer counts.
pub(super) fn verify_settings(connection: &Connection, role: Role, started: Instant) -> Result<()> {
    let mode: String =
        connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(|e| sql_error(e, started))?;
    if mode != "wal" {
        return Err(Error::unsupported(format!("the database left the write-ahead log (journal mode {mode})")));
    }
    for (name, value) in SETTINGS.iter().copied().chain([("query_only", i64::from(role == Role::Reader))]) {
        let answer = match connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)) {
            // Compiled without memory mapping, SQLite gives no row.
            Err(rusqlite::Error::QueryReturnedNoRows) if name == "mmap_size" => 0,
            answer => answer.map_err(|e| sql_error(e, started))?,
        };
        if answer != value {
            return Err(Error::unsupported(format!("SQLite keeps {name} at {answer} where {value} is needed")));
        }
    }
    let config = |which| connection.db_config(which).map_err(|e| sql_error(e, started));
    if !config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE)? || config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA)? {
        return Err(Error::unsupported("SQLite refuses its defensive mode"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
