//! A line that is overwritten while something long goes on, on a terminal alone.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

pub(crate) struct Progress {
    what: &'static str,
    shown: Option<Instant>,
    on: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, shown: None, on: std::io::stderr().is_terminal() }
    }

    /// At most ten times a second. A terminal that went away is no reason to stop.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.on && self.shown.is_none_or(|at| at.elapsed() >= Duration::from_millis(100)) {
            self.shown = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r\x1b[K{}: {}", self.what, text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// `done` of `total`, with the share.
pub(crate) fn share(done: u64, total: u64) -> String {
    format!("{done} of {total} rows ({} %)", (done * 100).checked_div(total).unwrap_or(100).min(100))
}
