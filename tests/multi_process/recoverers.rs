//! The restart scan beside another one, with hooks that misbehave and rows that are bad; and the fence.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use countersign::{Approval, Gate, GateBuilder, NewPlan, Outcome, PlanToken, Redeem, State};
use serde_json::json;

use crate::common::host::TOOL;
use crate::common::{self, host, invariants};

/// A file with claims that a host left behind when it closed.
fn left_behind(claims: usize) -> (std::path::PathBuf, Vec<PlanToken>) {
    let path = common::directory().join("gate.db");
    let gate = common::builder(&path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let tokens = (0..claims).map(|number| {
        let token = agent.create(NewPlan::new(TOOL, &number, Approval::NotNeeded)).unwrap().plan_token;
        drop(agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap());
        token
    });
    let tokens = tokens.collect();
    gate.close().unwrap();
    (path, tokens)
}

fn open(path: &std::path::Path, set: impl FnOnce(GateBuilder) -> GateBuilder) -> Gate {
    set(common::builder(path)).open().unwrap()
}

#[test]
fn two_scans_at_once_settle_each_plan_once() {
    let (path, tokens) = left_behind(40);
    let mut hosts = [host::start(&path), host::start(&path)];
    for host in &mut hosts {
        host.tell(&json!({"op": "recover"}).to_string());
    }
    let mut settled = Vec::new();
    for host in &hosts {
        let report: serde_json::Value = serde_json::from_str(&host.expect("ok")).unwrap();
        assert_eq!((&report["errors"], &report["uncertain"]), (&json!([]), &json!([])));
        settled.extend(report["settled"].as_array().unwrap().iter().map(|entry| entry[0].as_str().unwrap().to_owned()));
    }
    hosts.into_iter().for_each(crate::common::child::Child::finish);
    settled.sort();
    let mut expected: Vec<_> = tokens.iter().map(|token| token.as_str().to_owned()).collect();
    expected.sort();
    assert_eq!(settled, expected);
    let settlements = invariants::number(&path, "SELECT count(*) FROM audit_events WHERE event = 'failed'");
    assert_eq!(settlements, 40);
    invariants::sound(&open(&path, |b| b));
}

#[test]
fn a_second_scan_asks_for_nothing_that_the_first_settled_and_again_for_what_nobody_knew() {
    let (path, tokens) = left_behind(6);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let unknown = tokens[2].clone();
    let gate = open(&path, |builder| {
        let (asked, unknown) = (asked.clone(), unknown.clone());
        builder.reconcile(move |stuck| {
            asked.lock().unwrap().push(stuck.plan_token.clone());
            Ok(if stuck.plan_token == unknown { Outcome::Unknown } else { Outcome::done(&"seen") })
        })
    });
    let operator = gate.operator("op").unwrap();
    let first = operator.recover().unwrap();
    assert_eq!((first.settled.len(), &first.uncertain), (5, &vec![unknown.clone()]));
    assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), tokens);
    for _ in 0..2 {
        let again = operator.recover().unwrap();
        assert_eq!((again.settled.len(), &again.uncertain), (0, &vec![unknown.clone()]));
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), vec![unknown.clone()]);
    }
    // Still unknown is no event.
    let events = operator.history(&unknown).unwrap();
    assert_eq!(events.iter().filter(|event| event.event == "uncertain").count(), 1);
    invariants::sound(&gate);
}

