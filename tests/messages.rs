//! What a caller reads: code, message, hint and JSON of every refusal and of every kind of error.
//!
//! A changed line here is a change of the interface.

mod common;

use std::sync::Arc;

use common::world::{START_MS, World, never_issued, payload, stored};
use countersign::{
    Approval, Error, ExecuteError, Failure, Gate, NewPlan, Outcome, Redeem, RefusalCode, RejectedPayloads, State,
    TestClock,
};
use serde_json::Value;

/// Code, message, hint, and the JSON form, with what differs from run to run replaced.
fn shown(error: &Error) -> String {
    let json = serde_json::to_value(error).unwrap();
    assert_eq!(json["code"], error.code());
    assert_eq!(json["message"], error.to_string());
    assert_eq!(json["hint"], error.hint());
    let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    format!("{}: {}\n  {}\n  {}", error.code(), error, error.hint(), keys.join(", "))
}

fn refused(error: Error, code: RefusalCode) -> String {
    assert_eq!(error.refusal().map(countersign::Refusal::code), Some(code));
    assert!(error.is_refused());
    shown(&error)
}

/// Makes the gate refuse with each code once.
fn one_of_each() -> Vec<(RefusalCode, Error)> {
    let world = World::with(|builder| builder.max_pending(2));
    let (agent, ada, operator) = (world.agent(), world.ada(), world.operator());
    let begin = |created: &countersign::Created| agent.begin_execute(stored(created)).unwrap_err();
    let rejected = world.ended(State::Rejected, &payload(1));
    let executed = world.ended(State::Executed, &payload(2));
    let expired = world.ended(State::Expired, &payload(3));
    let waiting = world.gated(&payload(4));
    let running = world.free(&payload(5));
    let mut stale = world.claim(&running);
    stale.confirm_failed("again").unwrap();
    let _claim = world.claim(&running);
    let keyed = payload(6);
    let digest = NewPlan::new("write", &keyed, Approval::NotNeeded).data_digest("d1").idempotency_key("k");
    let with_digest = agent.create(digest).unwrap();
    let myself = world.reviewer("agent-0");
    let uncertain = world.free(&payload(8));
    world.claim(&uncertain).mark_uncertain("?").unwrap();
    world.gated(&payload(9));
    let other = payload(10);
    vec![
        (RefusalCode::UnknownToken, agent.plan(never_issued()).unwrap_err()),
        (RefusalCode::PlanExpired, begin(&expired)),
        (RefusalCode::PlanUsed, begin(&executed)),
        (RefusalCode::PlanMismatch, agent.begin_execute(Redeem::stored(&waiting.plan_token, "other")).unwrap_err()),
        (RefusalCode::DataDigestMismatch, begin(&with_digest)),
        (RefusalCode::AwaitingApproval, begin(&waiting)),
        (RefusalCode::PlanRejected, begin(&rejected)),
        (RefusalCode::NotExecuting, operator.settle(&waiting.plan_token, &Outcome::NotDone).unwrap_err()),
        (RefusalCode::AlreadyExecuting, begin(&running)),
        (RefusalCode::NoReconcile, operator.reconcile(&uncertain.plan_token).unwrap_err()),
        (
            RefusalCode::IdempotencyConflict,
            agent.create(NewPlan::new("write", &other, Approval::NotNeeded).idempotency_key("k")).unwrap_err(),
        ),
        (RefusalCode::ApprovalMismatch, ada.approve(&waiting.plan_token, "0".repeat(64)).unwrap_err()),
        (RefusalCode::SelfApproval, myself.approve(&waiting.plan_token, &waiting.seal).unwrap_err()),
        (RefusalCode::StaleClaim, stale.confirm_executed(&1).unwrap_err()),
        (RefusalCode::TooManyPending, agent.create(NewPlan::new("write", &other, Approval::required())).unwrap_err()),
    ]
}

