//! Purge, sweep, twins and pinned readers beside running hosts.

use std::time::{Duration, Instant};

use countersign::{Approval, NewPlan, Redeem, State};
use serde_json::{Value, json};

use crate::common::child::{Child, hear, say};
use crate::common::host::TOOL;
use crate::common::{self, host, invariants};

/// Claims and confirms every plan of the file, each time it is told to go on.
pub(crate) fn confirmer(args: &Value) {
    let path = args["path"].as_str().unwrap();
    let gate = common::builder(path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let tokens = invariants::rows(path.as_ref());
    say("ready");
    hear();
    for row in tokens {
        let answer = match agent.begin_execute(Redeem::stored(&row.token, TOOL)) {
            Ok(mut claim) => {
                let settled = claim.confirm_executed(&1).unwrap();
                assert_eq!((settled.state, settled.already), (State::Executed, false));
                // Purged or not, the same claim hears the same.
                let again = claim.confirm_executed(&1).unwrap();
                assert_eq!((again.state, again.already), (State::Executed, true));
                "EXECUTED"
            }
            Err(error) => error.code(),
        };
        say(&format!("plan {} {answer}", row.token));
    }
}

#[test]
fn a_sweep_and_a_purge_beside_confirms_leave_one_terminal_answer() {
    let path = common::directory().join("gate.db");
    let gate = common::builder(&path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let plans = 300;
    for number in 0..plans {
        // Their times run out while they are being claimed.
        let ttl = Duration::from_millis(1 + 10 * number);
        agent.create(NewPlan::new(TOOL, &number, Approval::NotNeeded).ttl(ttl)).unwrap();
    }
    let mut confirmer = Child::start("confirmer", &json!({"path": path.to_str().unwrap()}));
    confirmer.expect("ready");
    confirmer.tell("go");
    let operator = gate.operator("op").unwrap();
    let mut answers = Vec::new();
    let mut purged = 0;
    while answers.len() < usize::try_from(plans).unwrap() {
        operator.sweep().unwrap();
        purged += operator.purge(Duration::ZERO).unwrap();
        let said = confirmer.expect("plan");
        let (token, answer) = said.split_once(' ').unwrap();
        answers.push((token.to_owned(), answer.to_owned()));
    }
    confirmer.finish();
    let executed = answers.iter().filter(|(_, answer)| answer == "EXECUTED").count();
    println!("{executed} executed, {} expired, {purged} purged meanwhile", answers.len() - executed);
    for (token, answer) in &answers {
        let terminal = format!(
            "SELECT group_concat(event) FROM audit_events WHERE plan_token = '{token}' AND event IN ('executed', 'expired')"
        );
        let events: String =
            rusqlite::Connection::open(&path).unwrap().query_row(&terminal, [], |row| row.get(0)).unwrap();
        let expected = if answer == "EXECUTED" { "executed" } else { "expired" };
        assert_eq!(events, expected, "{token} answered {answer}");
        let said = operator.plan(token).map(|plan| plan.state.as_str().to_owned());
        let said = said.unwrap_or_else(|error| error.code().to_owned());
        let legal = if answer == "EXECUTED" { ["executed", "PLAN_USED"] } else { ["expired", "PLAN_EXPIRED"] };
        assert!(legal.contains(&said.as_str()), "{token} answered {answer}, and reads {said}");
    }
    invariants::sound(&gate);
}

#[test]
fn a_twin_that_another_process_runs_is_gated_when_it_fails() {
    let path = common::directory().join("gate.db");
    let mut running = host::start(&path);
    let mut rejecting = host::start(&path);
    let twin = running.create(1);
    let rejected = rejecting.create(1);
    running.on("claim", &twin);
    rejecting.on("reject", &rejected);
    assert_eq!(rejecting.on("state", &twin), "executing");
    assert_eq!(running.on("fail", &twin)["state"], "awaiting_approval");
    assert_eq!(running.refused_on("claim", &twin), "AWAITING_APPROVAL");
    running.finish();
    rejecting.finish();
    invariants::sound(&common::builder(&path).open().unwrap());
}

#[test]
fn the_log_shrinks_after_a_pinned_reader_leaves_and_health_tells() {
    let path = common::directory().join("gate.db");
    let gate = common::builder(&path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let operator = gate.operator("op").unwrap();
    let write = |times: usize| {
        for number in 0..times {
            agent.create(NewPlan::new(TOOL, &number, Approval::NotNeeded)).unwrap();
        }
    };
    write(1);
    let mut pinned = rusqlite::Connection::open(&path).unwrap();
    let snapshot = pinned.transaction().unwrap();
    snapshot.query_row("SELECT count(*) FROM plans", [], |row| row.get::<_, i64>(0)).unwrap();
    // Past the 64 MiB at which a log is cut back when nobody reads it any more.
    const LIMIT: u64 = 64 * 1024 * 1024;
    let large = "x".repeat(1_000_000);
    for _ in 0..80 {
        agent.create(NewPlan::new(TOOL, &large, Approval::NotNeeded)).unwrap();
    }
    let pinned_bytes = operator.health().unwrap().wal_bytes;
    assert!(pinned_bytes > LIMIT, "{pinned_bytes}");
    drop(snapshot);
    drop(pinned);
    // Commits fold it into the file and begin it anew, a second after the last attempt that was in vain.
    let patience = Instant::now() + Duration::from_secs(10);
    let bytes = loop {
        write(20);
        let bytes = operator.health().unwrap().wal_bytes;
        if bytes <= LIMIT || Instant::now() > patience {
            break bytes;
        }
    };
    println!("the log: {pinned_bytes} bytes with a pinned reader, {bytes} after it left");
    assert!(bytes <= LIMIT, "{bytes}");

    let token = agent.create(NewPlan::new(TOOL, &1, Approval::NotNeeded)).unwrap().plan_token;
    let claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    let health = operator.health().unwrap();
    assert_eq!((health.instances, health.executing), (1, 1));
    assert_eq!(health.oldest_executing, claim.plan().executing_since);
    assert!(health.wal_bytes > 0);
}
