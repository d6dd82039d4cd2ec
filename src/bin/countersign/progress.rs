//! A line that is overwritten while something long goes on, on a terminal alone.

use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::out::Out;

pub(crate) struct Progress {
    what: &'static str,
    started: Instant,
    shown: Option<Instant>,
    on: bool,
}

impl Progress {
    pub(crate) fn new(what: &'static str, out: &Out) -> Self {
        Self { what, started: Instant::now(), shown: None, on: out.is_watched() }
    }

    /// Once it takes longer than a moment, at most ten times a second. A terminal that went away is no reason to stop.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let quiet = Duration::from_millis(if self.shown.is_some() { 100 } else { 300 });
        if self.on && self.shown.unwrap_or(self.started).elapsed() >= quiet {
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
