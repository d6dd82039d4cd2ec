//! A disk that fails at the Nth write or sync, for every N.
#![allow(clippy::disallowed_methods, reason = "the tracer's output, never a database")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use countersign::{Approval, Error, ExecuteError, Gate, NewPlan, Redeem, State};
use serde_json::{Value, json};

use crate::common::child::{Start, say};
use crate::common::{self, invariants, ledger::Ledger, tools};

const TOOL: &str = "write_rows";

/// Does everything once; what fails is said, and, when the disk works again, repeated in the same gate.
pub(crate) fn on_bad_disk(args: &Value) {
    let path = args["path"].as_str().unwrap();
    let repeat = args["repeat"] == json!(true);
    let ledger = Ledger::beside(path);
    let open = || common::builder(path).reconcile(ledger.hook()).open();
    let gate = match open() {
        Ok(gate) => gate,
        Err(error) => {
            say(&format!("failed open {}", error.code()));
            if !repeat {
                return say("done");
            }
            open().unwrap()
        }
    };
    let session = Session { gate: &gate, ledger: &ledger, repeat };
    if session.everything().is_some() && repeat {
        invariants::sound(&gate);
    }
    match gate.close() {
        Ok(()) => {}
        Err(error) => say(&format!("failed close {}", error.code())),
    }
    drop(gate);
    say("done");
}

struct Session<'a> {
    gate: &'a Gate,
    ledger: &'a Ledger,
    repeat: bool,
}

impl Session<'_> {
    /// `None`: it failed and is not to be repeated, or failed again.
    fn verb<T>(&self, verb: &str, call: impl Fn() -> Result<T, Error>) -> Option<T> {
        let error = match call() {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        say(&format!("failed {verb} {}", error.code()));
        if !self.repeat {
            return None;
        }
        Some(call().unwrap_or_else(|error| panic!("{verb} fails again: {error}")))
    }

    fn everything(&self) -> Option<()> {
        let agent = self.gate.agent("agent").unwrap();
        let reviewer = self.gate.reviewer("ada").unwrap();
        let operator = self.gate.operator("op").unwrap();
        let gated =
            self.verb("create", || agent.create(NewPlan::new(TOOL, &1, Approval::required()).idempotency_key("one")))?;
        self.verb("approve", || reviewer.approve(&gated.plan_token, &gated.seal))?;
        self.execute(gated.plan_token.as_str())?;
        let rejected =
            self.verb("create", || agent.create(NewPlan::new(TOOL, &2, Approval::NotNeeded).idempotency_key("two")))?;
        self.verb("reject", || reviewer.reject(&rejected.plan_token, Some("no")))?;
        self.verb("recover", || operator.recover())?;
        self.verb("plan", || operator.plan(&rejected.plan_token))?;
        Some(())
    }

    fn execute(&self, token: &str) -> Option<()> {
        let agent = self.gate.agent("agent").unwrap();
        let operator = self.gate.operator("op").unwrap();
        for _ in 0..3 {
            let before = self.ledger.count(token);
            let done = agent.execute(Redeem::stored(token, TOOL), |claim| {
                self.ledger.apply(claim.plan_token(), claim.attempt());
                Ok(1)
            });
            let error = match done {
                Ok(_) => return Some(()),
                Err(ExecuteError::NotRecorded { value, mut claim, source }) => {
                    say(&format!("failed confirm {}", source.code()));
                    assert_eq!((value, self.ledger.count(token)), (1, before + 1));
                    if !self.repeat {
                        return None;
                    }
                    assert_eq!(claim.confirm_executed(&value).unwrap().state, State::Executed);
                    return Some(());
                }
                Err(ExecuteError::Gate(error)) => error,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(self.ledger.count(token), before, "the effect ran without a claim");
            say(&format!("failed begin {}", error.code()));
            if !self.repeat {
                return None;
            }
            // Whether the claim stands is what the row says now; nobody works on it.
            if operator.plan(token).unwrap().state == State::Executing {
                assert!(error.is_ambiguous(), "{error}");
                operator.reconcile(token).unwrap();
            }
        }
        panic!("the plan cannot be run any more");
    }
}

/// One run with the Nth call failing. `None`: there is no Nth call; else what failed.
fn fails(call: &str, errno: &str, nth: u32, ever_after: bool) -> Option<Vec<(String, String)>> {
    let directory = common::directory();
    let path = directory.join("gate.db");
    drop(common::builder(&path).open().unwrap());
    let log = directory.join("trace");
    let when = if ever_after { format!("{nth}+") } else { nth.to_string() };
    let wrapper = [
        "strace".to_owned(),
        "-f".to_owned(),
        "-qq".to_owned(),
        "-o".to_owned(),
        log.to_str().unwrap().to_owned(),
        "-e".to_owned(),
        format!("trace={call}"),
        "-e".to_owned(),
        format!("inject={call}:error={errno}:when={when}"),
    ];
    let args = json!({"path": path.to_str().unwrap(), "repeat": !ever_after});
    let mut child = Start::behind(wrapper).role("on_bad_disk", &args);
    let (mut failed, mut done) = (Vec::new(), false);
    while let Some(line) = child.next() {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("failed"), Some(verb), Some(code)) => failed.push((verb.to_owned(), code.to_owned())),
            _ => done = line == "done",
        }
    }
    let status = child.wait();
    let what = format!("{call} {errno} {when}: {failed:?}");
    assert!(status.success() && done, "{what}: {status}: {}", child.complaint());
    for (verb, code) in &failed {
        let expected: &[&str] = match errno {
            "ENOSPC" => &["STORAGE_FULL", "STORAGE", "AMBIGUOUS_COMMIT"],
            _ => &["STORAGE", "AMBIGUOUS_COMMIT"],
        };
        assert!(expected.contains(&code.as_str()), "{what}: {verb} answers {code}");
    }
    holds(&path, &what);
    let injected = std::fs::read_to_string(&log).unwrap().contains("(INJECTED)");
    injected.then_some(failed)
}

