//! How long SQLite waits for a lock.
//!
//! SQLite's own `busy_timeout` sleeps for up to 100 ms while the lock is held for 10 us, so under load one process
//! starves. This handler polls quickly and stops at a deadline that belongs to the calling verb, not to the statement:
//! a verb of five statements waits once, not five times.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// A lock is held for tens of microseconds as a rule, so the first polls are short.
const SHORT_PAUSE_US: u64 = 250;
const SHORT_PAUSES: i32 = 4;
/// Every later pause is one millisecond, 25 % more or less, so that waiting processes do not march in step.
const LONG_PAUSE_US: u64 = 1_000;
const JITTER_US: u64 = 250;

thread_local! {
    /// SQLite calls the handler on the thread that runs the statement, and rusqlite's handler carries no state of its
    /// own: the deadline of the verb that runs on this thread stands here.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static JITTER: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish() | 1);
}

/// Makes this connection wait with [`arm`]'s deadline.
pub(crate) fn install(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait))
}

/// The moment at which a verb that began at `started` stops waiting. A limit beyond all clocks is a year.
pub(crate) fn deadline(started: Instant, limit: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    started + limit.min(YEAR)
}

/// Statements on this thread wait for locks until `deadline`, whichever connection they use.
pub(crate) fn arm(deadline: Instant) {
    DEADLINE.set(Some(deadline));
}

/// Gives a statement outside any verb a deadline of its own: one that an earlier verb left behind is over.
pub(crate) fn arm_if_past(limit: Duration) {
    let now = Instant::now();
    if DEADLINE.get().is_none_or(|armed| armed <= now) {
        DEADLINE.set(Some(deadline(now, limit)));
    }
}

/// Sleeps before attempt `previous + 2`; false once the deadline has passed.
pub(crate) fn pause_until(deadline: Instant, previous: i32) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    std::thread::sleep(pause(previous).min(left));
    true
}

/// Without a deadline nobody answers for the waiting, so there is none.
fn wait(previous: i32) -> bool {
    DEADLINE.get().is_some_and(|armed| pause_until(armed, previous))
}

fn pause(previous: i32) -> Duration {
    if previous < SHORT_PAUSES {
        return Duration::from_micros(SHORT_PAUSE_US);
    }
    Duration::from_micros(LONG_PAUSE_US - JITTER_US + random() % (2 * JITTER_US + 1))
}

/// xorshift64: spread is all that is asked of it.
fn random() -> u64 {
    let mut x = JITTER.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    JITTER.set(x);
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_four_pauses_are_short_and_later_ones_spread_around_a_millisecond() {
        for previous in 0..4 {
            assert_eq!(pause(previous), Duration::from_micros(250));
        }
        let later: Vec<_> = (4..200).map(pause).collect();
        assert!(later.iter().all(|p| (750..=1_250).contains(&p.as_micros())), "{later:?}");
        assert!(later.iter().any(|p| p.as_micros() < 950) && later.iter().any(|p| p.as_micros() > 1_050));
    }

    #[test]
    fn nobody_waits_past_the_deadline_or_without_one() {
        assert!(!pause_until(Instant::now(), 0));
        DEADLINE.set(None);
        assert!(!wait(0));
        arm(Instant::now() + Duration::from_secs(60));
        assert!(wait(0));
        arm(Instant::now());
        assert!(!wait(0));
        arm_if_past(Duration::from_secs(60));
        assert!(wait(0));
    }
}
