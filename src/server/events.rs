//! The page's own stream: it says that something changed, never what. The page then asks for the queue.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::unfold;
use tokio::sync::watch;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Shared;
use super::answer::Failed;
use super::tokens::Pass;
use crate::operator::Operator;
use crate::store::{Subscription, lock};

/// After a change, so long is not looked for the next one: a busy file does not keep every page asking.
const PAUSE: Duration = Duration::from_millis(100);
/// Until the file is looked at again after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// So often something is sent, so that the page notices a connection that is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How many streams are open at once. A page holds one.
const STREAMS_MAX: usize = 64;

/// What the streams say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// The newest audit row.
    seq: i64,
    /// Counts what concerns the streams themselves: rotations and the close.
    bell: u64,
    closed: bool,
}

/// Looks at the file as long as somebody listens.
pub(super) struct Watcher {
    seen: watch::Sender<Seen>,
    runs: Arc<Mutex<bool>>,
    streams: Arc<Semaphore>,
}

impl Watcher {
    pub(super) fn new() -> Self {
        let seen = watch::Sender::new(Seen { seq: 0, bell: 0, closed: false });
        Self { seen, runs: Arc::default(), streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    /// Every stream asks again whether it may go on.
    pub(super) fn ring(&self) {
        self.seen.send_modify(|seen| seen.bell += 1);
    }

    /// Every stream ends.
    pub(super) fn close(&self) {
        self.seen.send_modify(|seen| seen.closed = true);
    }

    fn listen(&self, operator: &Operator) -> watch::Receiver<Seen> {
        let receiver = self.seen.subscribe();
        let mut runs = lock(&self.runs);
        if !*runs {
            *runs = true;
            tokio::spawn(look(self.seen.clone(), self.runs.clone(), operator.clone()));
        }
        receiver
    }
}

/// Ends when nobody listens; the next listener starts another.
async fn look(seen: watch::Sender<Seen>, runs: Arc<Mutex<bool>>, operator: Operator) {
    let mut changes = None;
    loop {
        {
            let mut runs = lock(&runs);
            if seen.receiver_count() == 0 || seen.borrow().closed {
                *runs = false;
                return;
            }
        }
        let asked = operator.clone();
        let before = changes.take();
        match tokio::task::spawn_blocking(move || newest(&asked, before)).await {
            Ok(Ok((subscription, seq))) => {
                seen.send_if_modified(|seen| std::mem::replace(&mut seen.seq, seq) != seq);
                tokio::time::sleep(PAUSE).await;
                // One that cannot go on is replaced by the next round.
                let change = tokio::select! {
                    change = poll_fn(|context| subscription.poll(context)) => change,
                    () = seen.closed() => Ok(()),
                };
                changes = change.is_ok().then_some(subscription);
            }
            Ok(Err(error)) => {
                crate::report::problem(&format!("approval server: changes cannot be watched: {error}"));
                tokio::time::sleep(RETRY).await;
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Subscribes first, so that nothing is missed between, then reads what moves with every transition of every process.
fn newest(operator: &Operator, before: Option<Subscription>) -> crate::Result<(Subscription, i64)> {
    let subscription = match before {
        Some(subscription) => subscription,
        None => operator.inner.changes()?,
    };
    Ok((subscription, operator.audit().head()?.seq))
}

/// One stream: what it last said, and what it needs to go on.
struct Stream {
    shared: Arc<Shared>,
    pass: Pass,
    receiver: watch::Receiver<Seen>,
    said: Option<i64>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            let seen = *self.receiver.borrow_and_update();
            if seen.closed || !self.shared.tokens.still_good(&self.pass) {
                return None;
            }
            if seen.seq > 0 && self.said != Some(seen.seq) {
                self.said = Some(seen.seq);
                let event = Event::default().event("head").data(format!("{{\"seq\":{}}}", seen.seq));
                return Some((Ok(event), self));
            }
            self.receiver.changed().await.ok()?;
        }
    }
}

pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(pass): Extension<Pass>,
) -> Result<axum::response::Response, Failed> {
    let Ok(place) = shared.watcher.streams.clone().try_acquire_owned() else { return Err(Failed::busy()) };
    let receiver = shared.watcher.listen(&shared.operator);
    let stream = Stream { shared, pass, receiver, said: None, _place: place };
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(unfold(stream, Stream::next)).keep_alive(keep_alive).into_response())
}
