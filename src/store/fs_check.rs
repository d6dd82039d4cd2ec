//! May this file, in this directory, on this file system, hold a gate? Everything here asks by `stat`: once SQLite may
//! have the database open, closing any other descriptor of it drops SQLite's locks.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, StatVfsMountFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::escape::visible_cut;

/// What `stat` says of the database file: who it is, and whether somebody wrote to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStat {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// Seconds and nanoseconds.
    pub(crate) mtime: (i64, i64),
}

impl FileStat {
    pub(crate) fn id(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    #[allow(clippy::unnecessary_cast, reason = "the types of these fields differ from system to system")]
    fn of(found: &rustix::fs::Stat) -> Self {
        Self {
            dev: found.st_dev as u64,
            ino: found.st_ino as u64,
            size: found.st_size as u64,
            mtime: (found.st_mtime as i64, found.st_mtime_nsec as i64),
        }
    }
}

/// The file that `path` names now. A path that names none was moved or deleted beneath the gate.
pub(crate) fn stat(path: &Path) -> Result<FileStat> {
    // Asked at every write: the plain call costs two thirds of the standard library's.
    match rustix::fs::lstat(path) {
        Ok(found) if FileType::from_raw_mode(found.st_mode).is_file() => Ok(FileStat::of(&found)),
        Ok(_) => Err(Error::moved(format!("{} is no regular file any more", shown(path)))),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(Error::moved(format!("{} does not exist any more", shown(path)))),
        Err(error) => Err(Error::from_io("cannot look at", path, &error.into())),
    }
}

/// The absolute path without symbolic links. It is resolved once, at open: `-wal`, `-shm` and `.owners` stand beside the
/// real file, so that every name of it leads to the same ones.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().contains(&0));
    let Some(name) = name else {
        return Err(Error::invalid(format!("{:?} is no path of a file", shown(path))));
    };
    match std::fs::canonicalize(path) {
        Ok(real) => return Ok(real),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Error::from_io("cannot resolve the path", path, &error));
        }
        Err(_) => {}
    }
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(Error::storage(format!("{} is a symbolic link that leads nowhere", shown(path))));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match std::fs::canonicalize(directory) {
        Ok(real) => Ok(real.join(name)),
        Err(error) if is_absence(&error) => Err(Error::storage(format!(
            "the directory {} does not exist; the database is created, its directory is not",
            shown(directory)
        ))),
        Err(error) => Err(Error::from_io("cannot resolve the directory", directory, &error)),
    }
}

/// How many bytes a process without privileges can still write there.
pub(super) fn free_bytes(directory: &Path) -> Result<u64> {
    let mounted = rustix::fs::statvfs(directory).map_err(|e| Error::from_io("cannot look at", directory, &e.into()))?;
    Ok(mounted.f_bavail.saturating_mul(mounted.f_frsize))
}

/// Refuses a directory in which a gate cannot work, or in which a stranger could replace its file.
pub(super) fn check_directory(directory: &Path, any_file_system: bool) -> Result<()> {
    if !any_file_system && let Some(name) = unsafe_file_system(directory)? {
        return Err(Error::unsupported(format!(
            "{} is on {name}, where SQLite's write-ahead log can lose or corrupt data without a word; put the database \
             on a local disk, or set allow_any_file_system if you know better",
            shown(directory)
        )));
    }
    let mounted = rustix::fs::statvfs(directory).map_err(|e| Error::from_io("cannot look at", directory, &e.into()))?;
    if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(Error::storage(format!("{} is on a file system that is mounted read-only", shown(directory))));
    }
    let found = std::fs::metadata(directory).map_err(|e| Error::from_io("cannot look at", directory, &e))?;
    // Whoever may write here can put another file in the database's place. The sticky bit (as on /tmp) prevents it.
    // Writable by the group is let through: with one group a user, it is the usual mode of a home directory's parts.
    if found.mode() & 0o1002 == 0o0002 {
        return Err(Error::unsupported(format!(
            "everybody can replace files in {} (mode {:o}); run chmod o-w on it, or use another directory",
            shown(directory),
            found.mode() & 0o7777
        )));
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|_| {
        Error::storage(format!(
            "this process cannot write in the directory {} (mode {:o}); SQLite keeps its log beside the database",
            shown(directory),
            found.mode() & 0o7777
        ))
    })
}

/// Refuses a database file, or a `-wal` or `-shm` beside it, that somebody else can write: whoever writes one of the
/// three writes the gate.
pub(super) fn check_files(path: &Path) -> Result<FileStat> {
    for suffix in ["-wal", "-shm", "-journal"] {
        let beside = with_suffix(path, suffix);
        match std::fs::symlink_metadata(&beside) {
            Ok(found) => check_file(&beside, &found)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::from_io("cannot look at", &beside, &error)),
        }
    }
    let found = std::fs::symlink_metadata(path).map_err(|e| Error::from_io("cannot look at", path, &e))?;
    check_file(path, &found)?;
    // Two names of one file get two logs, and each opener replays only its own.
    if found.nlink() > 1 {
        return Err(Error::unsupported(format!(
            "{} has {} hard links; SQLite corrupts a database that has two names",
            shown(path),
            found.nlink()
        )));
    }
    stat(path)
}

/// For whoever must not create the database.
pub(super) fn check_present(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if is_absence(&error) => {
            Err(Error::storage(format!("there is no database at {}, and none is created here", shown(path))))
        }
        _ => Ok(()),
    }
}

