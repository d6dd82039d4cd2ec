//! What the library is measured against: hand-written SQL.
//!
//! `Bare`: two STRICT tables, one index on the audit's token; a transition is one statement pair in one transaction.
//! `Ours`: this crate's schema with its indexes, triggers and hash chain, and no library around it.

use std::path::Path;

use countersign::canonical_json;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use sha2::{Digest as _, Sha256};

/// The four transitions of one lifecycle.
pub(crate) trait Contender {
    fn create(&mut self);
    fn approve(&mut self);
    fn begin(&mut self);
    fn confirm(&mut self);
}

const PAYLOAD: &str = r#"{"category":"tea","changes":[{"price_cents":1290,"sku":"TEA-0001"},{"price_cents":990,"sku":"TEA-0002"}],"percent":-10}"#;

/// The payload of every plan here, as a value.
pub(crate) fn payload() -> serde_json::Value {
    serde_json::from_str(PAYLOAD).expect("the payload is JSON")
}

fn connect(path: &Path, synchronous: &str) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).expect("the file opens");
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode=wal; PRAGMA synchronous={synchronous}; PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON;"
        ))
        .expect("the pragmas hold");
    connection.set_prepared_statement_cache_capacity(128);
    connection
}

fn token(number: u64) -> String {
    let digest = Sha256::digest(number.to_be_bytes());
    digest[..24].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("the clock is past 1970");
    i64::try_from(since.as_millis()).expect("the time fits")
}

pub(crate) struct Bare {
    sql: Connection,
    number: u64,
    token: String,
}

impl Bare {
    pub(crate) fn open(path: &Path, synchronous: &str) -> Self {
        let sql = connect(path, synchronous);
        sql.execute_batch(
            "CREATE TABLE plans (plan_token TEXT NOT NULL PRIMARY KEY, tool TEXT NOT NULL, caller TEXT NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT;
             CREATE TABLE audit (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, plan_token TEXT NOT NULL, event TEXT NOT NULL, actor TEXT NOT NULL) STRICT;
             CREATE INDEX audit_token ON audit (plan_token);",
        )
        .expect("the bare schema");
        Self { sql, number: 0, token: String::new() }
    }

    fn step(&mut self, from: &str, to: &str) {
        let tx = self.sql.transaction_with_behavior(TransactionBehavior::Immediate).expect("begin");
        {
            let mut update = tx
                .prepare_cached("UPDATE plans SET state = ?1 WHERE plan_token = ?2 AND state = ?3 RETURNING payload")
                .expect("update");
            let _: String = update.query_row(params![to, self.token, from], |row| row.get(0)).expect("one row");
            let mut audit = tx
                .prepare_cached("INSERT INTO audit (at, plan_token, event, actor) VALUES (?1, ?2, ?3, 'ada')")
                .expect("audit");
            audit.execute(params![now(), self.token, to]).expect("audited");
        }
        tx.commit().expect("commit");
    }
}

impl Contender for Bare {
    fn create(&mut self) {
        self.number += 1;
        self.token = token(self.number);
        let tx = self.sql.transaction_with_behavior(TransactionBehavior::Immediate).expect("begin");
        {
            let mut insert = tx
                .prepare_cached("INSERT INTO plans VALUES (?1, 'update_prices', 'pricing-agent', ?2, 'awaiting_approval', ?3, ?3 + 900000)")
                .expect("insert");
            insert.execute(params![self.token, PAYLOAD, now()]).expect("inserted");
            let mut audit = tx
                .prepare_cached("INSERT INTO audit (at, plan_token, event, actor) VALUES (?1, ?2, ?3, 'ada')")
                .expect("audit");
            audit.execute(params![now(), self.token, "awaiting_approval"]).expect("audited");
        }
        tx.commit().expect("commit");
    }

    fn approve(&mut self) {
        self.step("awaiting_approval", "approved");
    }

    fn begin(&mut self) {
        self.step("approved", "executing");
    }

    fn confirm(&mut self) {
        self.step("executing", "executed");
    }
}

pub(crate) struct Ours {
    sql: Connection,
    number: u64,
    token: String,
    fingerprint: String,
}

const HASH0: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const INSTANCE: &str = "00000000000000000000000000000000";

impl Ours {
    pub(crate) fn open(path: &Path, synchronous: &str) -> Self {
        let sql = connect(path, synchronous);
        sql.execute_batch(include_str!("../../migrations/0001_init.sql")).expect("our schema");
        let fingerprint = canonical_json(&payload()).expect("canonical").fingerprint().to_string();
        Self { sql, number: 0, token: String::new(), fingerprint }
    }

