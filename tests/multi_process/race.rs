//! Many processes want the same plans, the same keys and the same lock.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign::{Approval, ExecuteError, NewPlan, Redeem, State};
use serde_json::{Value, json};

use crate::common::child::{Child, hear, say};
use crate::common::host::TOOL;
use crate::common::{self, invariants, ledger::Ledger};

const PROCESSES: usize = 8;
const PLANS: usize = 4_000;
/// After so many a racer says that it goes on: how long all of them take is the disk's matter.
const PIECE: usize = 200;
const KEYS: usize = 200;

/// Each of these tests loads the machine for itself: they take turns.
static ALONE: Mutex<()> = Mutex::new(());

/// Wants every plan of the list.
pub(crate) fn racer(args: &Value) {
    let path = args["path"].as_str().unwrap();
    let gate = common::builder(path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let ledger = Ledger::beside(path);
    let tokens = invariants::rows(path.as_ref());
    say("ready");
    hear();
    let (mut won, mut lost) = (0, 0);
    for (number, row) in tokens.iter().enumerate() {
        if number % PIECE == 0 {
            say("on");
        }
        let outcome = agent.execute(Redeem::stored(&row.token, TOOL), |claim| {
            ledger.apply(claim.plan_token(), claim.attempt());
            Ok(())
        });
        match outcome {
            Ok(()) => won += 1,
            Err(ExecuteError::Gate(error)) if matches!(error.code(), "ALREADY_EXECUTING" | "PLAN_USED") => lost += 1,
            Err(error) => return say(&format!("error {} {error}", error.code())),
        }
    }
    say(&format!("done {}", json!({"won": won, "lost": lost})));
}

#[test]
fn each_of_4000_plans_that_8_processes_race_for_runs_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = common::directory().join("gate.db");
    let gate = common::builder(&path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    for number in 0..PLANS {
        agent.create(NewPlan::new(TOOL, &number, Approval::NotNeeded)).unwrap();
    }
    let mut racers: Vec<_> =
        (0..PROCESSES).map(|_| Child::start("racer", &json!({"path": path.to_str().unwrap()}))).collect();
    for racer in &racers {
        racer.expect("ready");
    }
    let started = Instant::now();
    for racer in &mut racers {
        racer.tell("go");
    }
    let mut won = Vec::new();
    for racer in racers {
        for _ in 0..PLANS / PIECE {
            racer.expect("on");
        }
        let done: Value = serde_json::from_str(&racer.expect("done")).unwrap();
        assert_eq!(done["won"].as_u64().unwrap() + done["lost"].as_u64().unwrap(), PLANS as u64);
        won.push(done["won"].as_u64().unwrap());
        racer.finish();
    }
    println!("{PROCESSES} processes raced for {PLANS} plans in {:?}; each won {won:?}", started.elapsed());
    assert_eq!(won.iter().sum::<u64>(), PLANS as u64);

    let ledger = Ledger::beside(&path);
    let rows = invariants::rows(&path);
    assert_eq!(rows.len(), PLANS);
    assert!(rows.iter().all(|row| row.state == State::Executed && row.attempt == 1 && ledger.count(&row.token) == 1));
    for event in ["executing", "executed"] {
        let once = format!(
            "SELECT count(*) FROM (SELECT 1 FROM audit_events WHERE event = '{event}' GROUP BY plan_token
              HAVING count(*) = 1)"
        );
        assert_eq!(invariants::number(&path, &once), PLANS as i64, "{event}");
        let all = format!("SELECT count(*) FROM audit_events WHERE event = '{event}'");
        assert_eq!(invariants::number(&path, &all), PLANS as i64, "{event}");
    }
    invariants::effects_match(&path, &ledger);
    invariants::sound(&gate);
}

