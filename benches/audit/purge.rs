//! A purge of many plans, and how long another gate's writes wait meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use countersign::{Approval, Gate, NewPlan};
use rusqlite::Connection;

use crate::figures::Figures;

pub(crate) fn run(plans: u32, figures: &mut Figures) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("gate.db");
    drop(Gate::open(&path).expect("a gate"));
    fill(&path, plans);
    let (purging, writing) = (Gate::open(&path).expect("a gate"), Gate::open(&path).expect("a gate"));
    // What the same writer waits for the disk alone.
    let mut alone = Vec::new();
    let agent = writing.agent("agent").expect("a name");
    for _ in 0..5_000 {
        let started = Instant::now();
        agent.create(NewPlan::new("update_prices", &1, Approval::NotNeeded)).expect("a plan");
        alone.push(started.elapsed());
    }
    let done = AtomicBool::new(false);
    let (purge, mut waits) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut waits = Vec::new();
            while !done.load(Ordering::Acquire) {
                let started = Instant::now();
                agent.create(NewPlan::new("update_prices", &1, Approval::NotNeeded)).expect("a plan");
                waits.push(started.elapsed());
            }
            waits
        });
        let started = Instant::now();
        let purged = purging.operator("olga").expect("a name").purge(Duration::from_secs(1)).expect("a purge");
        let purge = started.elapsed();
        done.store(true, Ordering::Release);
        assert_eq!(purged, u64::from(plans));
        (purge, writer.join().expect("the writer"))
    });
    waits.sort_unstable();
    let ms = |wait: Duration| wait.as_secs_f64() * 1_000.0;
    figures.note("purge: plans", f64::from(plans), "");
    alone.sort_unstable();
    figures.note("purge: longest wait of 5,000 writes before it", ms(*alone.last().expect("a write")), "ms");
    figures.note("purge: took", purge.as_secs_f64(), "s");
    figures.note("purge: writes of the other gate meanwhile", waits.len() as f64, "");
    figures.note("purge: median wait of a write", ms(waits[waits.len() / 2]), "ms");
    figures.note("purge: 99 of 100 writes waited at most", ms(waits[waits.len() * 99 / 100]), "ms");
    figures.at_most("purge: longest wait of a write, ms", ms(*waits.last().expect("a write")), 100.0);
}

/// Plans that expired long ago, written in one go: nothing of a purge looks at their hashes.
fn fill(path: &std::path::Path, plans: u32) {
    let connection = Connection::open(path).expect("the file");
    connection
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF;
             BEGIN;
             INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at,
                                expires_at, idempotency_key, reason, payload)
               WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {plans})
               SELECT printf('%048x', i * 7919), 'update_prices', 'agent', 'previewed', 0, 1, printf('%064x', i),
                      printf('%064x', i), 1000 + i, 2000 + i, 'key-' || i, 'weekly price run',
                      '{{\"note\":\"' || printf('%0200d', i) || '\"}}' FROM n;
             UPDATE plans SET state = 'expired', settled_at = expires_at;
             INSERT INTO approvals (plan_token, reviewer, seal, channel, approved_at)
               SELECT plan_token, 'ada', seal, 'http', created_at FROM plans;
             COMMIT;"
        ))
        .expect("the plans");
}
