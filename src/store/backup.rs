//! A copy of the open file through SQLite's backup API, marked as one.
//!
//! Crash: the copy is made and marked beside its target under another name, and takes its name last. A kill leaves the
//! other name, never an unmarked copy at the target.
//!
//! Locking: the copy is one read of one moment. Writers go on meanwhile; the log grows by what they write, because it
//! cannot be reset beneath a read.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::fs_check::{self, shown};
use super::read::Reader;
use super::schema::BACKUP_ID;
use super::{Store, map_sql, open};
use crate::audit::Head;
use crate::error::{Error, Result};

impl Store {
    /// Copies the file to `target`, which must not exist. Answers its full path, its size, and where its audit stands.
    pub(crate) fn backup(&self, target: &Path) -> Result<(PathBuf, u64, Head)> {
        let target = fs_check::resolve(target)?;
        let directory = target.parent().unwrap_or(Path::new("/"));
        // A copy may lie on any file system: nobody shares it.
        fs_check::check_directory(directory, true)?;
        free(&target)?;
        let partial = Partial::create(&target)?;
        let head = self.read(|reader| {
            copy(reader, &partial.0)?;
            reader.audit_head()
        })?;
        let bytes = fs_check::stat(&partial.0)?.size;
        // Nobody else is expected to make this very file at this very moment; the check again keeps the window small.
        free(&target)?;
        std::fs::rename(&partial.0, &target).map_err(|e| Error::from_io("cannot name the copy", &target, &e))?;
        sync_directory(directory)?;
        Ok((target, bytes, head))
    }
}

fn free(target: &Path) -> Result<()> {
    match std::fs::symlink_metadata(target) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::from_io("cannot look at", target, &error)),
        Ok(_) => Err(Error::invalid(format!("{} exists already; a backup goes to a new file", shown(target)))),
    }
}

/// The copy while it is being made; goes with this value unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    #[allow(clippy::disallowed_methods, reason = "a new file that no connection has open yet")]
    fn create(target: &Path) -> Result<Self> {
        let suffix = format!(".{}.partial", crate::names::random_hex::<4>()?);
        let path = fs_check::with_suffix(target, &suffix);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| Error::from_io("cannot create the copy", &path, &e))?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Renamed: none of these is there any more.
        for suffix in ["", "-journal", "-wal"] {
            let _ = std::fs::remove_file(fs_check::with_suffix(&self.0, suffix));
        }
    }
}

/// All pages in one step, then the mark, then out of WAL mode: a backup is one file.
fn copy(reader: &Reader<'_>, partial: &Path) -> Result<()> {
    let started = Instant::now();
    let make = || -> rusqlite::Result<Option<StepResult>> {
        let mut copy = Connection::open_with_flags(partial, open::FLAGS)?;
        // Alone with the file: no shared memory, so that it can lie where WAL cannot.
        copy.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        copy.pragma_update(None, "synchronous", 2)?;
        let step = Backup::new(reader.sql, &mut copy)?.step(-1)?;
        if step != StepResult::Done {
            return Ok(Some(step));
        }
        copy.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(()))?;
        copy.pragma_update(None, "application_id", BACKUP_ID)?;
        copy.close().map_err(|(_, error)| error)?;
        Ok(None)
    };
    match map_sql(make(), started)? {
        None => Ok(()),
        Some(step) => Err(Error::storage(format!("the copy was not finished: {step:?}"))),
    }
}

#[allow(clippy::disallowed_methods, reason = "a directory, never the database")]
fn sync_directory(directory: &Path) -> Result<()> {
    std::fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::from_io("cannot sync the directory", directory, &e))
}
