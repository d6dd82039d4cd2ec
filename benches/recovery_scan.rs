//! The restart scan costs what is stuck, not what is stored: 1,000,000 plans, of which 100 are stuck.
//!
//! `cargo bench --bench recovery_scan -- --check` exits non-zero where a scan takes 20 ms or more beside the hook's own
//! time.
#![allow(clippy::disallowed_methods, reason = "temporary files, never an open database")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use countersign::{Approval, Gate, NewPlan, Outcome, RecoveryReport, Redeem};

const PLANS: u32 = 1_000_000;
const STUCK: usize = 100;
const TARGET: Duration = Duration::from_millis(20);

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("gate.db");
    let built = Instant::now();
    build(&path);
    println!("{PLANS} plans, a third of them open, and {STUCK} claims whose owner is dead: {:.1?}", built.elapsed());

    let hook_us = Arc::new(AtomicU64::new(0));
    let spent = hook_us.clone();
    let open = |answer: Outcome| {
        let spent = spent.clone();
        Gate::builder(&path)
            .reconcile(move |_| {
                let started = Instant::now();
                let answer = answer.clone();
                spent.fetch_add(u64::try_from(started.elapsed().as_micros()).unwrap_or(0), Ordering::Relaxed);
                Ok(answer)
            })
            .open()
            .expect("open")
    };
    let scan = |gate: &Gate| {
        hook_us.store(0, Ordering::Relaxed);
        let operator = gate.operator("bench").expect("operator");
        let started = Instant::now();
        let report = operator.recover().expect("recover");
        (started.elapsed() - Duration::from_micros(hook_us.load(Ordering::Relaxed)), report)
    };

    // Dead owners, nobody knows: a hundred plans become uncertain, each in a synced transaction of its own.
    let gate = open(Outcome::Unknown);
    let (first, report) = scan(&gate);
    assert_eq!(report.uncertain.len(), STUCK);
    // Again: a hundred questions, nothing to write.
    let asks: Vec<Duration> = (0..5)
        .map(|_| {
            let (took, report): (_, RecoveryReport) = scan(&gate);
            assert_eq!(report.uncertain.len(), STUCK);
            took
        })
        .collect();
    drop(gate);
    let floor = commits(&path);
    // Settled, each in a synced transaction of its own.
    let gate = open(Outcome::done(&"found"));
    let (settles, report) = scan(&gate);
    assert_eq!(report.settled.len(), STUCK);
    let (nothing, report) = scan(&gate);
    assert!(report.settled.is_empty());

    let best = *asks.iter().min().expect("five scans");
    println!("nothing is stuck:                        {nothing:.1?}");
    println!("100 are asked about, nothing is written: {best:.1?} (of {asks:.1?}; target under {TARGET:?})");
    println!("100 become uncertain:                    {first:.1?}");
    println!("100 are settled:                         {settles:.1?}");
    println!("100 bare synced commits on this disk:    {floor:.1?}");
    let missed = best >= TARGET || nothing >= TARGET;
    if missed && std::env::args().any(|argument| argument == "--check") {
        std::process::exit(1);
    }
}

/// Bulk rows by plain SQL, as nobody else may write them; and claims by a gate that closes over them.
fn build(path: &Path) {
    Gate::open(path).and_then(|gate| gate.close()).expect("a new file");
    let sql = rusqlite::Connection::open(path).expect("open");
    let triggers: Vec<(String, String)> = sql
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'plans'")
        .and_then(|mut found| found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .expect("triggers");
    sql.execute_batch("PRAGMA synchronous = OFF; BEGIN").expect("begin");
    for (name, _) in &triggers {
        sql.execute_batch(&format!("DROP TRIGGER {name}")).expect("drop");
    }
    let insert = format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {PLANS})
         INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at,
                            expires_at, settled_at, payload)
         SELECT printf('%048x', i * 2654435761 % 4294967296 * 1000003 + i), 'update_prices', 'agent',
                CASE i % 3 WHEN 0 THEN 'executed' WHEN 1 THEN 'previewed' ELSE 'expired' END, 0, 1,
                printf('%064x', i), printf('%064x', i), 1700000000000 + i, 4000000000000 + i,
                CASE i % 3 WHEN 1 THEN NULL ELSE 1700000000000 + i END, '{{\"category\":\"tea\",\"percent\":-10}}'
           FROM n"
    );
    sql.execute_batch(&insert).expect("insert");
    for (_, text) in &triggers {
        sql.execute_batch(text).expect("create");
    }
    sql.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").expect("commit");
    drop(sql);
    let gate = Gate::open(path).expect("open");
    let agent = gate.agent("agent").expect("agent");
    for number in 0..STUCK {
        let plan = agent.create(NewPlan::new("update_prices", &number, Approval::NotNeeded)).expect("create");
        drop(agent.begin_execute(Redeem::stored(&plan.plan_token, "update_prices")).expect("begin"));
    }
    gate.close().expect("close");
}

/// What a hundred synced commits cost here and now, whatever they say.
fn commits(path: &Path) -> Duration {
    let sql = rusqlite::Connection::open(path.with_extension("floor")).expect("open");
    sql.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x)").expect("set up");
    let started = Instant::now();
    for number in 0..STUCK {
        sql.execute("INSERT INTO t VALUES (?1)", [i64::try_from(number).unwrap_or(0)]).expect("insert");
    }
    started.elapsed()
}