#[test]
fn a_hook_that_panics_hangs_or_fails_counts_as_unknown_and_the_scan_goes_on() {
    let (path, tokens) = left_behind(4);
    let (hang, hanging) = mpsc::channel::<()>();
    let hanging = Mutex::new(hanging);
    let order = tokens.clone();
    let gate = open(&path, |builder| {
        builder.hook_deadline(Duration::from_millis(300)).reconcile(move |stuck| {
            match order.iter().position(|token| *token == stuck.plan_token) {
                Some(0) => panic!("the hook's own trouble"),
                // Until the test ends.
                Some(1) => hanging.lock().unwrap().recv().map(|()| Outcome::NotDone).map_err(Into::into),
                Some(2) => Err(format!("no connection {}", "x".repeat(100_000)).into()),
                _ => Ok(Outcome::Failed("the far side refused".to_owned())),
            }
        })
    });
    let operator = gate.operator("op").unwrap();
    let report = operator.recover().unwrap();
    assert_eq!(report.uncertain, tokens[..3]);
    assert_eq!(report.settled, [(tokens[3].clone(), State::Failed)]);
    let texts: Vec<_> = report.errors.iter().map(|(_, text)| text.as_str()).collect();
    assert!(
        texts[0].contains("panicked") && texts[1].contains("did not answer") && texts[2].len() < 5_000,
        "{texts:?}"
    );
    let details = operator.history(&tokens[1]).unwrap().pop().unwrap();
    assert!(details.detail.is_some_and(|detail| detail.contains("did not answer")));
    drop(hang);
    invariants::sound(&gate);
}

#[test]
fn when_the_time_of_a_scan_is_up_the_rest_is_reported_as_not_asked() {
    let (path, tokens) = left_behind(5);
    let (_hang, hanging) = mpsc::channel::<()>();
    let hanging = Mutex::new(hanging);
    let gate = open(&path, |builder| {
        builder
            .hook_deadline(Duration::from_secs(60))
            .recover_deadline(Duration::from_millis(300))
            .reconcile(move |_| hanging.lock().unwrap().recv().map(|()| Outcome::NotDone).map_err(Into::into))
    });
    let report = gate.operator("op").unwrap().recover().unwrap();
    assert_eq!(report.uncertain, tokens[..1]);
    assert_eq!(report.not_asked, tokens[1..]);
    assert_eq!(gate.operator("op").unwrap().plan(&tokens[4]).unwrap().state, State::Executing);
}

#[test]
fn without_a_hook_the_claims_of_the_dead_become_uncertain_and_reconcile_says_why_not() {
    let (path, tokens) = left_behind(2);
    let gate = open(&path, |b| b);
    let operator = gate.operator("op").unwrap();
    assert_eq!(operator.reconcile(&tokens[0]).unwrap_err().code(), "NO_RECONCILE");
    assert_eq!(operator.recover().unwrap().uncertain, tokens);
    let ready = gate.agent("agent").unwrap().create(NewPlan::new(TOOL, &7, Approval::NotNeeded)).unwrap();
    assert_eq!(operator.reconcile(&ready.plan_token).unwrap_err().code(), "NOT_EXECUTING");
    invariants::sound(&gate);
}

#[test]
fn a_hundred_bad_rows_do_not_hide_the_one_behind_them() {
    let (path, tokens) = left_behind(101);
    let sql = rusqlite::Connection::open(&path).unwrap();
    // As a broken disk or a careless hand leaves them: text that is no text, numbers beyond every type.
    sql.execute_batch("PRAGMA ignore_check_constraints = ON; DROP TRIGGER plans_immutable").unwrap();
    for (number, token) in tokens[..100].iter().enumerate() {
        let damage = match number % 5 {
            0 => "payload = CAST(x'ff' AS TEXT)",
            1 => "instance_id = CAST(x'fe' AS TEXT)",
            2 => "attempt = 5000000000",
            3 => "attempt = -1",
            _ => "extra = CAST(x'80' AS TEXT)",
        };
        let update = format!("UPDATE plans SET {damage} WHERE plan_token = ?1");
        assert_eq!(sql.execute(&update, [token.as_str()]).unwrap(), 1);
    }
    drop(sql);
    restore_trigger(&path);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let gate = open(&path, |builder| {
        builder.reconcile(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Outcome::done(&"seen"))
        })
    });
    let report = gate.operator("op").unwrap().recover().unwrap();
    assert_eq!(report.settled, [(tokens[100].clone(), State::Executed)]);
    assert_eq!(report.errors.len(), 100);
    assert_eq!(
        report.errors.iter().map(|(token, _)| token).collect::<Vec<_>>(),
        tokens[..100].iter().collect::<Vec<_>>()
    );
    assert!(report.errors.iter().all(|(_, text)| !text.is_empty()));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// Opening refuses a file whose triggers are not the schema's.
