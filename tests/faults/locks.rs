//! SQLite's locks on the file are there after every public call: nobody opened the file beside SQLite.

#![allow(clippy::disallowed_methods, reason = "the very thing that must not be done, to see that it is noticed")]

use std::time::Duration;

use countersign::{Approval, AuditQuery, Gate, NewPlan, Outcome, Redeem};

use crate::common::tools::locks_of;
use crate::common::{self, tools};

const TOOL: &str = "write_rows";

#[test]
fn sqlites_locks_are_held_after_every_public_call() {
    if !tools::can("/proc/locks", std::path::Path::new("/proc/locks").exists()) {
        return;
    }
    let path = common::directory().join("gate.db");
    let gate = common::builder(&path).reconcile(|_| Ok(Outcome::NotDone)).open().unwrap();
    let calls = std::cell::Cell::new(0);
    let held = |call: &str| {
        calls.set(calls.get() + 1);
        assert!(locks_of(&path), "the locks are gone after {call}");
    };
    held("open");
    let agent = gate.agent("agent").unwrap();
    let reviewer = gate.reviewer("ada").unwrap();
    let operator = gate.operator("op").unwrap();
    held("handles");
    let ready = || agent.create(NewPlan::new(TOOL, &1, Approval::NotNeeded)).unwrap().plan_token;
    let gated = |payload: u32| agent.create(NewPlan::new(TOOL, &payload, Approval::required())).unwrap();
    let token = ready();
    held("create");
    agent.plan(&token).unwrap();
    held("plan");
    agent.begin_execute(Redeem::stored(&token, "another")).unwrap_err();
    held("a refused begin_execute");
    let mut claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    held("begin_execute");
    claim.check().unwrap();
    held("check");
    claim.record_host_event("note", "x").unwrap();
    held("a claim's host event");
    drop(agent.adopt(&token, 1, claim.claim_token()).unwrap());
    held("adopt");
    claim.mark_uncertain("?").unwrap();
    held("mark_uncertain");
    operator.executing(10).unwrap();
    held("executing");
    claim.confirm_failed("no").unwrap();
    held("confirm_failed");
    let mut claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    claim.confirm_executed(&1).unwrap();
    held("confirm_executed");
    agent.execute(Redeem::stored(ready(), TOOL), |_| Ok(1)).unwrap();
    held("execute");
    agent.consume(Redeem::stored(ready(), TOOL)).unwrap();
    held("consume");
    agent.record_host_event(None, "note", "x").unwrap();
    held("a host event");
    let card = gated(2);
    reviewer.pending(10).unwrap();
    held("pending");
    reviewer.card(&card.plan_token).unwrap();
    reviewer.plan(&card.plan_token).unwrap();
    held("a reviewer's reads");
    reviewer.approve(&card.plan_token, &card.seal).unwrap();
    held("approve");
    reviewer.reject(&card.plan_token, Some("no")).unwrap();
    held("reject");
    let again = gated(2);
    reviewer.reject_sealed(&again.plan_token, &again.seal, None).unwrap();
    held("reject_sealed");
    reviewer.lift_rejection(TOOL, card.fingerprint.to_string(), "on reflection").unwrap();
    held("lift_rejection");
    for number in 0..4 {
        let token = ready();
        drop(agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap());
        match number {
            0 => drop(operator.recover().unwrap()),
            1 => drop(operator.reconcile(&token).unwrap()),
            2 => drop(operator.settle(&token, &Outcome::Unknown).unwrap()),
            _ => drop(operator.mark_interrupted_as_uncertain(&token, 1).unwrap()),
        }
        held("recover, reconcile, settle and mark_interrupted");
    }
    operator.accept_restore().unwrap();
    held("accept_restore");
    operator.sweep().unwrap();
    held("sweep");
    operator.purge(Duration::ZERO).unwrap();
    held("purge");
    operator.plan(ready()).unwrap();
    operator.history(ready()).unwrap();
    held("plan and history");
    operator.record_host_event(None, "note", "x").unwrap();
    held("an operator's host event");
    operator.health().unwrap();
    held("health");
    operator.audit().query(&AuditQuery::new()).unwrap();
    operator.audit().head().unwrap();
    operator.audit().verify(None).unwrap();
    held("the audit's reads");
    let second = common::builder(&path).open().unwrap();
    held("another open");
    second.close().unwrap();
    drop(second);
    held("another close");
    Gate::open(path.with_file_name("missing").join("gate.db")).unwrap_err();
    held("a failed open");
    // And this is how they get lost: somebody opens the file beside SQLite, and closes it.
    drop(std::fs::File::open(&path).unwrap());
    assert!(!locks_of(&path), "this test cannot see a lost lock");
    println!("the locks were looked at after {} calls", calls.get());
}
