//! Hosts on tokio, and what a gate tells beside its answers: async verbs, cancellation, waiting for decisions, sinks,
//! traces.

#[path = "../common/mod.rs"]
mod common;

mod cancel;
mod recover;
mod sinks;
mod traces;
mod verbs;
mod wait;

use std::path::Path;
use std::time::{Duration, Instant};

use countersign::{Approval, Created, Gate, NewPlan};
use rusqlite::Connection;

/// Longer than anything here takes: the deadline of every wait.
const SOON: Duration = Duration::from_secs(30);

/// The write lock of the file, held until dropped: every write of a gate waits meanwhile.
struct Locked(Connection);

impl Locked {
    fn take(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(SOON).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(connection)
    }

    fn release(self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

/// Polls a condition that nothing announces.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

fn create(gate: &Gate, payload: i64, approval: Approval) -> Created {
    gate.agent("agent").unwrap().create(NewPlan::new("tool", &payload, approval)).unwrap()
}

/// How many threads of this process have a name that begins so.
fn threads(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            #[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        })
        .filter(|comm| comm.starts_with(name))
        .count()
}

/// How many descriptors of this process are that file.
fn descriptors(path: &Path) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter(|target| target == path)
        .count()
}
