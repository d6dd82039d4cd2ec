//! Questions of auditors about a large file, with the indexes for auditors on.

use std::time::Instant;

use countersign::{AuditQuery, Gate};
use rusqlite::{Connection, OpenFlags};

use crate::figures::Figures;

/// 2026-01-01T00:00:00Z
const YEAR_MS: i64 = 1_767_225_600_000;

pub(crate) fn run(plans: u32, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("gate.db");
    drop(Gate::open(&path).expect("a gate"));
    fill(&path, plans);
    let gate = Gate::open(&path).expect("a gate");
    let operator = gate.operator("auditor").expect("a name");
    let size = operator.health().expect("figures").file_bytes;
    let started = Instant::now();
    operator.audit_index(true).expect("the indexes");
    figures.note("questions: plans", f64::from(plans), "");
    figures.note("questions: making the indexes took", started.elapsed().as_secs_f64(), "s");
    let indexed = operator.health().expect("figures").file_bytes;
    figures.note("questions: file", size as f64 / 1e9, "GB");
    figures.note("questions: of it the indexes add", indexed.saturating_sub(size) as f64 / 1e9, "GB");

    let token = format!("{:048x}", plans / 2);
    let day = "at >= '2026-06-01' AND at < '2026-06-02'";
    let sql = [
        ("a plan's timeline", format!("SELECT * FROM plan_timeline WHERE plan_token = '{token}'")),
        ("a tool, newest 100", "SELECT * FROM audit_log WHERE tool = 'tool-7' ORDER BY seq DESC LIMIT 100".to_owned()),
        ("a tool on a day", format!("SELECT * FROM audit_log WHERE tool = 'tool-7' AND {day}")),
        ("a caller, first 100", "SELECT * FROM audit_log WHERE caller = 'AGENT-7' LIMIT 100".to_owned()),
        ("a caller on a day", format!("SELECT * FROM audit_log WHERE caller = 'agent-7' AND {day}")),
        ("a day, every row", format!("SELECT * FROM audit_log WHERE {day}")),
        ("a day, counts by event", format!("SELECT event, count(*) FROM audit_log WHERE {day} GROUP BY event")),
        ("a rare code", "SELECT * FROM audit_log WHERE code = 'SELF_APPROVAL' ORDER BY seq LIMIT 100".to_owned()),
    ];
    let connection = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the file");
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

/// A year of 20 tools and 50 callers, five rows a plan, written in one go: no question looks at hashes.
fn fill(path: &std::path::Path, plans: u32) {
    let connection = Connection::open(path).expect("the file");
    let step = 365 * 86_400_000 / i64::from(plans);
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;
             BEGIN;
             INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at,
                                expires_at, reason, payload)
               WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < {plans} - 1)
               SELECT printf('%048x', i), 'tool-' || (i % 20), 'agent-' || (i % 50), 'previewed', 0, 1,
                      printf('%064x', i), printf('%064x', i), {YEAR_MS} + i * {step}, {YEAR_MS} + i * {step} + 900000,
                      'weekly price run', '{{\"category\":\"shoes\",\"number\":' || i || '}}' FROM n;
             INSERT INTO audit_events (seq, at, plan_token, event, from_state, to_state, tool, caller, reason, actor,
                                       channel, code, detail, fingerprint, attempt, instance_id, prev_hash, hash)
               WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < {plans} - 1),
                    e(k, event, code) AS (VALUES (0, 'awaiting_approval', NULL), (1, 'refused', 'AWAITING_APPROVAL'),
                                                 (2, 'approved', NULL), (3, 'executing', NULL), (4, 'executed', NULL))
               SELECT i * 5 + k + 2, {YEAR_MS} + i * {step} + k * 1000, printf('%048x', i), event, 'executing',
                      'executed', 'tool-' || (i % 20), 'agent-' || (i % 50),
                      CASE k WHEN 0 THEN 'weekly price run' END, CASE k WHEN 2 THEN 'ada' ELSE 'agent-' || (i % 50) END,
                      CASE k WHEN 2 THEN 'http' ELSE 'library' END,
                      CASE WHEN k = 1 AND i % 1000 = 0 THEN 'SELF_APPROVAL' ELSE code END,
                      CASE WHEN k IN (0, 2) THEN printf('%064x', i) END, printf('%064x', i), 1,
                      printf('%032x', i % 100), printf('%064x', i * 5 + k), printf('%064x', i * 5 + k + 1)
                 FROM n, e;
             COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"
        ))
        .expect("the rows");
}
