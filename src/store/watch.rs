//! Who waits for a change, and the one thread that looks for it.
//!
//! While somebody waits, one thread asks `PRAGMA data_version` on a connection of its own: 2 us, and it moves when any
//! other connection commits, of whatever process. Only then are the new audit rows read, and only those who wait for a
//! plan that they name are woken: a thousand waiters cost one thread and one connection, and no table is polled. The
//! thread starts with the first waiter and ends when nobody waits.
//!
//! Nothing is missed: a waiter subscribes first and reads its plan then, and what commits after that read is behind the
//! row up to which the thread has looked.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::conn::Conn;
use super::lock;
use super::pool::Pools;
use super::queries as q;
use super::sql_error::sql_error;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// How often the version is asked for. A commit of this gate is noticed at once.
const TICK: Duration = Duration::from_millis(10);
/// A log being recovered may keep the file locked: the next tick asks again.
const BUSY: Duration = Duration::from_millis(50);
/// More news than this at once wakes everybody instead of naming plans.
const NEWS_MAX: u32 = 10_000;

/// The waiters of one gate.
pub(super) struct Watch {
    shared: Arc<Shared>,
    opened_by: u32,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    kick: Condvar,
    /// True while somebody waits: a commit that nobody waits for costs one load.
    watched: AtomicBool,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, Arc<Slot>>,
    next_id: u64,
    poller: Option<JoinHandle<()>>,
    running: bool,
    /// This gate committed something since the poller looked.
    committed: bool,
    closed: bool,
    /// No waiter is due before both of these.
    next_expiry: Option<i64>,
    next_deadline: Option<Instant>,
}

/// One waiter.
struct Slot {
    /// The plan that it waits for; `None`: any change.
    token: Option<String>,
    /// When that plan expires, on the gate's clock.
    expires_at: Option<i64>,
    deadline: Option<Instant>,
    signal: Mutex<Signal>,
    woken: Condvar,
}

#[derive(Default)]
struct Signal {
    happened: Option<Happened>,
    waker: Option<Waker>,
}

#[derive(Clone)]
enum Happened {
    /// Something to look at: a change, an expiry, the deadline, or the gate was closed.
    Look,
    /// The poller cannot go on.
    Failed(String),
}

impl Watch {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            clock,
            state: Mutex::new(State::default()),
            kick: Condvar::new(),
            watched: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), opened_by: std::process::id() }
    }

    /// Waits for changes of that plan, its expiry and the deadline; without a plan for any change. Starts the poller
    /// where none runs: may block for as long as a connection takes to open.
    pub(super) fn subscribe(
        &self,
        pools: &Pools,
        token: Option<&str>,
        expires_at: Option<i64>,
        deadline: Option<Instant>,
    ) -> Result<Subscription> {
        let slot = Arc::new(Slot {
            token: token.map(str::to_owned),
            expires_at,
            deadline,
            signal: Mutex::default(),
            woken: Condvar::new(),
        });
        let mut state = lock(&self.shared.state);
        if state.closed {
            return Err(Error::closed());
        }
        if !state.running {
            let conn = pools.dedicated(BUSY)?;
            let seen = Seen { version: data_version(&conn)?, seq: head(&conn)? };
            let shared = Arc::clone(&self.shared);
            let poller = std::thread::Builder::new()
                .name("countersign-watch".to_owned())
                .spawn(move || Poller { shared, conn: Some(conn), seen }.run())
                .map_err(|error| Error::storage(format!("cannot start the thread that looks for changes: {error}")))?;
            // One that ended before had closed its connection when `running` became false.
            state.poller = Some(poller);
            state.running = true;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.next_expiry = earlier(state.next_expiry, expires_at);
        state.next_deadline = earlier(state.next_deadline, deadline);
        state.waiting.insert(id, Arc::clone(&slot));
        self.shared.watched.store(true, Ordering::Release);
        drop(state);
        Ok(Subscription { shared: Arc::clone(&self.shared), slot, id })
    }

    /// This gate committed: the poller looks now. A commit that comes too early for this is found by the next tick.
    pub(super) fn committed(&self) {
        if self.shared.watched.load(Ordering::Acquire) {
            lock(&self.shared.state).committed = true;
            self.shared.kick.notify_one();
        }
    }

    /// Everybody is woken, and nobody can wait any more.
    pub(super) fn close(&self) {
        let mut state = lock(&self.shared.state);
        state.closed = true;
        let slots: Vec<_> = state.waiting.values().cloned().collect();
        drop(state);
        self.shared.kick.notify_one();
        wake(slots, &Happened::Look);
    }
}

