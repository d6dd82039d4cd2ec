//! How the link reaches the person and not the agent: a terminal, and a file that this user alone can read.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::names::{hex, random_hex};

/// How much of a name goes into a file's name.
const NAME_MAX: usize = 100;

/// One reviewer's link in a file of mode 0600, locked while its server lives, removed with it.
pub(super) struct LinkFile {
    path: PathBuf,
    _locked: File,
}

impl LinkFile {
    /// Writes it whole: under another name first.
    pub(super) fn write(directory: &Path, reviewer: &str, port: u16, link: &str) -> Result<Self> {
        let path = directory.join(format!("reviewer-{}-{port}.link", safe(reviewer)));
        let early = directory.join(format!(".link-{}", random_hex::<8>()?));
        let failed = |error: &std::io::Error| Error::from_io("cannot write", &path, error);
        #[allow(clippy::disallowed_methods, reason = "a new file with a random name, never the database")]
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&early).map_err(|error| failed(&error))?;
        let written = file
            .try_lock()
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(file, "{link}"))
            .and_then(|()| std::fs::rename(&early, &path));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&early);
            return Err(failed(&error));
        }
        Ok(Self { path, _locked: file })
    }
}

impl Drop for LinkFile {
    fn drop(&mut self) {
        // Best effort: its token is worth nothing after the close, and the next start removes what is left.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the links of servers that ended without a close: nobody holds their lock.
pub(super) fn remove_dead(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !(name.starts_with("reviewer-") && name.ends_with(".link")) {
            continue;
        }
        #[allow(clippy::disallowed_methods, reason = "a link file, never the database")]
        let free = File::open(&path).is_ok_and(|file| file.try_lock_shared().is_ok());
        if free {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The reviewer's name, as a part of a file's name; different names stay different, also without case.
fn safe(reviewer: &str) -> String {
    let name = reviewer.to_ascii_lowercase();
    if name.len() <= NAME_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        return name;
    }
    let plain: String = name.chars().take(NAME_MAX).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{plain}-{}", hex(&Sha256::digest(name.as_bytes())[..6]))
}

/// Shows the links where a person looks on, and nowhere else: a piped standard error may be the agent's.
pub(super) fn print_on_terminal(title: &str, links: &[(String, String)]) {
    let mut terminal = std::io::stderr();
    if !terminal.is_terminal() {
        return;
    }
    for (reviewer, link) in links {
        // A terminal that is gone has no reader.
        let _ = writeln!(terminal, "{}: {reviewer} decides at {link}", crate::escape::visible(title));
    }
}

#[cfg(test)]
mod tests {
    use super::safe;

    #[test]
    fn names_of_files_are_safe_and_stay_different() {
        assert_eq!(safe("Ada"), "ada");
        let slashed = safe("team/ada@example.org");
        assert!(slashed.starts_with("team_ada_example_org-"), "{slashed}");
        assert_ne!(safe("team/ada"), safe("team:ada"));
        assert_ne!(safe(&"a".repeat(127)), safe(&"a".repeat(128)));
        assert!(safe(&"/".repeat(128)).len() < 140);
    }
}
