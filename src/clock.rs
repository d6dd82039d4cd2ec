//! Time comes from a clock that the builder was given, so that tests own it.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};

/// Where a gate reads the time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> i64;

    /// Microseconds since some fixed moment; never goes back. Measures durations.
    fn monotonic_us(&self) -> u64;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The clock of the machine.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still until it is moved. For tests of hosts.
///
/// ```
/// use countersign::{Clock, TestClock};
/// use std::time::Duration;
///
/// let clock = TestClock::at_ms(1_700_000_000_000);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now_ms(), 1_700_000_001_000);
/// clock.set_ms(0); // the wall clock may jump back, the monotonic one does not
/// assert_eq!(clock.monotonic_us(), 1_000_000);
/// ```
#[derive(Debug)]
pub struct TestClock(Mutex<(i64, u64)>);

impl TestClock {
    /// A clock that shows this many milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn at_ms(ms: i64) -> Self {
        Self(Mutex::new((ms, 0)))
    }

    /// Moves both the wall clock and the monotonic clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        now.0 = now.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
        now.1 = now.1.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX));
    }

    /// Sets the wall clock, forward or back.
    pub fn set_ms(&self, ms: i64) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0 = ms;
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    fn monotonic_us(&self) -> u64 {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).1
    }
}

/// Milliseconds as a public time; a stored number outside chrono's range is shown as its nearest bound.
pub(crate) fn utc(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or(if ms < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    })
}
