//! Figures and the examination.

use std::path::Path;

use countersign::escape::still_visible;
use countersign::{Doctor, Head, Level};
use serde_json::json;

use crate::fail::{Failure, Outcome};
use crate::operate::cell_row;
use crate::out::{Out, Style};
use crate::progress::{self, Progress};
use crate::session::Session;
use crate::when::span_ms;

pub(crate) fn stats(session: &Session, out: &mut Out) -> Outcome {
    let stats = session.operator(None)?.stats()?;
    if out.is_json() {
        return out.json(&stats);
    }
    let mut rows: Vec<_> =
        stats.plans.iter().map(|count| cell_row(&format!("plans {}", count.state), count.plans)).collect();
    rows.push(cell_row("plans past their time, not swept", stats.overdue));
    rows.push(cell_row("plans purged", stats.purged));
    let times = stats.decision_time;
    rows.push(cell_row("decisions", times.decisions));
    for (label, time) in [("50 %", times.p50_ms), ("90 %", times.p90_ms), ("99 %", times.p99_ms), ("all", times.max_ms)]
    {
        if let Some(time) = time {
            rows.push(cell_row(&format!("{label} decided within"), span_ms(time.unsigned_abs())));
        }
    }
    rows.extend(stats.refusals.iter().map(|count| cell_row(&format!("refused {}", count.code), count.refusals)));
    rows.push(cell_row("audit rows", stats.audit_rows));
    rows.push(cell_row("audit index", if stats.audit_index { "on" } else { "off" }));
    rows.push(cell_row("file bytes", stats.file_bytes));
    rows.push(cell_row("log bytes", stats.wal_bytes));
    out.table(&["what", "value"], &rows)
}

pub(crate) fn doctor(path: &Path, head: Option<Head>, out: &mut Out) -> Outcome {
    let mut progress = Progress::new("audit chain", out);
    let mut doctor = Doctor::new(path).progress(|done, total| progress.show(|| progress::share(done, total)));
    if let Some(head) = head {
        doctor = doctor.head(head);
    }
    let report = doctor.examine();
    drop(progress);
    let level = report.level();
    if out.is_json() {
        out.json(&json!({"path": report.path.to_string_lossy(), "level": level, "checks": report.checks}))?;
    } else {
        for check in &report.checks {
            let style = match check.level {
                Level::Ok => Style::Good,
                Level::Warning => Style::Attention,
                Level::Failure => Style::Bad,
            };
            let mark = out.paint(style, &format!("{:<7}", check.level.as_str()));
            out.line(&format!("{mark}  {}: {}", check.check, still_visible(&check.found)))?;
            if let Some(advice) = &check.advice {
                out.line(&format!("         {}", still_visible(advice)))?;
            }
        }
    }
    if level == Level::Failure { Err(Failure::Found) } else { Ok(()) }
}
