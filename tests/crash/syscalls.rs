//! Death at the Nth write and the Nth sync of one whole lifecycle, for every N.

use std::path::Path;

use countersign::{Approval, NewPlan, Outcome, Redeem, State};
use serde_json::{Value, json};

use crate::common::child::{Start, say};
use crate::common::{self, invariants, ledger::Ledger, tools};

const TOOL: &str = "write_rows";

/// Opens a new file and does everything once.
pub(crate) fn whole(args: &Value) {
    let path = args["path"].as_str().unwrap();
    let ledger = Ledger::beside(path);
    let gate = common::builder(path).reconcile(ledger.hook()).open().unwrap();
    let operator = gate.operator("op").unwrap();
    operator.recover().unwrap();
    let (agent, reviewer) = (gate.agent("agent").unwrap(), gate.reviewer("ada").unwrap());
    let gated = agent.create(NewPlan::new(TOOL, &1, Approval::required())).unwrap();
    reviewer.approve(&gated.plan_token, &gated.seal).unwrap();
    let run = |claim: &countersign::Claim| {
        say(&format!("claimed {}", claim.plan_token()));
        ledger.apply(claim.plan_token(), claim.attempt());
        Ok(1)
    };
    agent.execute(Redeem::stored(&gated.plan_token, TOOL), run).unwrap();
    let dropped = agent.create(NewPlan::new(TOOL, &2, Approval::NotNeeded)).unwrap().plan_token;
    drop(agent.begin_execute(Redeem::stored(&dropped, TOOL)).unwrap());
    operator.settle(&dropped, &Outcome::NotDone).unwrap();
    agent.execute(Redeem::stored(&dropped, TOOL), run).unwrap();
    let rejected = agent.create(NewPlan::new(TOOL, &3, Approval::NotNeeded)).unwrap().plan_token;
    reviewer.reject(&rejected, Some("no")).unwrap();
    gate.close().unwrap();
    drop((gate, agent, reviewer, operator));
    say("done");
}

/// Runs it with a death at one system call. False when it came to its end.
fn dies(call: &str, nth: u32) -> bool {
    let path = common::directory().join("gate.db");
    let inject = format!("inject={call}:signal=SIGKILL:when={nth}");
    let trace = format!("trace={call}");
    let wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", trace.as_str(), "-e", inject.as_str()];
    let mut child = Start::behind(wrapper).role("whole", &json!({"path": path.to_str().unwrap()}));
    let (mut done, mut claimed) = (false, Vec::new());
    while let Some(line) = child.next() {
        match line.split_once(' ') {
            Some(("claimed", token)) => claimed.push(token.to_owned()),
            _ => done = line == "done",
        }
    }
    let status = child.wait();
    assert_eq!(status.success(), done, "{call} {nth}: {status}: {}", child.complaint());
    holds(&path, &claimed, &format!("{call} {nth}"));
    !done
}

fn holds(path: &Path, claimed: &[String], what: &str) {
    let ledger = Ledger::beside(path);
    let gate = common::builder(path).reconcile(ledger.hook()).open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let operator = gate.operator("op").unwrap();
    // The tracer ends when its process has ended, so the lock is free.
    let report = operator.recover().unwrap();
    assert_eq!((&report.alive, &report.unknown_owner), (&vec![], &vec![]), "{what}");
    assert_eq!(report.errors, [], "{what}");
    for token in claimed {
        let state = operator.plan(token).unwrap_or_else(|error| panic!("{what} lost a claimed plan: {error}")).state;
        let legal = if ledger.count(token) == 1 { State::Executed } else { State::Previewed };
        // A gated plan goes back to approved.
        assert!(state == legal || (legal == State::Previewed && state == State::Approved), "{what}: {state}");
    }
    assert!(invariants::rows(path).iter().all(|row| !row.state.is_stuck()), "{what}");
    invariants::effects_match(path, &ledger);
    invariants::sound(&gate);
}

fn every(call: &str) {
    if !tools::strace() {
        return;
    }
    let mut nth = 1;
    while dies(call, nth) {
        nth += 1;
    }
    println!("one lifecycle dies at each of its {} calls of {call}", nth - 1);
    assert!(nth > 10, "{call} is not what a commit calls");
}

#[test]
fn death_at_every_write_of_a_lifecycle_loses_nothing() {
    every("pwrite64");
}

#[test]
fn death_at_every_sync_of_a_lifecycle_loses_nothing() {
    every("fsync");
}
