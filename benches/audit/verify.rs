//! The verify walk, beside a loop that reads the same columns of the same rows and hashes the same number of bytes, one
//! after the other in turn.

use std::path::Path;
use std::time::{Duration, Instant};

use countersign::{Approval, Gate, NewPlan, Redeem};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::figures::Figures;

/// Each of the two in turn, so many times; the best of each counts.
const TURNS: usize = 9;

pub(crate) fn run(plans: usize, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("gate.db");
    let gate = Gate::open(&path).expect("a gate");
    fill(&gate, plans);
    let operator = gate.operator("auditor").expect("a name");
    let (mut verify, mut bare) = (Duration::MAX, Duration::MAX);
    let mut rows = 0;
    for _ in 0..TURNS {
        let started = Instant::now();
        let report = operator.audit().verify(None).expect("a report");
        verify = verify.min(started.elapsed());
        assert!(report.is_intact());
        rows = report.rows;
        let started = Instant::now();
        let (read, hashed) = bare_loop(&path);
        bare = bare.min(started.elapsed());
        assert!(read >= rows && hashed > 0);
    }
    figures.note("verify: audit rows", rows as f64, "");
    figures.note("verify: the walk", rows as f64 / verify.as_secs_f64(), "rows/s");
    figures.note("verify: the bare loop", rows as f64 / bare.as_secs_f64(), "rows/s");
    figures.at_least("verify: the walk's speed over the bare loop's", bare.as_secs_f64() / verify.as_secs_f64(), 0.5);
}

/// Plans as a shop has them: gated, approved, run.
fn fill(gate: &Gate, plans: usize) {
    let (agent, reviewer) = (gate.agent("agent").expect("a name"), gate.reviewer("ada").expect("a name"));
    for number in 0..plans {
        let payload =
            json!({"category": "shoes", "number": number, "rows": [1, 2, 3, 4, 5, 6, 7, 8], "note": "x".repeat(200)});
        let plan = NewPlan::new("update_prices", &payload, Approval::required()).reason("weekly price run");
        let created = agent.create(plan).expect("a plan");
        reviewer.approve(&created.plan_token, &created.seal).expect("an approval");
        agent.consume(Redeem::stored(&created.plan_token, "update_prices")).expect("a claim");
    }
}

/// Every row of the four tables once, all columns that the walk reads; a hash over each audit row's columns, each
/// payload, and each plan's sealed columns.
fn bare_loop(path: &Path) -> (u64, u64) {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the file");
    let mut hashed = 0;
    let mut rows = 0;
    let mut line = Vec::new();
    let mut walk = |sql: &str, hashes: &[(usize, usize)]| {
        let mut statement = connection.prepare(sql).expect("a statement");
        let columns = statement.column_count();
        let mut found = statement.query([]).expect("rows");
        while let Some(row) = found.next().expect("a row") {
            rows += 1;
            for column in 0..columns {
                std::hint::black_box(row.get_ref(column).expect("a column"));
            }
            for &(from, to) in hashes {
                line.clear();
                for column in from..to {
                    match row.get_ref(column).expect("a column") {
                        ValueRef::Text(text) => line.extend_from_slice(text),
                        ValueRef::Integer(number) => line.extend_from_slice(&number.to_le_bytes()),
                        _ => line.extend_from_slice(b"null"),
                    }
                    // The quotes and the comma of the canonical JSON.
                    line.extend_from_slice(b"\",\"");
                }
                hashed += u64::from(Sha256::digest(&line)[0]) + 1;
            }
        }
    };
    walk(
        "SELECT seq, at, plan_token, event, from_state, to_state, tool, caller, reason, actor, channel, code, detail,
                preview_count, fingerprint, attempt, instance_id, duration_us, prev_hash, hash
           FROM audit_events ORDER BY seq",
        &[(0, 19)],
    );
    walk(
        "SELECT payload, plan_token, tool, caller, fingerprint, data_digest, reason, extra, preview_count,
                approvals_needed, created_at, expires_at, state, gated, attempt, seal FROM plans",
        &[(0, 1), (1, 12)],
    );
    walk("SELECT plan_token, kind FROM tombstones", &[]);
    walk("SELECT plan_token, reviewer, seal FROM approvals", &[]);
    (rows, hashed)
}