/// Creates a plan for each key, and says what it got.
pub(crate) fn creator(args: &Value) {
    let gate = common::builder(args["path"].as_str().unwrap()).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    say("ready");
    hear();
    for number in 0..KEYS {
        let plan = NewPlan::new(TOOL, &number, Approval::NotNeeded).idempotency_key(format!("key-{number}"));
        match agent.create(plan) {
            Ok(created) => say(&format!("plan {} {}", created.plan_token, created.already)),
            Err(error) => return say(&format!("error {} {error}", error.code())),
        }
    }
}

#[test]
fn processes_that_race_to_create_under_one_key_get_one_plan() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = common::directory().join("gate.db");
    let mut creators: Vec<_> =
        (0..PROCESSES).map(|_| Child::start("creator", &json!({"path": path.to_str().unwrap()}))).collect();
    for creator in &creators {
        creator.expect("ready");
    }
    for creator in &mut creators {
        creator.tell("go");
    }
    for number in 0..KEYS {
        let answers: Vec<_> = creators.iter().map(|creator| creator.expect("plan")).collect();
        let tokens: Vec<_> = answers.iter().map(|answer| answer.split(' ').next().unwrap()).collect();
        assert!(tokens.iter().all(|token| *token == tokens[0]), "key {number} names {tokens:?}");
        let made = answers.iter().filter(|answer| answer.ends_with("false")).count();
        assert_eq!(made, 1, "key {number} was created {made} times");
    }
    creators.into_iter().for_each(Child::finish);
    assert_eq!(invariants::rows(&path).len(), KEYS);
    invariants::sound(&common::builder(&path).open().unwrap());
}

/// Writes as fast as it can for the given time, and says how often, and how long the slowest call took.
pub(crate) fn saturator(args: &Value) {
    let gate = common::builder(args["path"].as_str().unwrap()).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    say("ready");
    hear();
    let end = Instant::now() + Duration::from_millis(args["ms"].as_u64().unwrap());
    let (mut calls, mut longest) = (0_u64, Duration::ZERO);
    while Instant::now() < end {
        let started = Instant::now();
        if let Err(error) = agent.create(NewPlan::new(TOOL, &calls, Approval::NotNeeded)) {
            return say(&format!("error {} {error}", error.code()));
        }
        longest = longest.max(started.elapsed());
        calls += 1;
    }
    say(&format!("done {}", json!({"calls": calls, "longest_ms": longest.as_millis()})));
}

#[test]
fn under_saturation_no_process_starves() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The machine may be busy with other things for seconds; a gate that starves processes does so in every round.
    let mut fair = false;
    for round in 1..=4 {
        let path = common::directory().join("gate.db");
        let mut all: Vec<_> = (0..PROCESSES)
            .map(|_| Child::start("saturator", &json!({"path": path.to_str().unwrap(), "ms": 5_000})))
            .collect();
        for child in &all {
            child.expect("ready");
        }
        for child in &mut all {
            child.tell("go");
        }
        let figures: Vec<Value> =
            all.iter().map(|child| serde_json::from_str(&child.expect("done")).unwrap()).collect();
        all.into_iter().for_each(Child::finish);
        let calls: Vec<u64> = figures.iter().map(|figure| figure["calls"].as_u64().unwrap()).collect();
        let longest = figures.iter().map(|figure| figure["longest_ms"].as_u64().unwrap()).max().unwrap();
        let (all, slowest) = (calls.iter().sum::<u64>(), *calls.iter().min().unwrap());
        let mean = all / PROCESSES as u64;
        // A wait is some number of other writers' commits. Where the disk makes fewer than 1,000 a second in all, each of
        // them takes longer, and nothing else.
        let bound_ms = 500 * 1_000 / (all / 5).clamp(1, 1_000);
        println!(
            "round {round}: calls of each process {calls:?}, mean {mean}, slowest {slowest}, longest wait {longest} ms \
             (bound {bound_ms} ms at {} commits a second)",
            all / 5
        );
        fair = slowest * 4 >= mean && longest < bound_ms;
        if fair {
            break;
        }
    }
    assert!(fair, "in every round a process got less than a quarter of the mean, or waited too long");
}
