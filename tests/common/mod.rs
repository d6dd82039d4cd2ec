//! What several test binaries share.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::PathBuf;

use countersign::{Error, Gate, GateBuilder, Outcome};
use serde_json::{Value, json};

/// A directory for one test, kept as long as the gate's process.
pub(crate) fn directory() -> PathBuf {
    tempfile::Builder::new().prefix("countersign-test-").tempdir().unwrap().keep()
}

/// Held by tests of one binary that count the threads of their process.
pub(crate) fn one_at_a_time() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A gate on a fresh file, with options.
pub(crate) fn ephemeral(set: impl FnOnce(GateBuilder) -> GateBuilder) -> Gate {
    set(Gate::builder(directory().join("gate.db"))).open().unwrap()
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
