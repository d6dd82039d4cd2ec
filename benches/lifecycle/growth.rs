//! What each verb costs as the file grows: 1,000, 100,000 and 1,000,000 settled plans with five audit rows each.

use std::path::Path;
use std::time::Instant;

use countersign::{Approval, Gate, NewPlan, Outcome, Redeem};
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use crate::figures::{Figures, median};

const SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];
const NAMES: [&str; 10] = [
    "create",
    "approve",
    "begin_execute",
    "confirm",
    "reject",
    "plan",
    "history",
    "pending(100)",
    "executing",
    "recover",
];

pub(crate) fn run(figures: &mut Figures) {
    let mut medians: Vec<[f64; 10]> = Vec::new();
    for size in SIZES {
        let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(".").expect("a directory on this disk");
        let path = directory.path().join("gate.db");
        drop(Gate::open(&path).expect("the gate opens"));
        fill(&path, size);
        let bytes = std::fs::metadata(&path).expect("the file is there").len();
        figures.note(format!("file bytes a plan, {size} plans"), bytes as f64 / size as f64, "bytes");
        medians.push(measure(&path));
        figures.at_most(format!("memory of this process with {size} plans, MB"), resident_mb(), 20.0 + 40.0);
    }
    for (at, name) in NAMES.iter().enumerate() {
        for (size, medians) in SIZES.iter().zip(&medians) {
            figures.note(format!("{name}, {size} plans"), medians[at] * 1e6, "us");
        }
        figures.at_most(format!("{name}, largest file over smallest"), medians[2][at] / medians[0][at], 1.3);
    }
}

/// Settled plans in bulk, their audit rows chained.
fn fill(path: &Path, plans: u64) {
    let mut sql = Connection::open(path).expect("opens");
    sql.execute_batch("PRAGMA synchronous=OFF; PRAGMA recursive_triggers=ON; DROP TRIGGER plans_first_state;")
        .expect("for the bulk only");
    let trigger: &str = include_str!("../../migrations/0001_init.sql");
    let (mut seq, mut prev): (i64, String) = sql
        .query_row("SELECT seq, hash FROM audit_events ORDER BY seq DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a head");
    let now = 1_700_000_000_000_i64;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for start in (0..plans).step_by(10_000) {
        let tx = sql.transaction().expect("begin");
        {
            let mut plan = tx
                .prepare_cached(
                    "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, expires_at, settled_at, attempt, payload)
                     VALUES (?1, 'update_prices', 'pricing-agent', 'executed', 1, 1, ?2, ?2, ?3, ?3 + 900000, ?3 + 5000, 1, ?4)",
                )
                .expect("plan");
            let mut tombstone = tx
                .prepare_cached("INSERT INTO tombstones (plan_token, kind, caller, tool, fingerprint, attempt, actor, at) VALUES (?1, 'executed', 'pricing-agent', 'update_prices', ?2, 1, 'pricing-agent', ?3)")
                .expect("tombstone");
            let mut audit = tx
                .prepare_cached(
                    "INSERT INTO audit_events (seq, at, plan_token, event, tool, caller, actor, channel, fingerprint, instance_id, prev_hash, hash)
                     VALUES (?1, ?2, ?3, ?4, 'update_prices', 'pricing-agent', 'ada', 'library', ?5, 'bulk', ?6, ?7)",
                )
                .expect("audit");
            for number in start..(start + 10_000).min(plans) {
                let digest = Sha256::digest(number.to_be_bytes());
                let (token, fingerprint) = (hex(&digest[..24]), hex(&digest));
                let payload = format!("{{\"category\":\"tea\",\"number\":{number},\"percent\":-10}}");
                plan.execute(params![token, fingerprint, now, payload]).expect("plan");
                tombstone.execute(params![token, fingerprint, now]).expect("tombstone");
                for event in ["awaiting_approval", "approved", "executing", "host:bulk", "executed"] {
                    seq += 1;
                    let hash = hex(&Sha256::digest(prev.as_bytes()));
                    audit.execute(params![seq, now, token, event, fingerprint, prev, hash]).expect("audit");
                    prev = hash;
                }
            }
        }
        tx.commit().expect("commit");
    }
    let from = trigger.find("CREATE TRIGGER plans_first_state").expect("the trigger stands in the migration");
    let end = from + trigger[from..].find("END;").expect("it ends") + 4;
    sql.execute_batch(&trigger[from..end]).expect("the trigger is back");
    sql.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpointed");
}

fn measure(path: &Path) -> [f64; 10] {
    let gate =
        Gate::builder(path).reconcile(|_| Ok(Outcome::Unknown)).max_pending(1_000).open().expect("the gate opens");
    let agent = gate.agent("pricing-agent").expect("a name");
    let reviewer = gate.reviewer("ada").expect("a name");
    let operator = gate.operator("olga").expect("a name");
    // 100 waiting and 100 stuck plans stand in every file.
    for number in 0..100 {
        agent
            .create(NewPlan::new("update_prices", &format!("waiting {number}"), Approval::required()))
            .expect("created");
        let created = agent
            .create(NewPlan::new("update_prices", &format!("stuck {number}"), Approval::NotNeeded))
            .expect("created");
        drop(agent.begin_execute(Redeem::stored(&created.plan_token, "update_prices")).expect("claimed"));
    }
    operator.recover().expect("all uncertain");
    let mut samples: [Vec<f64>; 10] = Default::default();
    for round in 0..300 {
        let mut time = |at: usize, f: &mut dyn FnMut()| {
            let start = Instant::now();
            f();
            samples[at].push(start.elapsed().as_secs_f64());
        };
        let mut created = None;
        let payload = format!("round {round}");
        time(0, &mut || {
            created =
                Some(agent.create(NewPlan::new("update_prices", &payload, Approval::required())).expect("created"));
        });
        let created = created.expect("just made");
        let token = &created.plan_token;
        time(1, &mut || drop(reviewer.approve(token, &created.seal).expect("approved")));
        let mut claim = None;
        time(2, &mut || claim = Some(agent.begin_execute(Redeem::stored(token, "update_prices")).expect("claimed")));
        let mut claim = claim.expect("just made");
        time(3, &mut || {
            claim.confirm_executed(&1).expect("confirmed");
        });
        let other = agent.create(NewPlan::new("update_prices", &(round, "no"), Approval::NotNeeded)).expect("created");
        time(4, &mut || drop(reviewer.reject(&other.plan_token, Some("no")).expect("rejected")));
        time(5, &mut || drop(agent.plan(token).expect("read")));
        time(6, &mut || drop(operator.history(token).expect("read")));
        if round % 10 == 0 {
            time(7, &mut || drop(reviewer.pending(100).expect("listed")));
            time(8, &mut || drop(operator.executing(100).expect("listed")));
            time(9, &mut || drop(operator.recover().expect("scanned")));
        }
    }
    samples.map(|mut samples| median(&mut samples))
}

/// The resident memory of this process.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
