//! The instance: one open gate in one process, and the OS lock that says that it lives (sqlite.md, "Who is alive").
//!
//! An instance takes an exclusive lock on `<db>.owners/<instance id>.lock` before its first claim and never again after
//! it let go: a free lock means dead for good. The kernel lets go of it when the process dies, however it dies.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::liveness::{self, Liveness, LockSeen, Observed};
use crate::store::lock;
use crate::store::rows::InstanceRow;

/// What this process knows of itself, and of the directory of the owners' locks.
pub(crate) struct Instance {
    pub(crate) id: String,
    directory: PathBuf,
    boot_id: String,
    host_name: String,
    held: Mutex<Option<Held>>,
}

/// The lock of this instance, taken for good.
struct Held {
    file: File,
    row: InstanceRow,
    /// False while nobody knows whether the row stands: its commit was ambiguous.
    stored: bool,
}

impl Instance {
    /// Makes the owners' directory beside the database, for this user alone. Takes no lock yet.
    pub(crate) fn new(id: String, database: &Path) -> Result<Self> {
        let directory = Self::directory_of(database);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::from_io("cannot create", &directory, &error)),
        }
        let seen =
            std::fs::symlink_metadata(&directory).map_err(|e| Error::from_io("cannot look at", &directory, &e))?;
        if !seen.is_dir() || seen.uid() != rustix::process::geteuid().as_raw() || seen.mode() & 0o022 != 0 {
            return Err(Error::unsupported(format!(
                "{} must be a directory of this user that nobody else can write to: chmod 700 it",
                crate::escape::visible_cut(&directory.to_string_lossy(), 400)
            )));
        }
        let (boot_id, host_name) = (boot_id(), host_name());
        Ok(Self { id, directory, boot_id, host_name, held: Mutex::new(None) })
    }

    /// The owners' directory of a database.
    pub(crate) fn directory_of(database: &Path) -> PathBuf {
        let mut name = database.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".owners");
        database.with_file_name(name)
    }

    /// Somebody who only asks who is alive: creates nothing and is no instance.
    pub(crate) fn observer(database: &Path) -> Self {
        Self {
            id: String::new(),
            directory: Self::directory_of(database),
            boot_id: boot_id(),
            host_name: host_name(),
            held: Mutex::new(None),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn lock_path(&self, instance_id: &str) -> PathBuf {
        self.directory.join(format!("{instance_id}.lock"))
    }

    /// Takes the lock, then has `write` store the row; once. Both come before the first claim. `write` may be called
    /// again with the same row, after a commit of which nobody knew whether it took effect.
    pub(crate) fn register(&self, now: i64, write: impl FnOnce(&InstanceRow) -> Result<()>) -> Result<()> {
        let mut held = lock(&self.held);
        if let Some(held) = held.as_mut() {
            if !held.stored {
                write(&held.row)?;
                held.stored = true;
            }
            return Ok(());
        }
        let path = self.lock_path(&self.id);
        #[allow(clippy::disallowed_methods, reason = "the lock file, never the database")]
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| Error::from_io("cannot create", &path, &error))?;
        let registered = self.lock_own(&file, &path, now).and_then(|row| match write(&row) {
            Ok(()) => Ok((row, Ok(()))),
            // The row may stand: its lock stays, held, so that the row stays true while this process lives.
            Err(error) if error.is_ambiguous() => Ok((row, Err(error))),
            Err(error) => Err(error),
        });
        match registered {
            Ok((row, answer)) => {
                *held = Some(Held { file, row, stored: answer.is_ok() });
                answer
            }
            Err(error) => {
                // Nothing was registered; the file goes, so that a repeated call starts afresh.
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn lock_own(&self, file: &File, path: &Path, now: i64) -> Result<InstanceRow> {
        file.try_lock()
            .map_err(|error| Error::storage(format!("cannot lock the owner's file of this instance: {error}")))?;
        let seen = file.metadata().map_err(|error| Error::from_io("cannot look at", path, &error))?;
        Ok(InstanceRow {
            instance_id: self.id.clone(),
            lock_dev: seen.dev().cast_signed(),
            lock_ino: seen.ino().cast_signed(),
            boot_id: self.boot_id.clone(),
            host_name: self.host_name.clone(),
            pid: i64::from(std::process::id()),
            opened_at: now,
        })
    }

    /// The row of this instance, once it holds its lock.
    pub(crate) fn own_row(&self) -> Option<InstanceRow> {
        lock(&self.held).as_ref().map(|held| held.row.clone())
    }

    /// Lets the lock go, for good. `remove`: the instance owns nothing, so that its file goes too.
    pub(crate) fn release(&self, remove: bool) {
        let Some(held) = lock(&self.held).take() else { return };
        if remove {
            // Best effort: recover removes what is left of dead instances.
            let _ = std::fs::remove_file(self.lock_path(&self.id));
        }
        // Closing is not enough: a forked child has the same open file, and would keep this instance alive.
        let _ = held.file.unlock();
    }

    /// Removes the lock file of a dead instance that owns nothing. Best effort.
    pub(crate) fn remove_lock_of(&self, instance_id: &str) {
        if is_instance_id(instance_id) {
            let _ = std::fs::remove_file(self.lock_path(instance_id));
        }
    }

    /// Is that owner alive? Never called for this very instance. `None`: no row says who it is.
    pub(crate) fn liveness(&self, owner: Option<&InstanceRow>) -> Liveness {
        let Some(owner) = owner else { return Liveness::Unknown };
        liveness::decide(Observed {
            same_boot: (!owner.boot_id.is_empty() && !self.boot_id.is_empty()).then(|| owner.boot_id == self.boot_id),
            same_host: owner.host_name == self.host_name,
            lock: self.try_lock_of(owner),
        })
    }

    fn try_lock_of(&self, owner: &InstanceRow) -> LockSeen {
        if !is_instance_id(&owner.instance_id) {
            return LockSeen::Unreadable;
        }
        let path = self.lock_path(&owner.instance_id);
        #[allow(clippy::disallowed_methods, reason = "a lock file, never the database")]
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return LockSeen::Missing,
            Err(_) => return LockSeen::Unreadable,
        };
        let same_file = match file.metadata() {
            Ok(seen) => (seen.dev().cast_signed(), seen.ino().cast_signed()) == (owner.lock_dev, owner.lock_ino),
            Err(_) => return LockSeen::Unreadable,
        };
        // Device numbers are another kernel's own: a file of another boot is tried whatever its number is, so that a
        // held lock is seen.
        if !same_file && owner.boot_id == self.boot_id {
            return LockSeen::Replaced;
        }
        match file.try_lock_shared() {
            Ok(()) if same_file => LockSeen::Free,
            Ok(()) => LockSeen::Replaced,
            Err(TryLockError::WouldBlock) => LockSeen::Held,
            Err(TryLockError::Error(_)) => LockSeen::Unreadable,
        }
    }
}

/// An id read from the file names a path: only what this crate makes is one.
fn is_instance_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The kernel's id of this boot; empty where there is none (macOS), and then the lock and the host name decide.
fn boot_id() -> String {
    #[allow(clippy::disallowed_methods, reason = "a file of the kernel, never the database")]
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