impl Drop for Watch {
    /// The poller's connection is closed before the gate's file counts as closed. A fork has no poller to wait for.
    fn drop(&mut self) {
        if self.opened_by != std::process::id() {
            return;
        }
        self.close();
        let poller = lock(&self.shared.state).poller.take();
        if let Some(poller) = poller
            && poller.thread().id() != std::thread::current().id()
        {
            // It catches nothing that panics; a panic in it has woken everybody.
            let _ = poller.join();
        }
    }
}

fn earlier<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Wakes these, without a lock of the registry: a waker is code of the host's runtime.
fn wake(slots: Vec<Arc<Slot>>, happened: &Happened) {
    for slot in slots {
        let mut signal = lock(&slot.signal);
        signal.happened = Some(happened.clone());
        let waker = signal.waker.take();
        drop(signal);
        slot.woken.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place among the waiters, given up when dropped.
pub(crate) struct Subscription {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    id: u64,
}

impl Subscription {
    /// Blocks until there is something to look at, or `until`. False: the time is over.
    ///
    /// # Errors
    /// Storage, when the poller cannot go on.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<bool> {
        let mut signal = lock(&self.slot.signal);
        loop {
            if let Some(happened) = signal.happened.take() {
                return happened.answer().map(|()| true);
            }
            signal = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.slot.woken.wait(signal).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Ok(false),
                Some(left) => self.slot.woken.wait_timeout(signal, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// As [`wait`](Subscription::wait), without a thread; the deadline of the subscription wakes it too.
    #[cfg_attr(
        not(any(feature = "approval-server", feature = "tokio")),
        allow(dead_code, reason = "synchronous hosts wait on a thread")
    )]
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut signal = lock(&self.slot.signal);
        match signal.happened.take() {
            Some(happened) => Poll::Ready(happened.answer()),
            None => {
                signal.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.waiting.remove(&self.id);
        if state.waiting.is_empty() {
            self.shared.watched.store(false, Ordering::Release);
        }
    }
}

impl Happened {
    fn answer(self) -> Result<()> {
        match self {
            Self::Look => Ok(()),
            Self::Failed(text) => Err(Error::storage(format!("changes cannot be watched any more: {text}"))),
        }
    }
}

/// Up to where the poller has looked.
struct Seen {
    version: i64,
    seq: i64,
}

struct Poller {
    shared: Arc<Shared>,
    /// `None` once it was closed.
    conn: Option<Conn>,
    seen: Seen,
}

enum News {
    None,
    Plans(HashSet<String>),
    Everything,
}

impl Poller {
    fn run(mut self) {
        let mut failed = "the thread that looks for changes panicked".to_owned();
        // Its own code alone runs in here, and a bug in it must not leave anybody waiting.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if let Err(error) = self.watch() {
                failed = error.to_string();
            } else {
                failed.clear();
            }
        }));
        if !failed.is_empty() {
            let slots = self.end(&mut lock(&self.shared.clone().state));
            wake(slots, &Happened::Failed(failed));
        }
    }

    fn watch(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut state = lock(&shared.state);
            if !state.committed && !state.closed {
                state = shared.kick.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.committed = false;
            if state.closed || state.waiting.is_empty() {
                self.end(&mut state);
                return Ok(());
            }
            drop(state);
            let news = match self.news() {
                Ok(news) => news,
                // Nothing is lost: the version is still the one that was seen.
                Err(error) if error.is_busy() => News::None,
                Err(error) => return Err(error),
            };
            let slots = due(&shared, &news);
            wake(slots, &Happened::Look);
        }
    }

    /// Closes the connection while nobody can start another poller. Answers who is left.
    fn end(&mut self, state: &mut State) -> Vec<Arc<Slot>> {
        self.conn = None;
        state.running = false;
        state.waiting.values().cloned().collect()
    }

    fn news(&mut self) -> Result<News> {
        let Some(conn) = &self.conn else { return Ok(News::None) };
        let version = data_version(conn)?;
        if version == self.seen.version {
            return Ok(News::None);
        }
        let rows = audit_from(conn, self.seen.seq)?;
        let (news, seq) = match rows.split_first() {
            Some(((first, _), rest)) if *first == self.seen.seq && rest.len() < NEWS_MAX as usize => {
                let seq = rest.last().map_or(*first, |(seq, _)| *seq);
                (News::Plans(rest.iter().filter_map(|(_, token)| token.clone()).collect()), seq)
            }
            // The row up to which was read is gone (the file was put back), or there is too much to read.
            _ => (News::Everything, head(conn)?),
        };
        // After the reads: one that fails is repeated.
        self.seen = Seen { version, seq };
        Ok(news)
    }
}

