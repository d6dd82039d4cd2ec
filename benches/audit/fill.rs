//! A large file with a whole chain, written past the gate in a few transactions: a million plans through it would take
//! an hour of syncs.

use std::path::Path;

use countersign::{SealFields, fingerprint};
use rusqlite::{Connection, Transaction, params};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// 2026-01-01T00:00:00Z
const YEAR_MS: i64 = 1_767_225_600_000;

/// So many plans are open at once: their rows alternate in the chain.
const OPEN: u32 = 10;
/// Plans a transaction.
const BATCH: u32 = 50_000;

/// As random as the gate's, and the same in each run.
pub(crate) fn token(plan: u32) -> String {
    hex(&Sha256::digest(plan.to_le_bytes())[..24])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds a year of 20 tools and 50 callers to a new file: plans that were gated, tried too early, approved and run.
pub(crate) fn fill(path: &Path, plans: u32) {
    let mut connection = Connection::open(path).expect("the file");
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000").expect("settings");
    connection.set_prepared_statement_cache_capacity(32);
    // It guards the gate's own writes; the plans here begin where the gate's have ended.
    let guard: String = connection
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'plans_first_state'", [], |row| row.get(0))
        .expect("the trigger");
    connection.execute_batch("DROP TRIGGER plans_first_state").expect("no trigger");
    let (seq, hash) = connection
        .query_row("SELECT seq, hash FROM audit_events ORDER BY seq DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("the first row");
    let mut chain = Chain { seq, hash };
    let step = 365 * 86_400_000 / i64::from(plans);
    let all: Vec<u32> = (0..plans).collect();
    for batch in all.chunks(BATCH as usize) {
        let tx = connection.transaction().expect("a transaction");
        for open in batch.chunks(OPEN as usize) {
            let open: Vec<Plan> = open.iter().map(|&number| Plan::new(number, step)).collect();
            for state in 0..5 {
                open.iter().for_each(|plan| plan.write(state, &tx, &mut chain));
            }
        }
        tx.commit().expect("a commit");
    }
    connection.execute_batch(&guard).expect("the trigger");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
}

struct Chain {
    seq: i64,
    hash: String,
}

struct Plan {
    number: u32,
    token: String,
    tool: String,
    caller: String,
    payload: String,
    fingerprint: String,
    seal: String,
    created_at: i64,
}

impl Plan {
    fn new(number: u32, step: i64) -> Self {
        let payload =
            json!({"category": "shoes", "note": "x".repeat(200), "number": number, "rows": [1, 2, 3, 4, 5, 6, 7, 8]});
        let mut plan = Self {
            number,
            token: token(number),
            tool: format!("tool-{}", number % 20),
            caller: format!("agent-{}", number % 50),
            fingerprint: fingerprint(&payload).expect("a fingerprint").to_string(),
            payload: payload.to_string(),
            seal: String::new(),
            created_at: YEAR_MS + i64::from(number) * step,
        };
        let seal = SealFields {
            plan_token: &plan.token,
            tool: &plan.tool,
            caller: &plan.caller,
            fingerprint: &plan.fingerprint,
            data_digest: None,
            reason: Some("weekly price run"),
            extra: None,
            preview_count: Some(57),
            approvals_needed: 1,
            created_at_ms: plan.created_at,
            expires_at_ms: plan.created_at + 900_000,
        };
        plan.seal = seal.seal().to_string();
        plan
    }

    /// The rows that the plan's next event leaves.
    fn write(&self, event: usize, tx: &Transaction<'_>, chain: &mut Chain) {
        let at = self.created_at + 1_000 * i64::try_from(event).expect("small");
        let code = if self.number.is_multiple_of(1_000) { "SELF_APPROVAL" } else { "AWAITING_APPROVAL" };
        let (name, from, to) = [
            ("awaiting_approval", None, "awaiting_approval"),
            ("refused", Some("awaiting_approval"), "awaiting_approval"),
            ("approved", Some("awaiting_approval"), "approved"),
            ("executing", Some("approved"), "executing"),
            ("executed", Some("executing"), "executed"),
        ][event];
        let (first, approved) = (event == 0, event == 2);
        let columns = [
            json!(chain.seq + 1),
            json!(at),
            json!(self.token),
            json!(name),
            json!(from),
            json!(to),
            json!(self.tool),
            json!(self.caller),
            json!(first.then_some("weekly price run")),
            if approved { json!("ada") } else { json!(self.caller) },
            if approved { json!("http") } else { json!("library") },
            json!((event == 1).then_some(code)),
            json!((first || approved).then_some(&self.seal)),
            json!(first.then_some(57)),
            json!(self.fingerprint),
            json!(i32::from(event >= 3)),
            json!("0f".repeat(16)),
            json!((event == 4).then_some(1_234)),
        ];
        let line = format!("{}{}", chain.hash, serde_json::to_string(&columns).expect("JSON"));
        let before = std::mem::replace(&mut chain.hash, hex(&Sha256::digest(line)));
        chain.seq += 1;
        let values = columns.iter().map(value).chain([before.into(), chain.hash.clone().into()]);
        let run = |sql, values: &mut dyn Iterator<Item = rusqlite::types::Value>| {
            let mut statement = tx.prepare_cached(sql).expect("a statement");
            statement.execute(rusqlite::params_from_iter(values)).expect("a row");
        };
        run(
            "INSERT INTO audit_events (seq, at, plan_token, event, from_state, to_state, tool, caller, reason, actor,
                                       channel, code, detail, preview_count, fingerprint, attempt, instance_id,
                                       duration_us, prev_hash, hash)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            &mut { values },
        );
        let execute = |sql, params: &[&dyn rusqlite::ToSql]| {
            tx.prepare_cached(sql).expect("a statement").execute(params).expect("a row");
        };
        match event {
            0 => execute(
                "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal,
                                    created_at, expires_at, decided_at, settled_at, attempt, preview_count, reason, payload)
                 VALUES (?, ?, ?, 'executed', 1, 1, ?, ?, ?, ?, ?, ?, 1, 57, 'weekly price run', ?)",
                params![
                    self.token,
                    self.tool,
                    self.caller,
                    self.fingerprint,
                    self.seal,
                    at,
                    at + 900_000,
                    at + 2_000,
                    at + 4_000,
                    self.payload
                ],
            ),
            2 => execute(
                "INSERT INTO approvals (plan_token, reviewer, seal, channel, approved_at) VALUES (?, 'ada', ?, 'http', ?)",
                params![self.token, self.seal, at],
            ),
            4 => execute(
                "INSERT INTO tombstones (plan_token, kind, caller, tool, fingerprint, attempt, actor, at)
                 VALUES (?, 'executed', ?, ?, ?, 1, ?, ?)",
                params![self.token, self.caller, self.tool, self.fingerprint, self.caller, at],
            ),
            _ => {}
        }
    }
}

fn value(json: &Value) -> rusqlite::types::Value {
    match json {
        Value::String(text) => text.clone().into(),
        Value::Number(number) => number.as_i64().expect("an integer").into(),
        _ => rusqlite::types::Value::Null,
    }
}
