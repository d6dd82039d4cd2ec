//! `<db>.owners/head`: the newest audit head, outside the database, so that a file that was put back is noticed by a
//! gate that opens it later (design section 8).
//!
//! One small overwrite after each commit, not synced, best effort between processes. A line that is missing, torn or of
//! another store says nothing.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;

use sha2::{Digest as _, Sha256};

use super::lock;
use super::tx::Seen;
use crate::names::hex;

/// The open head file, or none where it cannot be had.
pub(super) struct HeadFile {
    file: Option<File>,
    store_id: String,
    /// The number of the row that this process wrote last.
    written: Mutex<i64>,
}

impl HeadFile {
    pub(super) fn open(directory: &Path, store_id: String) -> Self {
        #[allow(clippy::disallowed_methods, reason = "the head file, never the database")]
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("head"));
        if let Err(error) = &file {
            crate::report::problem(&format!(
                "the head file cannot be opened ({error}); an older copy put over the database is noticed only while a gate is open"
            ));
        }
        Self { file: file.ok(), store_id, written: Mutex::default() }
    }

    /// What the file says, for somebody who only looks: nothing is created.
    pub(super) fn observe(directory: &Path, store_id: String) -> Option<Seen> {
        #[allow(clippy::disallowed_methods, reason = "the head file, never the database")]
        let file = File::open(directory.join("head")).ok();
        Self { file, store_id, written: Mutex::default() }.read()
    }

    /// What the file says. Another process may be writing it right now, so a torn line is read again.
    pub(super) fn read(&self) -> Option<Seen> {
        let said = (0..3).find_map(|_| self.read_once())?;
        (said.0 == self.store_id).then_some(said.1)
    }

    fn read_once(&self) -> Option<(String, Seen)> {
        let mut bytes = [0_u8; 256];
        let length = self.file.as_ref()?.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).ok()?;
        let (line, _) = text.split_once('\n')?;
        let (said, sum) = line.rsplit_once(' ')?;
        if sum != checksum(said) {
            return None;
        }
        let mut parts = said.split(' ');
        let (store, seq, hash) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        Some((store.to_owned(), Seen { seq, hash: hash.to_owned() }))
    }

    /// Called after the writer was given back, so threads come in any order: an older head is not written over a newer
    /// one, unless an operator accepted that the file was put back.
    pub(super) fn write(&self, seq: i64, hash: &str, accepted: bool) {
        let Some(file) = &self.file else { return };
        let mut written = lock(&self.written);
        if seq <= *written && !accepted {
            return;
        }
        *written = seq;
        let said = format!("{} {seq:020} {hash}", self.store_id);
        let line = format!("{said} {}\n", checksum(&said));
        // Best effort: what is lost here is one way to notice a restore, never a commit.
        let _ = file.write_all_at(line.as_bytes(), 0);
    }
}

/// Tells a whole line from a torn one.
fn checksum(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_head_covers_a_newer_one_only_where_a_restore_was_accepted() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = HeadFile::open(directory.path(), "store".to_owned());
        let said = || file.read().map(|seen| seen.seq);
        assert_eq!(said(), None);
        file.write(5, "five", false);
        file.write(3, "three", false);
        assert_eq!(said(), Some(5));
        file.write(3, "three", true);
        assert_eq!(said(), Some(3));
        file.write(4, "four", false);
        assert_eq!(said(), Some(4));
    }
}