    /// One audit row: the head, the hash over the row as a canonical array, the insert.
    fn audit(
        tx: &rusqlite::Transaction<'_>,
        token: &str,
        fingerprint: &str,
        from: Option<&str>,
        to: &str,
        detail: Option<&str>,
        attempt: Option<i64>,
    ) {
        let head = tx
            .prepare_cached("SELECT seq, hash FROM audit_events ORDER BY seq DESC LIMIT 1")
            .expect("head")
            .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
        let (seq, prev) = head.map_or((1, HASH0.to_owned()), |(seq, hash)| (seq + 1, hash));
        let at = now();
        let quoted = |text: Option<&str>| text.map_or("null".to_owned(), |text| format!("\"{text}\""));
        let number = |number: Option<i64>| number.map_or("null".to_owned(), |number| number.to_string());
        let line = format!(
            "{prev}[{seq},{at},\"{token}\",\"{to}\",{},\"{to}\",\"update_prices\",\"pricing-agent\",null,\"ada\",\"library\",null,{},null,\"{fingerprint}\",{},\"{INSTANCE}\",null]",
            quoted(from),
            quoted(detail),
            number(attempt)
        );
        let hash: String = Sha256::digest(line.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        tx.prepare_cached(
            "INSERT INTO audit_events (seq, at, plan_token, event, from_state, to_state, tool, caller, actor, channel, detail, fingerprint, attempt, instance_id, prev_hash, hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?4, 'update_prices', 'pricing-agent', 'ada', 'library', ?6, ?7, ?8, ?9, ?10, ?11)",
        )
        .expect("audit")
        .execute(params![seq, at, token, to, from, detail, fingerprint, attempt, INSTANCE, prev, hash])
        .expect("audited");
    }

    fn transaction(&mut self, f: impl FnOnce(&rusqlite::Transaction<'_>, &str, &str)) {
        let tx = self.sql.transaction_with_behavior(TransactionBehavior::Immediate).expect("begin");
        f(&tx, &self.token, &self.fingerprint);
        tx.commit().expect("commit");
    }
}

impl Contender for Ours {
    fn create(&mut self) {
        self.number += 1;
        self.token = token(self.number);
        self.transaction(|tx, token, fingerprint| {
            tx.prepare_cached(
                "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, expires_at, payload)
                 VALUES (?1, 'update_prices', 'pricing-agent', 'awaiting_approval', 1, 1, ?2, ?2, ?3, ?3 + 900000, ?4)",
            )
            .expect("insert")
            .execute(params![token, fingerprint, now(), PAYLOAD])
            .expect("inserted");
            Self::audit(tx, token, fingerprint, None, "awaiting_approval", Some(fingerprint), None);
        });
    }

    fn approve(&mut self) {
        self.transaction(|tx, token, fingerprint| {
            tx.prepare_cached("INSERT INTO approvals (plan_token, reviewer, seal, channel, approved_at) VALUES (?1, 'ada', ?2, 'library', ?3)")
                .expect("approval")
                .execute(params![token, fingerprint, now()])
                .expect("approved");
            let _: String = tx
                .prepare_cached("UPDATE plans SET state = 'approved', decided_at = ?2 WHERE plan_token = ?1 AND state = 'awaiting_approval' RETURNING seal")
                .expect("update")
                .query_row(params![token, now()], |row| row.get(0))
                .expect("one row");
            Self::audit(tx, token, fingerprint, Some("awaiting_approval"), "approved", Some(fingerprint), None);
        });
    }

    fn begin(&mut self) {
        self.transaction(|tx, token, fingerprint| {
            let _: String = tx
                .prepare_cached(
                    "UPDATE plans SET state = 'executing', attempt = attempt + 1, claim_token = ?1, instance_id = ?2, executing_since = ?3
                      WHERE plan_token = ?1 AND state IN ('previewed', 'approved') AND expires_at >= ?3 AND tool = 'update_prices' AND fingerprint = ?4
                        AND (gated = 0 OR (SELECT count(*) FROM approvals a WHERE a.plan_token = plans.plan_token AND a.seal = plans.seal) >= approvals_needed)
                      RETURNING payload",
                )
                .expect("claim")
                .query_row(params![token, INSTANCE, now(), fingerprint], |row| row.get(0))
                .expect("one row");
            Self::audit(tx, token, fingerprint, Some("approved"), "executing", None, Some(1));
        });
    }

    fn confirm(&mut self) {
        self.transaction(|tx, token, fingerprint| {
            let _: String = tx
                .prepare_cached("UPDATE plans SET state = 'executed', settled_at = ?2, result = 'null' WHERE plan_token = ?1 AND state = 'executing' AND attempt = 1 RETURNING seal")
                .expect("confirm")
                .query_row(params![token, now()], |row| row.get(0))
                .expect("one row");
            Self::audit(tx, token, fingerprint, Some("executing"), "executed", None, Some(1));
            tx.prepare_cached(
                "INSERT INTO tombstones (plan_token, kind, caller, tool, fingerprint, attempt, actor, at)
                 VALUES (?1, 'executed', 'pricing-agent', 'update_prices', ?2, 1, 'pricing-agent', ?3)",
            )
            .expect("tombstone")
            .execute(params![token, fingerprint, now()])
            .expect("buried");
        });
    }
}
