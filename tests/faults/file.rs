//! The file beneath an open gate: deleted, replaced, put back.
#![allow(clippy::disallowed_methods, reason = "copies of databases that no gate of this process has open")]

use std::path::{Path, PathBuf};

use countersign::{Agent, Approval, ExecuteError, Gate, NewPlan, Redeem, State};

use crate::common::{self, invariants, ledger::Ledger, tools};

const TOOL: &str = "write_rows";

fn path() -> PathBuf {
    common::directory().join("gate.db")
}

fn open(path: &Path) -> (Gate, Agent) {
    let gate = common::builder(path).reconcile(Ledger::beside(path).hook()).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    (gate, agent)
}

fn ready(agent: &Agent, payload: u32) -> String {
    agent.create(NewPlan::new(TOOL, &payload, Approval::NotNeeded)).unwrap().plan_token.as_str().to_owned()
}

/// Runs a plan; the code when the gate does not give it.
fn run(agent: &Agent, path: &Path, token: &str) -> Result<(), &'static str> {
    let ledger = Ledger::beside(path);
    let done = agent.execute(Redeem::stored(token, TOOL), |claim| {
        ledger.apply(claim.plan_token(), claim.attempt());
        Ok(())
    });
    match done {
        Ok(()) => Ok(()),
        Err(ExecuteError::Gate(error)) => Err(error.code()),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_file_that_is_moved_deleted_or_replaced_gives_no_claim() {
    let path = path();
    let (gate, agent) = open(&path);
    let token = ready(&agent, 1);
    let mut claim = agent.begin_execute(Redeem::stored(ready(&agent, 2), TOOL)).unwrap();
    let away = path.with_extension("away");
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(run(&agent, &path, &token), Err("MOVED"));
    // A confirm into a file that nobody will read again is not recorded, and says so.
    assert!(claim.confirm_executed(&1).unwrap_err().is_moved());
    assert!(gate.operator("op").unwrap().health().unwrap_err().is_moved());

    let other = path.with_extension("other");
    drop(open(&other));
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(run(&agent, &path, &token), Err("MOVED"));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(run(&agent, &path, &token), Err("MOVED"));
    assert!(agent.create(NewPlan::new(TOOL, &3, Approval::NotNeeded)).unwrap_err().is_moved());

    // The right one again, and everything goes on.
    std::fs::rename(&away, &path).unwrap();
    claim.confirm_executed(&1).unwrap();
    assert_eq!(run(&agent, &path, &token), Ok(()));
    invariants::sound(&gate);
}

#[test]
fn an_old_copy_put_back_while_the_host_is_stopped_runs_nothing_twice() {
    let path = path();
    let (gate, agent) = open(&path);
    let token = ready(&agent, 1);
    drop((gate, agent));
    let copy = path.with_extension("old");
    std::fs::copy(&path, &copy).unwrap();
    let (gate, agent) = open(&path);
    assert_eq!(run(&agent, &path, &token), Ok(()));
    drop((gate, agent));
    std::fs::copy(&copy, &path).unwrap();

    // The plan is ready in the old copy, and its effect has happened.
    let (gate, agent) = open(&path);
    assert_eq!(run(&agent, &path, &token), Err("ROLLED_BACK"));
    let operator = gate.operator("op").unwrap();
    let reviewer = gate.reviewer("ada").unwrap();
    for code in [
        agent.create(NewPlan::new(TOOL, &2, Approval::NotNeeded)).unwrap_err().code(),
        agent.consume(Redeem::stored(&token, TOOL)).unwrap_err().code(),
        agent.record_host_event(None, "note", "x").unwrap_err().code(),
        reviewer.reject(&token, None).unwrap_err().code(),
        operator.sweep().unwrap_err().code(),
    ] {
        assert_eq!(code, "ROLLED_BACK");
    }
    let report = operator.accept_restore().unwrap();
    assert_eq!((report.expired, report.uncertain, report.already), (1, 0, false));
    assert!(operator.accept_restore().unwrap().already);
    assert_eq!(run(&agent, &path, &token), Err("PLAN_EXPIRED"));
    let next = ready(&agent, 3);
    assert_eq!(run(&agent, &path, &next), Ok(()));
    invariants::sound(&gate);
    drop((gate, agent, operator, reviewer));
    let (gate, agent) = open(&path);
    let next = ready(&agent, 4);
    assert_eq!(run(&agent, &path, &next), Ok(()));
    assert_eq!(Ledger::beside(&path).count(&token), 1);
    invariants::sound(&gate);
}

/// Copies a database that this process has open: from another process, which may close its descriptors as it likes.
fn copy_by_another(from: &Path, to: &Path) {
    let checkpointed = rusqlite::Connection::open(if from.extension().is_some_and(|e| e == "db") { from } else { to });
    let busy: i64 = checkpointed.unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
    assert!(tools::run("cp", &[from.to_str().unwrap(), to.to_str().unwrap()]));
}

#[test]
fn an_old_copy_written_over_the_file_of_an_idle_gate_runs_nothing_twice() {
    let path = path();
    let copy = path.with_extension("old");
    let (gate, agent) = open(&path);
    let token = ready(&agent, 1);
    copy_by_another(&path, &copy);
    assert_eq!(run(&agent, &path, &token), Ok(()));
    for payload in 2..40 {
        ready(&agent, payload);
    }
    copy_by_another(&copy, &path);
    assert_eq!(run(&agent, &path, &token), Err("ROLLED_BACK"));
    assert!(agent.create(NewPlan::new(TOOL, &2, Approval::NotNeeded)).unwrap_err().is_rolled_back());
    assert_eq!(Ledger::beside(&path).count(&token), 1);

    // Another gate, opened now, is told by the head file. It accepts; the one that was open stays refused.
    let (second, second_agent) = open(&path);
    assert_eq!(run(&second_agent, &path, &token), Err("ROLLED_BACK"));
    let report = second.operator("op").unwrap().accept_restore().unwrap();
    assert_eq!((report.expired, report.already), (1, false));
    assert_eq!(run(&second_agent, &path, &token), Err("PLAN_EXPIRED"));
    for payload in 100..150 {
        let token = ready(&second_agent, payload);
        assert_eq!(run(&second_agent, &path, &token), Ok(()));
    }
    assert_eq!(run(&agent, &path, &token), Err("ROLLED_BACK"));
    drop((gate, agent));
    invariants::sound(&second);
    drop((second, second_agent));
    let (gate, _) = open(&path);
    invariants::sound(&gate);
}

#[test]
fn a_gate_that_accepts_a_restore_still_has_an_owner_for_its_claims() {
    let path = path();
    let copy = path.with_extension("old");
    let (gate, agent) = open(&path);
    ready(&agent, 1);
    copy_by_another(&path, &copy);
    // Registers, which the old copy does not know.
    let token = ready(&agent, 2);
    assert_eq!(run(&agent, &path, &token), Ok(()));
    copy_by_another(&copy, &path);
    gate.operator("op").unwrap().accept_restore().unwrap();
    let token = ready(&agent, 3);
    let claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    let (other, _) = open(&path);
    let report = other.operator("op").unwrap().recover().unwrap();
    assert_eq!(report.alive.len(), 1, "{report:?}");
    assert_eq!(report.alive[0].as_str(), token);
    drop(claim);
    invariants::sound(&other);
}

#[test]
fn a_claim_that_was_running_when_the_copy_was_made_is_uncertain_after_a_restore() {
    let path = path();
    let (gate, agent) = open(&path);
    let token = ready(&agent, 1);
    let claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    let copy = path.with_extension("old");
    copy_by_another(&path, &copy);
    Ledger::beside(&path).apply(claim.plan_token(), 1);
    drop(claim);
    gate.operator("op").unwrap().recover().unwrap();
    drop((gate, agent));
    std::fs::copy(&copy, &path).unwrap();
    let (gate, _) = open(&path);
    let operator = gate.operator("op").unwrap();
    assert_eq!(operator.accept_restore().unwrap().uncertain, 1);
    assert_eq!(operator.plan(&token).unwrap().state, State::Uncertain);
    assert_eq!(operator.recover().unwrap().settled[0].1, State::Executed);
    invariants::sound(&gate);
}
