//! What several test binaries share.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod child;
pub(crate) mod host;
pub(crate) mod invariants;
pub(crate) mod ledger;
pub(crate) mod populated;
pub(crate) mod tools;
pub(crate) mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign::{Clock as _, Error, Gate, GateBuilder, Outcome, SystemClock, TestClock};
use serde_json::{Value, json};

/// A fresh directory. It goes when the thread that asked for it ends, which is when its test ends.
pub(crate) fn directory() -> PathBuf {
    thread_local! {
        static ROOT: tempfile::TempDir = tempfile::Builder::new().prefix("countersign-test-").tempdir().unwrap();
    }
    ROOT.with(|root| tempfile::tempdir_in(root.path()).unwrap().keep())
}

/// Held by tests of one binary that count the threads of their process.
pub(crate) fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A builder with as many readers as `COUNTERSIGN_TEST_READERS` says: everything has to work with one.
pub(crate) fn builder(path: impl AsRef<Path>) -> GateBuilder {
    // A machine may stand still for seconds, and a disk may take tens of milliseconds a commit. A test that waits for BUSY
    // sets its own deadline.
    let builder = Gate::builder(path).busy_deadline(Duration::from_secs(120));
    match std::env::var("COUNTERSIGN_TEST_READERS") {
        Ok(readers) => builder.readers(readers.parse().unwrap()),
        Err(_) => builder,
    }
}

/// A gate on a fresh file, with options.
pub(crate) fn ephemeral(set: impl FnOnce(GateBuilder) -> GateBuilder) -> Gate {
    set(builder(directory().join("gate.db"))).open().unwrap()
}

/// An answer in the traces' form.
pub(crate) fn answer<T>(answer: Result<T, Error>, ok: impl FnOnce(T) -> Value) -> Value {
    match answer {
        Ok(value) => ok(value),
        Err(error) => {
            let refusal = error.refusal().unwrap_or_else(|| panic!("a storage error: {error}"));
            let mut said = json!({"ok": false, "code": error.code()});
            if let Some(reason) = refusal.reason() {
                said["reason"] = json!(reason);
            }
            said
        }
    }
}

/// The outcomes of the traces.
pub(crate) enum ExecuteOutcome {
    Done,
    NotDone,
    Unknown,
}

impl ExecuteOutcome {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "done" => Self::Done,
            "not-done" => Self::NotDone,
            "unknown" => Self::Unknown,
            other => panic!("no outcome: {other}"),
        }
    }
}

impl From<ExecuteOutcome> for Outcome {
    fn from(outcome: ExecuteOutcome) -> Self {
        match outcome {
            ExecuteOutcome::Done => Self::done(&"done"),
            ExecuteOutcome::NotDone => Self::NotDone,
            ExecuteOutcome::Unknown => Self::Unknown,
        }
    }
}

/// True when the program is there. Without it a test fails in CI, and says that it was skipped elsewhere.
pub(crate) fn has(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok_and(|run| run.status.success());
    assert!(found || std::env::var("CI").as_deref() != Ok("true"), "CI needs {program}");
    if !found {
        println!("skipped: needs {program}");
    }
    found
}

/// A gate at the present time in which everything has happened once.
pub(crate) fn populated() -> populated::Populated {
    let days = 2 * 24 * 60 * 60 * 1_000;
    let minutes = 10 * 60 * 1_000;
    let clock = Arc::new(TestClock::at_ms(SystemClock::new().now_ms() - days - minutes));
    let gate = ephemeral(|builder| builder.clock(clock.clone()));
    populated::Populated::fill(gate, clock)
}
