//! The verify walk, beside a loop that reads the same columns and hashes the same number of bytes in the cheapest way
//! there is: each table from end to end, nothing copied but into the buffer that is hashed, nothing compared.

use std::path::Path;
use std::time::{Duration, Instant};

use countersign::Gate;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use sha2::{Digest as _, Sha256};

use crate::figures::Figures;

/// Each of the two in turn, so many times; the best of each counts.
const TURNS: usize = 9;

pub(crate) fn run(plans: u32, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("gate.db");
    drop(Gate::open(&path).expect("a gate"));
    crate::fill::fill(&path, plans);
    measure(&path, TURNS, figures);
}

pub(crate) fn measure(path: &Path, turns: usize, figures: &mut Figures) {
    let gate = Gate::open(path).expect("a gate");
    let operator = gate.operator("auditor").expect("a name");
    let (mut verify, mut bare) = (Duration::MAX, Duration::MAX);
    let (mut walked, mut plans, mut read) = (0, 0, 0);
    for _ in 0..turns {
        let started = Instant::now();
        let report = operator.audit().verify(None).expect("a report");
        verify = verify.min(started.elapsed());
        assert!(report.is_intact(), "{:?}", report.difference);
        (walked, plans) = (report.rows, report.plans);
        let started = Instant::now();
        read = scan(path);
        bare = bare.min(started.elapsed());
    }
    assert_eq!(read, walked);
    let rate = |took: Duration| walked as f64 / took.as_secs_f64();
    figures.note("verify: plans", plans as f64, "");
    figures.note("verify: audit rows", walked as f64, "");
    figures.note("verify: the walk", rate(verify), "rows/s");
    figures.note("verify: the bare loop", rate(bare), "rows/s");
    figures.at_least("verify: the walk's speed over the bare loop's", rate(verify) / rate(bare), 0.5);
}

/// Every column that the walk reads. What is hashed stands first.
const AUDIT: &str = "
SELECT seq, at, plan_token, event, from_state, to_state, tool, caller, reason, actor, channel, code, detail,
       preview_count, fingerprint, attempt, instance_id, duration_us, prev_hash, hash FROM audit_events ORDER BY seq";
const PLAN: &str = "
SELECT payload, plan_token, tool, caller, fingerprint, data_digest, reason, extra, preview_count, approvals_needed,
       created_at, expires_at, state, gated, attempt, seal FROM plans";
const TOMBSTONE: &str = "SELECT kind, fingerprint, tool, caller, attempt, plan_token FROM tombstones";
const APPROVALS: &str = "SELECT reviewer, seal, channel, approved_at, plan_token FROM approvals";

/// The runs of columns that are hashed: where each ends, and what the hashed text has around a column. An audit row with
/// the hash of the one before; a payload, and the columns under a plan's seal with their keys.
type Hashed = &'static [(usize, &'static [u8])];
const AUDIT_HASHED: Hashed = &[(19, b"\",\"")];
const PLAN_HASHED: Hashed = &[(1, b""), (12, b"\",\"fingerprint\":")];

/// How many audit rows it read.
fn scan(path: &Path) -> u64 {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the file");
    connection.pragma_update(None, "cache_size", -16 * 1024).expect("a cache as large as the walk's");
    let mut line = Vec::new();
    let mut read = [0_u64; 4];
    let tables: [(_, _, Hashed); 4] =
        [(AUDIT, 20, AUDIT_HASHED), (PLAN, 16, PLAN_HASHED), (TOMBSTONE, 6, &[]), (APPROVALS, 5, &[])];
    for ((sql, columns, hashed), rows) in tables.into_iter().zip(&mut read) {
        let mut statement = connection.prepare(sql).expect("a statement");
        let mut found = statement.query([]).expect("rows");
        while let Some(row) = found.next().expect("a row") {
            take(row, columns, hashed, &mut line);
            *rows += 1;
        }
    }
    read[0]
}

/// Reads every column once, and hashes the runs.
fn take(row: &Row<'_>, columns: usize, hashed: Hashed, line: &mut Vec<u8>) {
    let mut at = 0;
    for &(end, around) in hashed {
        line.clear();
        while at < end {
            match row.get_ref(at).expect("a column") {
                ValueRef::Text(text) => line.extend_from_slice(text),
                ValueRef::Integer(number) => line.extend_from_slice(&number.to_le_bytes()),
                _ => line.extend_from_slice(b"null"),
            }
            line.extend_from_slice(around);
            at += 1;
        }
        std::hint::black_box(Sha256::digest(&line));
    }
    while at < columns {
        std::hint::black_box(row.get_ref(at).expect("a column"));
        at += 1;
    }
}
