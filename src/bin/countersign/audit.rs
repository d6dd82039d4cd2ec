//! Reading and checking the audit.

use std::time::Duration;

use countersign::escape::{defuse_stored_csv, still_visible};
use countersign::{AuditEvent, AuditQuery, Head};
use serde_json::json;

use crate::args::{Filter, Format, Switch};
use crate::fail::{Failure, Outcome};
use crate::out::{Cell, Out, Style};
use crate::progress::{self, Progress};
use crate::session::Session;
use crate::when::iso;

pub(crate) const HEADER: &[&str] = &["seq", "at", "event", "state", "plan", "tool", "caller", "who", "code", "reason"];

/// Rows a page: a read is short, and a pipe is filled as it is emptied.
const PAGE: u32 = 1_000;

/// How often a follower looks for new rows.
const FOLLOW: Duration = Duration::from_millis(200);

/// The columns that people look at. Texts of the audit are escaped in the file.
pub(crate) fn row(event: &AuditEvent) -> Vec<Cell> {
    let state = match (event.from_state.as_deref(), event.to_state.as_deref()) {
        (None, to) => to.unwrap_or("").to_owned(),
        (Some(from), Some(to)) if from != to => format!("{from} > {to}"),
        (Some(from), _) => from.to_owned(),
    };
    vec![
        Cell::number(event.seq),
        Cell::number(at(event)),
        Cell::stored(&event.event),
        Cell::stored(&state),
        Cell::maybe_stored(event.plan_token.as_deref()),
        Cell::maybe_stored(event.tool.as_deref()),
        Cell::maybe_stored(event.caller.as_deref()),
        Cell::stored(&format!("{} via {}", event.actor, event.channel)),
        Cell::maybe_stored(event.code.as_deref()),
        Cell::maybe_stored(event.reason.as_deref()),
    ]
}

/// What happened to one plan, without what its card says already.
pub(crate) const TIMELINE: &[&str] = &["seq", "at", "event", "state", "who", "attempt", "code", "reason"];

pub(crate) fn timeline_row(event: &AuditEvent) -> Vec<Cell> {
    let mut all = row(event);
    let reason = all.pop().into_iter();
    let code = all.pop().into_iter();
    let who = all.pop().into_iter();
    let attempt = Cell::number(event.attempt.map_or_else(String::new, |attempt| attempt.to_string()));
    all.truncate(4);
    all.into_iter().chain(who).chain([attempt]).chain(code).chain(reason).collect()
}

/// The same on one line.
pub(crate) fn line(event: &AuditEvent) -> String {
    let cells: Vec<_> = row(event).into_iter().map(|cell| cell.shown()).collect();
    cells.join("  ")
}

fn at(event: &AuditEvent) -> String {
    chrono::DateTime::from_timestamp_millis(event.at).map_or_else(|| event.at.to_string(), iso)
}

pub(crate) fn tail(session: &Session, lines: u32, follow: bool, out: &mut Out) -> Outcome {
    let operator = session.operator(None)?;
    let audit = operator.audit();
    let mut events = audit.query(&AuditQuery::new().newest_first().limit(lines))?;
    events.reverse();
    let mut last = match events.last() {
        Some(event) => event.seq,
        None => audit.head()?.seq,
    };
    if !out.is_json() && !out.is_terminal() {
        out.line(&HEADER.join("\t"))?;
    }
    loop {
        for event in &events {
            last = event.seq;
            if out.is_json() {
                out.json(event)?;
            } else {
                out.cells(&row(event))?;
            }
        }
        out.flush()?;
        if !follow {
            return Ok(());
        }
        events = audit.query(&AuditQuery::new().after(last).limit(PAGE))?;
        if events.is_empty() {
            // A reader that went away is noticed at the next row.
            std::thread::sleep(FOLLOW);
        }
    }
}

fn query(filter: &Filter) -> AuditQuery {
    let mut query = AuditQuery::new();
    if let Some(token) = &filter.plan {
        query = query.plan(token);
    }
    if let Some(tool) = &filter.tool {
        query = query.tool(tool);
    }
    if let Some(caller) = &filter.caller {
        query = query.caller(caller);
    }
    if let Some(event) = &filter.event {
        query = query.event(event);
    }
    if let Some(code) = &filter.code {
        query = query.code(code);
    }
    if let Some(since) = filter.since {
        query = query.since(since);
    }
    if let Some(until) = filter.until {
        query = query.until(until);
    }
    query
}

pub(crate) fn search(session: &Session, filter: &Filter, limit: u32, newest_first: bool, out: &mut Out) -> Outcome {
    let mut query = query(filter).limit(limit);
    if newest_first {
        query = query.newest_first();
    }
    let events = session.operator(None)?.audit().query(&query)?;
    if out.is_json() {
        return out.json(&json!({"events": events}));
    }
    if events.is_empty() && out.is_terminal() {
        return out.line("No row is like that.");
    }
    let mut rows: Vec<_> = events.iter().map(row).collect();
    if out.is_terminal() {
        // A token in full would take a third of the line; pipes and --json give it.
        for (row, event) in rows.iter_mut().zip(&events) {
            let token = event.plan_token.as_deref().and_then(|token| token.get(..12));
            row[4] = token.map_or(Cell::text(""), |start| Cell::stored(&format!("{start}…")));
        }
    }
    out.table(HEADER, &rows)?;
    if events.len() as u64 == u64::from(limit) && out.is_terminal() {
        out.line(&format!("{limit} rows: there may be more; raise --limit, or use audit export."))?;
    }
    Ok(())
}

