//! Four processes that do whole lifecycles and are killed again and again, wherever they are.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use countersign::{Approval, ExecuteError, Failure, Gate, NewPlan, Redeem, State};
use rusqlite::OptionalExtension as _;
use serde_json::{Value, json};

use crate::common::child::{Child, say};
use crate::common::{self, invariants, ledger::Ledger};

const TOOL: &str = "write_rows";
const PROCESSES: usize = 4;

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Recovers, then does lifecycles until it is killed; says a word after each.
pub(crate) fn stormer(args: &Value) {
    let path = args["path"].as_str().unwrap();
    let ledger = Ledger::beside(path);
    // Not a number of the parent's own sequence, or the children would repeat one another.
    let mut random = Random(args["seed"].as_u64().unwrap().wrapping_mul(0x2545_F491_4F6C_DD1D) | 1);
    let gate = common::builder(path).reconcile(ledger.hook()).open().unwrap();
    say("open");
    let report = gate.operator("restart").unwrap().recover().unwrap();
    assert_eq!(report.errors, []);
    assert_eq!(report.unknown_owner, []);
    let stored = rusqlite::Connection::open(path).unwrap();
    loop {
        lifecycle(&gate, &ledger, &stored, &mut random);
        say("step");
    }
}

fn lifecycle(gate: &Gate, ledger: &Ledger, stored: &rusqlite::Connection, random: &mut Random) {
    let agent = gate.agent("agent").unwrap();
    let kind = random.below(8);
    let approval = if kind == 1 { Approval::required() } else { Approval::NotNeeded };
    let number = random.below(u64::MAX);
    let plan = || NewPlan::new(TOOL, &number, approval).idempotency_key(format!("key-{number}"));
    let run = |token: &str, ends: &dyn Fn() -> Result<(), Failure>| {
        agent.execute(Redeem::stored(token, TOOL), |claim| {
            say(&format!("claimed {}", claim.plan_token()));
            ends()?;
            ledger.apply(claim.plan_token(), claim.attempt());
            Ok(())
        })
    };
    // A plan that was claimed before may be in the hands of another process.
    let run_if_free = |token: &dyn AsRef<str>| match run(token.as_ref(), &|| Ok(())) {
        Ok(()) => {}
        Err(ExecuteError::Gate(error)) if error.is_refused() => {}
        Err(error) => panic!("{error}"),
    };
    match kind {
        // A plan that a killed process left ready is run by whoever finds it.
        0 => {
            let left = "SELECT plan_token FROM plans WHERE state = 'previewed' AND attempt > 0 LIMIT 1";
            let found: Option<String> = stored.query_row(left, [], |row| row.get(0)).optional().unwrap();
            if let Some(token) = found {
                run_if_free(&token);
            }
        }
        1 => {
            let created = agent.create(plan()).unwrap();
            gate.reviewer("ada").unwrap().approve(&created.plan_token, &created.seal).unwrap();
            run(created.plan_token.as_str(), &|| Ok(())).unwrap();
        }
        2 => {
            let token = agent.create(plan()).unwrap().plan_token;
            let failed = run(token.as_str(), &|| Err(Failure::not_applied("not now")));
            assert!(matches!(failed, Err(ExecuteError::NotApplied { unrecorded: None, .. })));
            run_if_free(&token);
        }
        3 => {
            let token = agent.create(plan()).unwrap().plan_token;
            let lost = agent.execute(Redeem::stored(&token, TOOL), |claim| {
                say(&format!("claimed {}", claim.plan_token()));
                ledger.apply(claim.plan_token(), claim.attempt());
                Err::<(), _>(Failure::unknown("the answer was lost"))
            });
            assert!(matches!(lost, Err(ExecuteError::Uncertain { unrecorded: None, .. })));
        }
        4 => {
            let token = agent.create(plan()).unwrap().plan_token;
            drop(agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap());
            say(&format!("claimed {token}"));
        }
        5 => {
            let token = agent.create(plan()).unwrap().plan_token;
            gate.reviewer("ada").unwrap().reject(&token, Some("no")).unwrap();
        }
        6 => {
            let report = gate.operator("op").unwrap().recover().unwrap();
            assert_eq!(report.errors, []);
        }
        _ => {
            let first = agent.create(plan()).unwrap();
            assert_eq!(agent.create(plan()).unwrap().plan_token, first.plan_token);
            run(first.plan_token.as_str(), &|| Ok(())).unwrap();
        }
    }
}

#[test]
fn a_thousand_kills_lose_no_claim_and_run_nothing_twice() {
    let kills: usize = std::env::var("COUNTERSIGN_TEST_KILLS").map_or(1_000, |kills| kills.parse().unwrap());
    let path = common::directory().join("gate.db");
    let started = Instant::now();
    let (killed, early) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let claimed: HashSet<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let (path, killed, early) = (&path, &killed, &early);
                scope.spawn(move || {
                    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (process as u64 + 1));
                    let mut claimed = Vec::new();
                    while killed.fetch_add(1, Ordering::Relaxed) < kills {
                        let seed = random.below(u64::MAX);
                        let mut child = Child::start("stormer", &json!({"path": path.to_str().unwrap(), "seed": seed}));
                        // Some die while they start, while they open the file, or while they recover.
                        let mut steps = match random.below(8) {
                            0 => None,
                            1 => Some(0),
                            _ => Some(random.below(12)),
                        };
                        if steps.is_none() {
                            early.fetch_add(1, Ordering::Relaxed);
                        } else {
                            child.expect("open");
                        }
                        while steps.is_some_and(|steps| steps > 0) {
                            let line =
                                child.next().unwrap_or_else(|| panic!("it died by itself: {}", child.complaint()));
                            match line.split_once(' ') {
                                Some(("claimed", token)) => claimed.push(token.to_owned()),
                                _ => steps = steps.map(|steps| steps - 1),
                            }
                        }
                        let status = child.kill();
                        assert!(!status.success() && status.code().is_none(), "{status}: {}", child.complaint());
                        // What it had said before it died.
                        while let Some(line) = child.next() {
                            if let Some(("claimed", token)) = line.split_once(' ') {
                                claimed.push(token.to_owned());
                            }
                        }
                    }
                    claimed
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let ledger = Ledger::beside(&path);
    let gate = common::builder(&path).reconcile(ledger.hook()).open().unwrap();
    let report = gate.operator("op").unwrap().recover().unwrap();
    assert_eq!(report.errors, []);
    assert_eq!((report.alive, report.unknown_owner, report.uncertain, report.not_asked), Default::default());
    let rows = invariants::rows(&path);
    let known: HashSet<_> = rows.iter().map(|row| row.token.clone()).collect();
    assert!(claimed.is_subset(&known), "a claimed plan is lost");
    assert!(rows.iter().all(|row| !row.state.is_stuck()));
    assert_eq!(invariants::number(&path, "SELECT count(*) FROM instances"), 0);
    invariants::effects_match(&path, &ledger);
    invariants::sound(&gate);
    println!(
        "{kills} kills ({} before the file was open) in {:?}: {} plans, {} claims seen, {} executed, {} audit rows",
        early.load(Ordering::Relaxed),
        started.elapsed(),
        rows.len(),
        claimed.len(),
        rows.iter().filter(|row| row.state == State::Executed).count(),
        invariants::number(&path, "SELECT max(seq) FROM audit_events"),
    );
}
