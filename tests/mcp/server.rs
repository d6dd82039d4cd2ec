//! Where the server runs, and the server itself.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::Connection;

use super::common;

/// The directory of one server's databases.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new() -> Self {
        Self(common::directory())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn gate(&self) -> PathBuf {
        self.0.join("gate.db")
    }

    /// A connection to the shop, which this process opens by SQLite alone.
    pub(super) fn shop(&self) -> Connection {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let connection = Connection::open_with_flags(self.0.join("shop.db"), flags).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }

    /// What the kernel tells about a process.
    pub(super) fn of_process(&self, pid: u32, what: &str) -> Vec<u8> {
        #[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
        std::fs::read(format!("/proc/{pid}/{what}")).unwrap()
    }
}

/// The built example, beside this test's own program; built once, as `cargo test --test mcp` alone does not.
pub(super) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let profile = deps.parent().unwrap();
        let mut build = std::process::Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--example", "mcp_server", "--all-features", "--target-dir"]);
        build.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the example does not build");
        profile.join("examples").join("mcp_server")
    })
}