pub(crate) fn verify(session: &Session, head: Option<&Head>, out: &mut Out) -> Outcome {
    let mut progress = Progress::new("verify", out);
    let report = session.operator(None)?.audit().verify_with(head, &mut |done, total| {
        progress.show(|| progress::share(done, total));
    })?;
    drop(progress);
    if out.is_json() {
        out.json(&json!({
            "intact": report.is_intact(), "rows": report.rows, "plans": report.plans, "head": report.head,
            "tail_checked": report.tail_checked, "difference": report.difference,
        }))?;
    } else {
        let walked = format!("{} rows, {} plans", report.rows, report.plans);
        match &report.difference {
            None => {
                let intact = out.paint(Style::Good, "intact");
                out.line(&format!("{intact}: {walked}"))?;
                if let Some(head) = &report.head {
                    out.line(&format!("head {head}"))?;
                }
                if !report.tail_checked {
                    out.line("No earlier head was given: a tail that was cut off would not show. Keep this head outside this machine, and pass it with --head next time.")?;
                }
            }
            Some(difference) => {
                let differs = out.paint(Style::Bad, "DIFFERENCE");
                let what = difference.to_string();
                out.line(&format!("{differs} after {walked}: {}", still_visible(&what)))?;
                out.line(
                    "Somebody wrote past the gate. Keep a copy of the file as evidence; compare it with a backup.",
                )?;
            }
        }
    }
    if report.is_intact() { Ok(()) } else { Err(Failure::Found) }
}

pub(crate) fn head(session: &Session, out: &mut Out) -> Outcome {
    let head = session.operator(None)?.audit().head()?;
    if out.is_json() {
        return out.json(&json!({
            "head": head.to_string(), "store_id": head.store_id, "seq": head.seq, "hash": head.hash,
        }));
    }
    out.line(&head.to_string())
}

/// The columns of `audit_events`, in the order of the hash.
const COLUMNS: [&str; 20] = [
    "seq",
    "at",
    "plan_token",
    "event",
    "from_state",
    "to_state",
    "tool",
    "caller",
    "reason",
    "actor",
    "channel",
    "code",
    "detail",
    "preview_count",
    "fingerprint",
    "attempt",
    "instance_id",
    "duration_us",
    "prev_hash",
    "hash",
];

pub(crate) fn export(session: &Session, format: Format, filter: &Filter, out: &mut Out) -> Outcome {
    let operator = session.operator(None)?;
    let audit = operator.audit();
    let mut csv = csv::Writer::from_writer(Vec::new());
    if format == Format::Csv {
        csv.write_record(COLUMNS).map_err(csv_error)?;
    }
    let mut last = 0;
    loop {
        let events = audit.query(&query(filter).after(last).limit(PAGE))?;
        for event in &events {
            last = event.seq;
            match format {
                Format::Jsonl => out.json(event)?,
                Format::Csv => csv.write_record(record(event)).map_err(csv_error)?,
            }
        }
        csv.flush()?;
        out.raw(csv.get_ref())?;
        csv = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        if events.len() < PAGE as usize {
            return Ok(());
        }
    }
}

fn csv_error(error: csv::Error) -> Failure {
    std::io::Error::other(error).into()
}

/// Texts of the audit are escaped in the file; here no cell starts a formula either.
fn record(event: &AuditEvent) -> [String; 20] {
    let text = |text: &str| defuse_stored_csv(text).into_owned();
    let maybe = |value: &Option<String>| value.as_deref().map_or_else(String::new, text);
    let number = |value: Option<i64>| value.map_or_else(String::new, |value| value.to_string());
    [
        event.seq.to_string(),
        event.at.to_string(),
        maybe(&event.plan_token),
        text(&event.event),
        maybe(&event.from_state),
        maybe(&event.to_state),
        maybe(&event.tool),
        maybe(&event.caller),
        maybe(&event.reason),
        text(&event.actor),
        text(&event.channel),
        maybe(&event.code),
        maybe(&event.detail),
        number(event.preview_count),
        maybe(&event.fingerprint),
        number(event.attempt),
        text(&event.instance_id),
        number(event.duration_us),
        text(&event.prev_hash),
        text(&event.hash),
    ]
}

pub(crate) fn index(session: &Session, switch: Switch, out: &mut Out) -> Outcome {
    let on = switch == Switch::On;
    let json = out.is_json();
    let already = session.operator(None)?.audit_index(on).inspect_err(|_| {
        // Each is made in a transaction of its own, so that nobody waits for all of them.
        if !json {
            eprintln!("Some of the indexes may stand: run `countersign audit index` again, on or off.");
        }
    })?;
    if out.is_json() {
        return out.json(&json!({"audit_index": on, "already": already}));
    }
    let state = if on { "on" } else { "off" };
    out.line(&if already {
        format!("Nothing changed: the indexes for auditors were {state}.")
    } else {
        format!("The indexes for auditors are {state} now.")
    })
}