fn holds(path: &Path, what: &str) {
    let ledger = Ledger::beside(path);
    let gate = common::builder(path).reconcile(ledger.hook()).open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = gate.operator("op").unwrap().recover().unwrap();
    assert_eq!((report.alive, report.unknown_owner, report.errors), Default::default(), "{what}");
    assert!(invariants::rows(path).iter().all(|row| !row.state.is_stuck()), "{what}");
    invariants::effects_match(path, &ledger);
    invariants::sound(&gate);
}

fn every(call: &str, ever_after: bool) {
    if !tools::strace() {
        return;
    }
    for errno in ["EIO", "ENOSPC"] {
        let next = AtomicU32::new(1);
        let seen = Mutex::new(BTreeMap::new());
        let worker = || {
            loop {
                let nth = next.fetch_add(1, Ordering::Relaxed);
                let Some(failed) = fails(call, errno, nth, ever_after) else { return nth };
                for (verb, code) in failed {
                    *seen.lock().unwrap().entry(format!("{verb} {code}")).or_insert(0) += 1;
                }
            }
        };
        let ends: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let calls = ends.iter().min().unwrap() - 1;
        let seen = seen.into_inner().unwrap();
        println!(
            "{errno} at each of {calls} calls of {call}{}: {seen:?}",
            if ever_after { " and ever after" } else { "" }
        );
        assert!(calls >= 8, "{call} is not what a commit calls");
        assert!(seen.keys().any(|key| key.starts_with("begin ")), "no claim failed: {seen:?}");
        if call == "fsync" {
            // A sync is what a commit does last: whether it took effect is what nobody knows.
            assert!(seen.contains_key("begin AMBIGUOUS_COMMIT"), "{seen:?}");
            assert!(ever_after || seen.contains_key("confirm AMBIGUOUS_COMMIT"), "{seen:?}");
        }
    }
}

#[test]
fn one_sync_that_fails_runs_nothing_and_the_same_gate_goes_on() {
    every("fsync", false);
}

#[test]
fn one_write_that_fails_runs_nothing_and_the_same_gate_goes_on() {
    every("pwrite64", false);
}

#[test]
fn syncs_that_fail_from_some_moment_on_lose_nothing() {
    every("fsync", true);
}

#[test]
fn writes_that_fail_from_some_moment_on_lose_nothing() {
    every("pwrite64", true);
}
