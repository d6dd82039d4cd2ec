//! The verify walk, beside loops that read the same columns and hash the same number of bytes, in turn. One loop looks up
//! what the walk looks up, plan by plan as they end in the chain: the walk over it is what replay and comparison cost. The
//! other reads each table from end to end, which no walk can: it shows what is left to gain.

use std::path::Path;
use std::time::{Duration, Instant};

use countersign::{Approval, Gate, NewPlan, Redeem};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
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
    let (mut verify, mut looking_up, mut scanning) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let mut rows = 0;
    let timed = |best: &mut Duration, work: &mut dyn FnMut()| {
        let started = Instant::now();
        work();
        *best = started.elapsed().min(*best);
    };
    for _ in 0..TURNS {
        timed(&mut verify, &mut || {
            let report = operator.audit().verify(None).expect("a report");
            assert!(report.is_intact());
            rows = report.rows;
        });
        timed(&mut looking_up, &mut || Loop::new(&path).looking_up());
        timed(&mut scanning, &mut || Loop::new(&path).scanning());
    }
    let rate = |took: Duration| rows as f64 / took.as_secs_f64();
    figures.note("verify: audit rows", rows as f64, "");
    figures.note("verify: the walk", rate(verify), "rows/s");
    figures.note("verify: the bare loop that looks plans up", rate(looking_up), "rows/s");
    figures.note("verify: the bare loop that scans the tables", rate(scanning), "rows/s");
    figures.at_least("verify: the walk's speed over the bare loop's", rate(verify) / rate(looking_up), 0.5);
    figures.note("verify: and over the scanning one's", rate(verify) / rate(scanning), "");
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

const AUDIT: &str = "
SELECT seq, at, plan_token, event, from_state, to_state, tool, caller, reason, actor, channel, code, detail,
       preview_count, fingerprint, attempt, instance_id, duration_us, prev_hash, hash FROM audit_events ORDER BY seq";
const PLAN: &str = "
SELECT payload, plan_token, tool, caller, fingerprint, data_digest, reason, extra, preview_count, approvals_needed,
       created_at, expires_at, state, gated, attempt, seal FROM plans";
const TOMBSTONE: &str = "SELECT kind, fingerprint, tool, caller, attempt FROM tombstones";
const APPROVALS: &str = "SELECT reviewer, seal, channel, approved_at FROM approvals";

/// The columns that each audit row's hash is over; and the payload, and the sealed columns, of a plan.
const AUDIT_HASHED: &[(usize, usize)] = &[(0, 19)];
const PLAN_HASHED: &[(usize, usize)] = &[(0, 1), (1, 12)];

/// A loop that copies nothing, and a buffer for the bytes that it hashes.
struct Loop {
    connection: Connection,
    line: Vec<u8>,
}

impl Loop {
    fn new(path: &Path) -> Self {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the file");
        connection.pragma_update(None, "cache_size", -64 * 1024).expect("a cache as large as the walk's");
        Self { connection, line: Vec::new() }
    }

    fn looking_up(mut self) {
        let by_token =
            |sql: &str| self.connection.prepare(&format!("{sql} WHERE plan_token = ?1")).expect("a statement");
        let mut lookups = [(by_token(PLAN), PLAN_HASHED), (by_token(TOMBSTONE), &[][..]), (by_token(APPROVALS), &[])];
        let mut audit = self.connection.prepare(AUDIT).expect("a statement");
        let mut found = audit.query([]).expect("rows");
        while let Some(row) = found.next().expect("a row") {
            take(row, AUDIT_HASHED, &mut self.line);
            if matches!(row.get_ref("to_state").expect("a column"), ValueRef::Text(b"executed")) {
                let token = row.get_ref("plan_token").and_then(|token| Ok(token.as_str()?)).expect("a token");
                for (statement, hashed) in &mut lookups {
                    let mut found = statement.query([token]).expect("rows");
                    while let Some(row) = found.next().expect("a row") {
                        take(row, hashed, &mut self.line);
                    }
                }
            }
        }
    }

    fn scanning(mut self) {
        for (sql, hashed) in [(AUDIT, AUDIT_HASHED), (PLAN, PLAN_HASHED), (TOMBSTONE, &[]), (APPROVALS, &[])] {
            let mut statement = self.connection.prepare(sql).expect("a statement");
            let mut found = statement.query([]).expect("rows");
            while let Some(row) = found.next().expect("a row") {
                take(row, hashed, &mut self.line);
            }
        }
    }
}

/// Reads every column, and hashes those.
fn take(row: &Row<'_>, hashed: &[(usize, usize)], line: &mut Vec<u8>) {
    for column in 0..row.as_ref().column_count() {
        std::hint::black_box(row.get_ref(column).expect("a column"));
    }
    for &(from, to) in hashed {
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
        std::hint::black_box(Sha256::digest(&line));
    }
}
