//! The verbs for hosts that run on tokio (feature `tokio`): `*_async` on the same handles.
//!
//! SQLite blocks, so each verb runs on a blocking thread of the runtime. How many of a gate run at once is bounded in
//! three lanes: reads, as many as there are readers; writes, which queue for one connection anyway; and what takes long
//! (recovery, housekeeping, verification), which holds up neither. Everything that a verb borrows is checked and
//! canonicalised before the hop.
//!
//! # Cancellation
//! A future that is dropped stops waiting; the blocking part runs to its end, so that a transition happens whole or not
//! at all. A claim that nobody received is dropped: its plan is `executing`, this instance knows that nobody works on
//! it, and its own `recover` settles it.

mod agent;
mod claim;
mod hook;
mod operator;
mod reviewer;
mod sink;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::builder::GateBuilder;
use crate::error::{Error, Result};
use crate::gate::{Gate, Inner};

pub(crate) use hook::AsyncHook;
pub use sink::{AuditEvents, ChannelSink};

/// One at work on the writer, one ready to go.
const WRITES: usize = 2;
const LONG: usize = 4;

/// Which verbs wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Read,
    Write,
    Long,
}

/// The places on blocking threads that one gate takes at most.
pub(crate) struct Lanes {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

impl Lanes {
    pub(crate) fn new(readers: u32) -> Self {
        let places = |places| Arc::new(Semaphore::new(places));
        Self { reads: places(readers.min(1_000) as usize), writes: places(WRITES), long: places(LONG) }
    }

    fn lane(&self, lane: Lane) -> &Arc<Semaphore> {
        match lane {
            Lane::Read => &self.reads,
            Lane::Write => &self.writes,
            Lane::Long => &self.long,
        }
    }
}

/// Runs `work` on a blocking thread, when the lane has a place. A wait for the place that is longer than the gate's busy
/// deadline is busy, as it is for a thread that waits for a connection.
pub(crate) async fn hop<T: Send + 'static>(
    inner: Arc<Inner>,
    lane: Lane,
    work: impl FnOnce(&Inner) -> T + Send + 'static,
) -> Result<T> {
    let runtime = runtime()?;
    let started = Instant::now();
    // Nobody closes the lanes.
    let place = Arc::clone(inner.lanes.lane(lane)).acquire_owned().await.map_err(|_| Error::closed())?;
    if lane != Lane::Long && started.elapsed() > inner.options.busy_deadline {
        return Err(Error::busy(started.elapsed()));
    }
    let within = crate::report::here();
    let done = runtime.spawn_blocking(move || {
        let _place = place;
        within.run(|| work(&inner))
    });
    finished(done.await)
}

fn runtime() -> Result<Handle> {
    Handle::try_current().map_err(|_| Error::invalid("an async verb was polled outside of a tokio runtime"))
}

/// A panic goes on where the verb was called. A runtime that shuts down has not run the work.
fn finished<T>(done: Result<T, tokio::task::JoinError>) -> Result<T> {
    done.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => Error::closed(),
    })
}

impl GateBuilder {
    /// As [`open`](GateBuilder::open), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`open`](GateBuilder::open).
    pub async fn open_async(self) -> Result<Gate> {
        finished(runtime()?.spawn_blocking(move || self.open()).await)?
    }
}

impl Gate {
    /// As [`close`](Gate::close), without blocking the runtime. A gate whose last handle is dropped closes itself too,
    /// and that blocks for one transaction.
    ///
    /// # Errors
    /// As for [`close`](Gate::close).
    pub async fn close_async(&self) -> Result<()> {
        let gate = self.clone();
        hop(self.inner.clone(), Lane::Write, move |_| gate.close()).await?
    }
}