fn check_file(path: &Path, found: &std::fs::Metadata) -> Result<()> {
    let mode = found.mode() & 0o7777;
    let me = rustix::process::geteuid().as_raw();
    let why = if found.is_dir() {
        "is a directory".to_owned()
    } else if !found.is_file() {
        "is no regular file".to_owned()
    } else if found.uid() != me {
        format!("belongs to user {}, and this process runs as user {me}", found.uid())
    } else if mode & 0o022 != 0 {
        format!("can be written by its group or by others (mode {mode:o}); run chmod 600 on it")
    } else if mode & 0o600 != 0o600 {
        // The mode stops everybody but root, and root is meant too.
        format!("is read-only (mode {mode:o}), and every verb writes; run chmod 600 on it")
    } else {
        return Ok(());
    };
    Err(Error::unsupported(format!("{} {why}", shown(path))))
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// A path as it may stand in a message.
pub(super) fn shown(path: &Path) -> String {
    visible_cut(&path.to_string_lossy(), 400)
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn unsafe_file_system(directory: &Path) -> Result<Option<&'static str>> {
    let found = rustix::fs::statfs(directory).map_err(|e| Error::from_io("cannot look at", directory, &e.into()))?;
    // The magic is 32 bits wide; its field is wider, and signed, on some machines.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(unsafe_magic(found.f_type as u32))
}

#[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
fn unsafe_file_system(directory: &Path) -> Result<Option<&'static str>> {
    let found = rustix::fs::statfs(directory).map_err(|e| Error::from_io("cannot look at", directory, &e.into()))?;
    let name: Vec<u8> = found.f_fstypename.iter().map(|c| c.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    Ok(unsafe_name(&name))
}

/// Other systems have no `statfs` that names the type.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd"
)))]
fn unsafe_file_system(_: &Path) -> Result<Option<&'static str>> {
    Ok(None)
}

/// The name of a file system, by its Linux magic number, on which the shared memory or the locks of a WAL database may
/// not be the same for every process: the network's, a cluster's, a hypervisor's and those of user space.
#[cfg(any(target_os = "linux", target_os = "android", test))]
fn unsafe_magic(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "NFS",
        0x0000_517B | 0xFF53_4D42 | 0xFE53_4D42 => "SMB",
        0x0102_1997 => "9p",
        // virtiofs mounts carry the magic of FUSE.
        0x6573_5546 => "FUSE or virtiofs",
        0x00C3_6400 => "Ceph",
        0x5346_414F | 0x6B41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x0000_564C => "NCP",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x2003_0528 => "OrangeFS",
        0x0116_1970 => "GFS2",
        0x7461_636F => "OCFS2",
        0x786F_4256 => "a VirtualBox shared folder",
        0xBACB_ACBC => "a VMware shared folder",
        0x7C7C_6673 => "a Parallels shared folder",
        _ => return None,
    })
}

/// The same where the system names the type.
#[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd", test))]
fn unsafe_name(name: &[u8]) -> Option<&'static str> {
    Some(match name {
        b"nfs" => "NFS",
        b"smbfs" => "SMB",
        b"afpfs" => "AFP",
        b"webdav" | b"ftp" => "a network file system",
        b"p9fs" => "9p",
        b"virtiofs" | b"AppleVirtIOFS" => "virtiofs",
        name if name.starts_with(b"fusefs") || name.starts_with(b"macfuse") || name.starts_with(b"osxfuse") => "FUSE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_share_no_memory_are_refused_and_local_ones_are_not() {
        for magic in [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x6573_5546, 0x00C3_6400, 0x5346_414F] {
            assert!(unsafe_magic(magic).is_some(), "{magic:x}");
        }
        // ext4, xfs, btrfs, tmpfs, overlayfs, zfs, f2fs
        for magic in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0x2FC1_2FC1, 0xF2F5_2010] {
            assert_eq!(unsafe_magic(magic), None, "{magic:x}");
        }
        for name in [&b"nfs"[..], b"smbfs", b"macfuse", b"osxfusefs", b"fusefs.sshfs"] {
            assert!(unsafe_name(name).is_some());
        }
        assert_eq!(unsafe_name(b"apfs"), None);
        assert_eq!(unsafe_name(b"ufs"), None);
    }

    #[test]
    fn a_directory_that_everybody_can_write_is_refused_unless_sticky() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let mode = |bits| std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(bits)).expect("chmod");
        for (bits, accepted) in [(0o777, false), (0o702, false), (0o1777, true), (0o775, true), (0o700, true)] {
            mode(bits);
            let result = check_directory(dir.path(), true);
            assert_eq!(result.is_ok(), accepted, "{bits:o}");
            assert!(result.err().is_none_or(|error| error.is_unsupported()));
        }
        mode(0o700);
    }

    #[test]
    fn paths_resolve_to_the_real_file_and_say_what_is_missing() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = dir.path().canonicalize().expect("real");
        assert_eq!(resolve(&dir.path().join("new.db")).expect("new"), real.join("new.db"));
        std::os::unix::fs::symlink("target.db", dir.path().join("link.db")).expect("link");
        let dangling = resolve(&dir.path().join("link.db")).unwrap_err();
        assert!(dangling.is_storage() && dangling.to_string().contains("leads nowhere"), "{dangling}");
        let missing = resolve(&dir.path().join("no/such/gate.db")).unwrap_err();
        assert!(missing.is_storage() && missing.to_string().contains("does not exist"), "{missing}");
        for bad in ["", "/", ".."] {
            assert!(resolve(Path::new(bad)).unwrap_err().is_invalid_input(), "{bad:?}");
        }
    }
}
