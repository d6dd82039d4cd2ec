//! Times and spans, in and out.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};

/// `90d`, `12h`, `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}: write a span as 90d, 12h or 5s"))
}

/// A day, a time with its zone, or a span before now.
pub(crate) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        return Ok(day.and_time(chrono::NaiveTime::MIN).and_utc());
    }
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.to_utc());
    }
    humantime::parse_duration(text)
        .ok()
        .and_then(|ago| chrono::TimeDelta::from_std(ago).ok())
        .and_then(|ago| now().checked_sub_signed(ago))
        .ok_or_else(|| "write a time as 2026-03-01, 2026-03-01T12:00:00Z, or 2d for two days ago".to_owned())
}

/// The machine's time.
fn now() -> DateTime<Utc> {
    std::time::SystemTime::now().into()
}

/// As text, in UTC.
pub(crate) fn iso(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// As people read it beside now.
pub(crate) fn relative(time: DateTime<Utc>) -> String {
    let left = time.signed_duration_since(now());
    let span = span_ms(left.num_milliseconds().unsigned_abs());
    if left.num_milliseconds() < 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// The two largest units.
pub(crate) fn span_ms(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, iso, now, span_ms, time};

    #[test]
    fn times_are_days_instants_or_spans_before_now() {
        assert_eq!(iso(time("2026-03-01").unwrap()), "2026-03-01T00:00:00.000Z");
        assert_eq!(iso(time("2026-03-01T12:00:00+02:00").unwrap()), "2026-03-01T10:00:00.000Z");
        assert!(time("2d").unwrap() < now() - chrono::TimeDelta::hours(47));
        for wrong in ["", "yesterday", "2026-02-30", "12:00"] {
            assert!(time(wrong).unwrap_err().contains("2026-03-01"), "{wrong}");
        }
        assert_eq!(duration("90d").unwrap().as_secs(), 90 * 86_400);
        assert!(duration("90").unwrap_err().contains("90d"));
    }

    #[test]
    fn spans_name_the_two_largest_units() {
        let shown: Vec<_> = [0, 999, 59_000, 61_000, 7_260_000, 90_000_000].into_iter().map(span_ms).collect();
        assert_eq!(shown, ["0 ms", "999 ms", "59 s", "1 min 1 s", "2 h 1 min", "1 d 1 h"]);
    }
}