#[test]
fn every_refusal_has_its_words() {
    let all = one_of_each();
    assert_eq!(all.iter().map(|(code, _)| *code).collect::<Vec<_>>(), RefusalCode::ALL);
    let text: Vec<String> = all.into_iter().map(|(code, error)| refused(error, code)).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn a_refusal_serialises_as_code_message_and_hint_and_a_rejection_with_its_reason() {
    let all = one_of_each();
    for (code, error) in &all {
        let json = serde_json::to_value(error.refusal().unwrap()).unwrap();
        assert_eq!(json, serde_json::to_value(error).unwrap(), "the error says no more than its refusal");
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        match code {
            RefusalCode::PlanRejected => assert_eq!(keys, ["code", "hint", "message", "reason"]),
            _ => assert_eq!(keys, ["code", "hint", "message"]),
        }
    }
    let rejected = all.iter().find(|(code, _)| *code == RefusalCode::PlanRejected).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&rejected.1).unwrap());
}

#[test]
fn the_other_words_for_a_refusal() {
    let world = World::with(|builder| builder.rejected_payloads(RejectedPayloads::Refuse));
    let quiet = world.free(&payload(1));
    world.ada().reject(&quiet.plan_token, None).unwrap();
    let before = payload(2);
    let rejected = world.ended(State::Rejected, &before);
    let again = world.agent().create(NewPlan::new("write", &before, Approval::NotNeeded)).unwrap_err();
    let running = world.free(&payload(3));
    let _claim = world.claim(&running);
    let second = world.second_gate();
    let elsewhere = second.operator("olga").unwrap().settle(&running.plan_token, &Outcome::NotDone).unwrap_err();
    let here = world.operator().mark_interrupted_as_uncertain(&running.plan_token, 1).unwrap_err();
    let used = world.ended(State::Failed, &payload(4));
    let text = [
        shown(&world.agent().begin_execute(stored(&quiet)).unwrap_err()),
        shown(&world.agent().begin_execute(stored(&rejected)).unwrap_err()),
        shown(&again),
        shown(&elsewhere),
        shown(&here),
        shown(&world.agent().begin_execute(stored(&used)).unwrap_err()),
    ];
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn every_kind_of_error_that_a_host_can_make_happen_has_its_words() {
    let world = World::with(|builder| builder.busy_deadline(std::time::Duration::from_millis(20)));
    let created = world.approved(&payload(1));
    let invalid = world.gate.agent("a b").map(drop).unwrap_err();
    assert!(invalid.is_invalid_input());
    world.clock.set_ms(START_MS - 10_000);
    let clock = world.agent().begin_execute(stored(&created)).unwrap_err();
    assert!(clock.is_clock_went_back());
    world.clock.set_ms(START_MS);
    let sql = world.sql();
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = world.agent().begin_execute(stored(&created)).unwrap_err();
    sql.execute_batch("ROLLBACK").unwrap();
    assert!(busy.is_busy() && busy.waited().unwrap() >= std::time::Duration::from_millis(20));
    let trigger = "CREATE TRIGGER t BEFORE INSERT ON audit_events BEGIN SELECT RAISE(ABORT, 'no'); END";
    sql.execute_batch(trigger).unwrap();
    let storage = world.agent().begin_execute(stored(&created)).unwrap_err();
    assert!(storage.is_storage());
    let unsupported = Gate::open(world.path()).map(drop).unwrap_err();
    assert!(unsupported.is_unsupported());
    sql.execute_batch("DROP TRIGGER t; DROP TRIGGER plans_immutable; UPDATE plans SET payload = '2'").unwrap();
    let corrupt = world.agent().begin_execute(stored(&created)).unwrap_err();
    assert!(corrupt.is_corrupt());
    sql.execute_batch("DROP TRIGGER audit_events_no_delete; DELETE FROM audit_events WHERE seq > 1").unwrap();
    let rolled_back = world.agent().record_host_event(None, "x", "").unwrap_err();
    assert!(rolled_back.is_rolled_back());
    let shut = World::new();
    shut.gate.close().unwrap();
    let closed = shut.agent().plan(&created.plan_token).unwrap_err();
    assert!(closed.is_closed());
    let other = World::new();
    let plan = other.free(&payload(1));
    std::fs::rename(other.path(), other.path().with_extension("gone")).unwrap();
    let moved = other.agent().begin_execute(stored(&plan)).unwrap_err();
    assert!(moved.is_moved());
    let token = &created.plan_token.as_str()[..8];
    let waited = format!("{} ms", busy.waited().unwrap().as_millis());
    let text: Vec<String> = [invalid, busy, storage, corrupt, moved, rolled_back, clock, closed, unsupported]
        .iter()
        .map(|error| {
            assert!(!error.is_refused() && error.refusal().is_none());
            let shown = shown(error).replace(token, "TOKEN").replace(&waited, "N ms");
            let directory = other.path().parent().unwrap().to_string_lossy().into_owned();
            shown.replace(&directory, "DIR")
        })
        .collect();
    insta::assert_snapshot!(text.join("\n"));
}

/// A file whose pages are limited is full: the limit is a connection's, so each one sets it.
#[cfg(feature = "test-hooks")]
#[test]
fn a_full_database_has_its_words_and_works_again() {
    let world = World::with(|builder| builder.connection_sql(["PRAGMA max_page_count = 60"]));
    let large = "x".repeat(500_000);
    let error = world.agent().create(NewPlan::new("write", &large, Approval::NotNeeded)).unwrap_err();
    assert!(error.is_storage_full() && !error.is_refused());
    insta::assert_snapshot!(shown(&error));
    world.free(&payload(1));
    world.assert_intact();
}

#[test]
fn the_endings_of_execute_have_their_words() {
    let world = World::new();
    let run = |outcome: fn() -> Result<u8, Failure>| {
        let created = world.free(&payload(1));
        let error: ExecuteError<u8> = world.agent().execute(stored(&created), |_| outcome()).unwrap_err();
        format!("{}: {error}\n  {}", error.code(), error.hint())
    };
    let created = world.free(&payload(2));
    let settled = world.agent().execute(stored(&created), |_| {
        world.operator().settle(&created.plan_token, &Outcome::NotDone).unwrap();
        Ok(1)
    });
    let not_recorded = settled.unwrap_err();
    let gated = world.gated(&payload(3));
    let refused = world.agent().execute(stored(&gated), |_| Ok(1)).unwrap_err();
    let text = [
        format!("{}: {refused}\n  {}", refused.code(), refused.hint()),
        run(|| Err(Failure::not_applied("out of\u{202E} stock"))),
        run(|| Err(Failure::unknown("timeout"))),
        format!("{}: {not_recorded}\n  {}", not_recorded.code(), not_recorded.hint()),
    ];
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn what_a_host_gave_stands_escaped_and_short_in_an_error() {
    let world = World::new();
    let name = format!("a\u{202E}b\n{}", "x".repeat(1_000_000));
    let said = world.gate.agent(&name).map(drop).unwrap_err().to_string();
    assert!(said.len() < 400, "{} bytes", said.len());
    assert!(said.contains("\\u{202E}") && said.contains("\\n") && !said.contains('\u{202E}'), "{said}");
    let created = world.free(&payload(1));
    world.ada().reject(&created.plan_token, Some("no\u{200B}\nway")).unwrap();
    let error = world.agent().begin_execute(stored(&created)).unwrap_err();
    let json: Value = serde_json::to_value(&error).unwrap();
    assert_eq!(json["reason"], "no\\u{200B}\\nway");
    assert!(json["message"].as_str().unwrap().ends_with("no\\u{200B}\\nway"));
}

#[test]
fn debug_of_an_error_is_its_code_and_message() {
    let error = Gate::builder("x").clock(Arc::new(TestClock::at_ms(0))).readers(0).open().map(drop).unwrap_err();
    assert_eq!(
        format!("{error:?}"),
        "Error { code: \"INVALID_INPUT\", message: \"a gate needs at least one reader\" }"
    );
    assert!(std::error::Error::source(&error).is_none());
}
