//! A sink that hands events to a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::audit::{AuditEvent, AuditSink};

/// An [`AuditSink`] that puts events into a bounded channel and never waits: what finds no room is counted and dropped.
/// The table is the record; a task that finds it missed something reads the rows after the last `seq` that it has.
///
/// ```
/// use countersign::{Approval, ChannelSink, Gate, NewPlan};
/// # let dir = tempfile::tempdir().unwrap();
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (sink, mut events) = ChannelSink::new(1_000);
/// let gate = Gate::builder(dir.path().join("gate.db")).audit_sink(sink).open_async().await?;
/// gate.agent("pricing-agent")?.create_async(NewPlan::new("update_prices", &1, Approval::required())).await?;
/// assert_eq!(events.recv().await.unwrap().event, "store_created");
/// assert_eq!(events.recv().await.unwrap().event, "awaiting_approval");
/// assert_eq!(events.dropped(), 0);
/// # Ok::<(), countersign::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct ChannelSink {
    send: mpsc::Sender<AuditEvent>,
    dropped: Arc<AtomicU64>,
}

impl ChannelSink {
    /// A sink for [`GateBuilder::audit_sink`](crate::GateBuilder::audit_sink), and the end from which a task receives.
    /// The channel holds `capacity` events, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> (Arc<Self>, AuditEvents) {
        let (send, receive) = mpsc::channel(capacity.clamp(1, tokio::sync::Semaphore::MAX_PERMITS));
        let dropped = Arc::new(AtomicU64::new(0));
        (Arc::new(Self { send, dropped: Arc::clone(&dropped) }), AuditEvents { receive, dropped })
    }

    /// How many events found no room, or nobody to receive them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AuditSink for ChannelSink {
    fn on_event(&self, event: &AuditEvent) {
        if self.send.try_send(event.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The receiving end of a [`ChannelSink`].
#[derive(Debug)]
pub struct AuditEvents {
    receive: mpsc::Receiver<AuditEvent>,
    dropped: Arc<AtomicU64>,
}

impl AuditEvents {
    /// The next event, in the order of the commits; `None` once the gate and its sink are gone. Nothing is lost when the
    /// future is dropped.
    pub async fn recv(&mut self) -> Option<AuditEvent> {
        self.receive.recv().await
    }

    /// The next event, when there is one now.
    pub fn try_recv(&mut self) -> Option<AuditEvent> {
        self.receive.try_recv().ok()
    }

    /// How many events were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
