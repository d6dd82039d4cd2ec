//! Running the binary: piped, and on a pseudo-terminal.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// Far beyond what any step takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A directory for one test.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("countersign-cli-").tempdir().unwrap()
}

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// The error, with what it says to do.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

pub(crate) fn command(db: Option<&Path>, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.env_remove("COUNTERSIGN_DB").env_remove("NO_COLOR").env("TERM", "xterm").args(args);
    if let Some(db) = db {
        command.env("COUNTERSIGN_DB", db);
    }
    command
}

/// Without a terminal anywhere.
pub(crate) fn run(db: &Path, args: &[&str]) -> Ran {
    ran(command(Some(db), args))
}

pub(crate) fn ran(mut command: Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The binary on a pseudo-terminal of 160 columns.
pub(crate) struct Terminal {
    child: Child,
    master: std::fs::File,
    chunks: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    pub(crate) fn start(db: &Path, args: &[&str]) -> Self {
        Self::start_with(db, args, None)
    }

    /// With this standard output instead of the terminal.
    pub(crate) fn start_with(db: &Path, args: &[&str], stdout: Option<Stdio>) -> Self {
        Self::of(command(Some(db), args), stdout)
    }

    pub(crate) fn of(command: Command, stdout: Option<Stdio>) -> Self {
        Self::of_width(command, stdout, 160)
    }

    pub(crate) fn of_width(mut command: Command, stdout: Option<Stdio>, columns: u16) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = PathBuf::from(ptsname(&master, Vec::new()).unwrap().into_string().unwrap());
        let slave: OwnedFd = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap().into();
        let size = rustix::termios::Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&slave, size).unwrap();
        command.stdin(slave.try_clone().unwrap());
        command.stdout(stdout.unwrap_or_else(|| slave.try_clone().unwrap().into())).stderr(slave);
        let child = command.spawn().unwrap();
        // The command holds the slave's descriptors: with them gone, the end of the child is the end of the terminal.
        drop(command);
        let master = std::fs::File::from(master);
        let mut reading = master.try_clone().unwrap();
        let (send, chunks) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The last close of the slave is an error of the read.
            while let Ok(read @ 1..) = std::io::Read::read(&mut reading, &mut buffer) {
                if send.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, master, chunks, seen: String::new() }
    }

    /// Reads on until this text stands there.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + DEADLINE;
        while !self.seen.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.seen.push_str(&String::from_utf8_lossy(&chunk)),
                Err(_) => panic!("{text:?} did not come:\n{}", self.seen),
            }
        }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// The exit code, and all that stood on the terminal.
    pub(crate) fn finish(mut self) -> (i32, String) {
        while let Ok(chunk) = self.chunks.recv_timeout(DEADLINE) {
            self.seen.push_str(&String::from_utf8_lossy(&chunk));
        }
        (self.child.wait().unwrap().code().expect("no signal ended it"), self.seen.replace("\r\n", "\n"))
    }
}

/// On a terminal, without being asked anything.
pub(crate) fn on_terminal(db: &Path, args: &[&str]) -> (i32, String) {
    Terminal::start(db, args).finish()
}

/// Snapshots with the values that differ from run to run named.
pub(crate) fn stable<T>(check: impl FnOnce() -> T) -> T {
    let mut settings = insta::Settings::clone_current();
    for (pattern, name) in [
        (r"\x1b\[[0-9;]*m", ""),
        (r"\b[0-9a-f]{64}\b", "[sha256]"),
        (r"\b[0-9a-f]{48}\b", "[token]"),
        (r"\b[0-9a-f]{32}\b", "[id]"),
        (r"\b[0-9a-f]{12}…", "[12 digits]…"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[time]"),
        (r"\b\d+ (ms|s) ago", "[just now]"),
        (r"via cli:[A-Za-z0-9._-]+ *", "via cli:[user] "),
        (r"in 23 h (29|30) min", "in 23 h 29 min"),
    ] {
        settings.add_filter(pattern, name);
    }
    settings.add_filter(&format!(r"\b{} via cli:", os_user()), "[user] via cli:");
    settings.bind(check)
}

/// The user as the operating system knows it.
pub(crate) fn os_user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whole audit rows that belong to no plan, written past the gate.
pub(crate) fn lengthen(db: &Path, rows: i64) {
    lengthen_at(db, rows, 1_700_000_000_000);
}

/// Of that time.
pub(crate) fn lengthen_at(db: &Path, rows: i64, at: i64) {
    let mut connection = rusqlite::Connection::open(db).unwrap();
    let newest = "SELECT seq, hash FROM audit_events ORDER BY seq DESC LIMIT 1";
    let (seq, mut hash): (i64, String) =
        connection.query_row(newest, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let tx = connection.transaction().unwrap();
    let mut insert = tx
        .prepare(
            "INSERT INTO audit_events (seq, at, event, actor, channel, instance_id, prev_hash, hash)
             VALUES (?1, ?2, 'host:note', 'a', 'library', 'i', ?3, ?4)",
        )
        .unwrap();
    for seq in seq + 1..=seq + rows {
        let columns = format!(
            "[{seq},{at},null,\"host:note\",null,null,null,null,null,\"a\",\"library\",null,null,null,null,null,\"i\",null]"
        );
        let digest = Sha256::digest(format!("{hash}{columns}"));
        let next: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        insert.execute(rusqlite::params![seq, at, hash, next]).unwrap();
        hash = next;
    }
    drop(insert);
    tx.commit().unwrap();
}