fn restore_trigger(path: &std::path::Path) {
    let schema = include_str!("../../migrations/0001_init.sql");
    let begin = schema.find("CREATE TRIGGER plans_immutable").unwrap();
    let end = begin + schema[begin..].find("END;").unwrap() + 4;
    rusqlite::Connection::open(path).unwrap().execute_batch(&schema[begin..end]).unwrap();
}

#[test]
fn a_busy_file_is_reported_plan_by_plan() {
    let (path, tokens) = left_behind(3);
    let gate = open(&path, |builder| builder.busy_deadline(Duration::from_millis(50)));
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let report = gate.operator("op").unwrap().recover().unwrap();
    assert_eq!(report.errors.len(), 3);
    assert!(report.errors.iter().all(|(_, text)| text.contains("locked by other writers")), "{:?}", report.errors);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(gate.operator("op").unwrap().recover().unwrap().uncertain, tokens);
}

#[test]
fn a_late_report_of_a_superseded_claim_changes_nothing_and_leaves_evidence() {
    for newer_is_uncertain in [false, true] {
        let (path, _) = left_behind(0);
        let mut old = host::start(&path);
        let token = old.create(1);
        old.on("claim", &token);
        // The old host's operator takes the plan from it; another host runs it again.
        assert_eq!(old.on("settle_not_done", &token), "previewed");
        let mut new = host::start(&path);
        assert_eq!(new.on("claim", &token)["attempt"], 2);
        if newer_is_uncertain {
            new.on("uncertain", &token);
        }
        let state = new.on("state", &token);
        for op in ["confirm", "fail", "uncertain", "check"] {
            assert_eq!(old.refused_on(op, &token), "STALE_CLAIM", "{op}");
            assert_eq!(new.on("state", &token), state, "{op}");
        }
        new.on("effect", &token);
        new.on("confirm", &token);
        for op in ["confirm", "fail", "uncertain"] {
            assert_eq!(old.refused_on(op, &token), "NOT_EXECUTING", "{op}");
            assert_eq!(new.on("state", &token), "executed", "{op}");
        }
        old.finish();
        new.finish();
        for code in ["STALE_CLAIM", "NOT_EXECUTING"] {
            for verb in ["confirm_executed", "confirm_failed", "mark_uncertain"] {
                let kept = format!(
                    "SELECT count(*) FROM audit_events WHERE event = 'refused' AND code = '{code}'
                        AND json_extract(detail, '$.verb') = '{verb}' AND json_extract(detail, '$.attempt') = 1"
                );
                assert_eq!(invariants::number(&path, &kept), 1, "{code} {verb}");
            }
        }
        invariants::sound(&open(&path, |b| b));
    }
}

#[test]
fn an_adopted_claim_is_its_new_hosts() {
    let (path, _) = left_behind(0);
    let mut first = host::start(&path);
    let token = first.create(1);
    let claim = first.on("claim", &token)["claim"].as_str().unwrap().to_owned();
    let mut second = host::start(&path);
    second.ask(&json!({"op": "adopt", "token": token, "attempt": 1, "claim": claim}));
    first.kill();
    let mut third = host::start(&path);
    assert_eq!(third.ask(&json!({"op": "recover"}))["alive"], json!([token]));
    second.on("effect", &token);
    assert_eq!(second.on("confirm", &token)["state"], "executed");
    second.finish();
    third.finish();
    invariants::sound(&open(&path, |b| b));
}
