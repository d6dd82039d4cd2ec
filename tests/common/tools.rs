//! Other programs, and what a test does where they are missing.
#![allow(clippy::disallowed_methods, reason = "files of the kernel, never a database")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::child::PATIENCE;

/// True when a test can go on that needs this; otherwise it says that it is skipped, and fails where CI runs it.
pub(crate) fn can(what: &str, works: bool) -> bool {
    if works {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI has to have {what}");
    println!("skipped: needs {what}");
    false
}

/// Runs a program; true when it ends well.
pub(crate) fn run(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub(crate) fn strace() -> bool {
    can("strace, and the right to trace", run("strace", &["-qq", "-o", "/dev/null", "true"]))
}

/// Polls a condition that nothing announces; past all patience it fails.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::yield_now();
    }
}

/// The state letter of a process, as the kernel shows it: R, S, T, Z, ...
pub(crate) fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// True while this process holds SQLite's shared lock on the database and the one on its `-shm`. Whoever opens and
/// closes a second descriptor of the file loses them, without a word.
pub(crate) fn locks_of(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // The byte ranges are SQLite's file format: the shared range behind the pending byte, and the log's DMS byte.
    let files = [(path.to_owned(), "1073741826 1073742335"), (path.with_extension("db-shm"), "128 128")];
    let me = std::process::id().to_string();
    let seen = |file: &Path, range: &str, locks: &str| {
        let inode = std::fs::metadata(file).unwrap().ino().to_string();
        locks.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.contains(&"READ")
                && words.contains(&me.as_str())
                && words.iter().any(|word| word.rsplit(':').next() == Some(inode.as_str()))
                && line.ends_with(range)
        })
    };
    // The kernel writes the list in pieces, and under the locking of other processes entries slip between them. A lock
    // that was lost never comes back by itself, so one sighting is proof.
    files.iter().all(|(file, range)| {
        (0..1_000).any(|_| {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            seen(file, range, &locks)
        })
    })
}
