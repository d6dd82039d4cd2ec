//! Questions of auditors about a large file, with the indexes for auditors on.

use std::path::Path;
use std::time::Instant;

use countersign::{AuditQuery, Gate};
use rusqlite::{Connection, OpenFlags};

use crate::figures::Figures;

/// About the file that `fill` made.
pub(crate) fn run(path: &Path, plans: u32, figures: &mut Figures) {
    let gate = Gate::open(path).expect("a gate");
    let operator = gate.operator("auditor").expect("a name");
    let size = operator.health().expect("figures").file_bytes;
    let started = Instant::now();
    operator.audit_index(true).expect("the indexes");
    figures.note("questions: plans", f64::from(plans), "");
    figures.note("questions: making the indexes took", started.elapsed().as_secs_f64(), "s");
    let indexed = operator.health().expect("figures").file_bytes;
    figures.note("questions: file", size as f64 / 1e9, "GB");
    figures.note("questions: of it the indexes add", indexed.saturating_sub(size) as f64 / 1e9, "GB");

    let token = crate::fill::token(plans / 2);
    let day = "at >= '2026-06-01' AND at < '2026-06-02'";
    let sql = [
        ("a plan's timeline", format!("SELECT * FROM plan_timeline WHERE plan_token = '{token}'")),
        ("a tool, newest 100", "SELECT * FROM audit_log WHERE tool = 'tool-7' ORDER BY seq DESC LIMIT 100".to_owned()),
        ("a tool on a day", format!("SELECT * FROM audit_log WHERE tool = 'tool-7' AND {day}")),
        (
            "a tool, newest of an event that it never had",
            "SELECT count(*) FROM (SELECT 1 FROM audit_log WHERE tool = 'tool-7' AND event = 'failed' ORDER BY seq LIMIT 100)"
                .to_owned(),
        ),
        (
            "a tool, counts by event",
            "SELECT event, count(*) FROM audit_events WHERE tool = 'tool-7' GROUP BY event".to_owned(),
        ),
        (
            "a caller, counts by event",
            "SELECT event, count(*) FROM audit_events WHERE caller = 'agent-7' GROUP BY event".to_owned(),
        ),
        ("a tool's refusals on a day", format!("SELECT * FROM audit_log WHERE tool = 'tool-7' AND event = 'refused' AND {day}")),
        ("a caller, first 100", "SELECT * FROM audit_log WHERE caller = 'AGENT-7' LIMIT 100".to_owned()),
        ("a caller on a day", format!("SELECT * FROM audit_log WHERE caller = 'agent-7' AND {day}")),
        ("a day, every row", format!("SELECT * FROM audit_log WHERE {day}")),
        ("a day, counts by event", format!("SELECT event, count(*) FROM audit_log WHERE {day} GROUP BY event")),
        ("a rare code", "SELECT * FROM audit_log WHERE code = 'SELF_APPROVAL' ORDER BY seq LIMIT 100".to_owned()),
    ];
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the file");
    for (name, sql) in &sql {
        let mut rows = 0;
        let took = median(|| rows = read(&connection, sql));
        assert!(rows > 0, "{name}");
        figures.at_most(format!("questions: {name} ({rows} rows), ms"), took, 100.0);
    }
    let time = |text: &str| text.parse().expect("a time");
    let on_day = |query: AuditQuery| query.since(time("2026-06-01T00:00:00Z")).until(time("2026-06-02T00:00:00Z"));
    let calls = [
        ("a plan", AuditQuery::new().plan(&token)),
        ("a tool, newest 1,000", AuditQuery::new().tool("tool-7").newest_first()),
        ("a tool on a day", on_day(AuditQuery::new().tool("tool-7"))),
        ("a caller on a day", on_day(AuditQuery::new().caller("agent-7"))),
        ("a tool's executions on a day", on_day(AuditQuery::new().tool("tool-7").event("executed"))),
        ("a caller's refusals, newest 1,000", AuditQuery::new().caller("agent-7").event("refused").newest_first()),
        ("a day, 1,000 rows", on_day(AuditQuery::new())),
    ];
    for (name, query) in &calls {
        let mut rows = 0;
        let took = median(|| rows = operator.audit().query(query).expect("rows").len());
        assert!(rows > 0, "{name}");
        figures.at_most(format!("questions: query() of {name} ({rows} rows), ms"), took, 100.0);
    }
}

fn read(connection: &Connection, sql: &str) -> usize {
    let mut statement = connection.prepare_cached(sql).expect("a statement");
    let columns = statement.column_count();
    let mut found = statement.query([]).expect("rows");
    let mut rows = 0;
    while let Some(row) = found.next().expect("a row") {
        for column in 0..columns {
            std::hint::black_box(row.get_ref(column).expect("a column"));
        }
        rows += 1;
    }
    rows
}

/// In milliseconds.
fn median(mut question: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let started = Instant::now();
            question();
            started.elapsed().as_secs_f64() * 1_000.0
        })
        .collect();
    crate::figures::median(&mut times)
}