/// Who has something to look at.
fn due(shared: &Shared, news: &News) -> Vec<Arc<Slot>> {
    let (now_ms, now) = (shared.clock.now_ms(), Instant::now());
    let mut state = lock(&shared.state);
    let over = |slot: &Slot| {
        slot.expires_at.is_some_and(|at| at < now_ms) || slot.deadline.is_some_and(|deadline| deadline <= now)
    };
    let any_over =
        state.next_expiry.is_some_and(|at| at < now_ms) || state.next_deadline.is_some_and(|deadline| deadline <= now);
    let named = |slot: &Slot| match (news, &slot.token) {
        (News::None, _) => false,
        (News::Everything, _) => true,
        (News::Plans(plans), None) => !plans.is_empty(),
        (News::Plans(plans), Some(token)) => plans.contains(token),
    };
    if !any_over && matches!(news, News::None) {
        return Vec::new();
    }
    let slots = state.waiting.values().filter(|slot| (any_over && over(slot)) || named(slot)).cloned().collect();
    if any_over {
        let left = || state.waiting.values().filter(|slot| !over(slot));
        let next = (left().filter_map(|slot| slot.expires_at).min(), left().filter_map(|slot| slot.deadline).min());
        (state.next_expiry, state.next_deadline) = next;
    }
    slots
}

fn data_version(conn: &Conn) -> Result<i64> {
    let started = Instant::now();
    conn.sql()
        .prepare_cached("PRAGMA data_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(|error| sql_error(error, started))
}

fn head(conn: &Conn) -> Result<i64> {
    let started = Instant::now();
    conn.sql()
        .prepare_cached(q::AUDIT_HEAD)
        .and_then(|mut statement| statement.query_row([], |row| row.get("seq")))
        .map_err(|error| sql_error(error, started))
}

/// The rows from that number on, itself included: (seq, plan token).
fn audit_from(conn: &Conn, seq: i64) -> Result<Vec<(i64, Option<String>)>> {
    let started = Instant::now();
    let rows = conn.sql().prepare_cached(q::AUDIT_TOKENS_FROM).and_then(|mut statement| {
        let rows = statement.query_map(rusqlite::named_params! {":seq": seq, ":limit": NEWS_MAX + 1}, |row| {
            Ok((row.get("seq")?, row.get("plan_token")?))
        })?;
        rows.collect()
    });
    rows.map_err(|error| sql_error(error, started))
}

#[cfg(test)]
mod tests;
