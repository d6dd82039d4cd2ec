//! `execute` and `consume`: how each ending of the effect is recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};

use countersign::{ExecuteError, Failure, State};
use serde_json::json;

use crate::common::world::{World, code, payload, stored};

#[test]
fn a_value_is_stored_and_returned() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    let answer = world.agent().execute(stored(&created), |claim| {
        assert_eq!(claim.attempt(), 1);
        Ok(json!({"rows": 2}))
    });
    assert_eq!(answer.unwrap(), json!({"rows": 2}));
    world.assert_events(&["executing", "executed"]);
    let plan = world.operator().plan(&created.plan_token).unwrap();
    assert_eq!((plan.state, plan.result.unwrap().as_str()), (State::Executed, r#"{"rows":2}"#));
    world.assert_intact();
}

#[test]
fn a_refused_plan_does_not_run() {
    let world = World::new();
    let created = world.gated(&payload(1));
    let answer = world.agent().execute(stored(&created), |_| -> Result<(), Failure> { panic!("it ran") });
    let error = answer.unwrap_err();
    assert!(matches!(&error, ExecuteError::Gate(error) if error.is_refused()));
    assert_eq!(error.code(), "AWAITING_APPROVAL");
    assert!(!error.hint().is_empty());
}

#[test]
fn not_applied_means_that_the_plan_may_run_again() {
    let world = World::new();
    let created = world.approved(&payload(1));
    world.rows();
    let answer =
        world.agent().execute(stored(&created), |_| -> Result<(), _> { Err(Failure::not_applied("no stock")) });
    let error = answer.unwrap_err();
    assert_eq!(error.code(), "NOT_APPLIED");
    assert!(
        matches!(&error, ExecuteError::NotApplied { source, unrecorded: None } if source.to_string() == "no stock")
    );
    world.assert_events(&["executing", "failed EXECUTION_FAILED"]);
    assert_eq!(world.state(&created), State::Approved);
    assert_eq!(world.agent().execute(stored(&created), |_| Ok(1)).unwrap(), 1);
    assert_eq!(world.operator().plan(&created.plan_token).unwrap().attempt, 2);
    world.assert_intact();
}

#[test]
fn any_other_error_is_uncertain() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    let answer = world.agent().execute(stored(&created), |_| Ok("x".parse::<u8>()?));
    let error = answer.unwrap_err();
    assert_eq!(error.code(), "UNCERTAIN");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("invalid digit"));
    world.assert_events(&["executing", "uncertain"]);
    assert_eq!(world.state(&created), State::Uncertain);
    assert_eq!(code(world.agent().begin_execute(stored(&created))), "ALREADY_EXECUTING");
    world.assert_intact();
}

#[test]
fn a_panic_is_uncertain_and_goes_on() {
    let world = World::new();
    let created = world.free(&payload(1));
    world.rows();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        world.agent().execute(stored(&created), |_| -> Result<(), Failure> { panic!("the pump is on fire") })
    }));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"the pump is on fire"));
    world.assert_events(&["executing", "uncertain"]);
    assert_eq!(world.state(&created), State::Uncertain);
    // The gate goes on.
    assert_eq!(world.agent().execute(stored(&world.free(&payload(2))), |_| Ok(7)).unwrap(), 7);
    world.assert_intact();
}

#[test]
fn an_effect_whose_confirm_cannot_be_written_gives_value_and_claim_back() {
    let world = World::new();
    let created = world.free(&payload(1));
    let sql = world.sql();
    let answer = world.agent().execute(stored(&created), |_| {
        // Somebody breaks the audit while the effect runs.
        sql.execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON audit_events BEGIN SELECT RAISE(ABORT, 'broken'); END",
        )
        .unwrap();
        Ok(42)
    });
    let Err(ExecuteError::NotRecorded { value, mut claim, source }) = answer else { panic!("{answer:?}") };
    assert_eq!((value, source.code()), (42, "STORAGE"));
    assert_eq!(world.state(&created), State::Executing);
    sql.execute_batch("DROP TRIGGER broken").unwrap();
    assert_eq!(claim.confirm_executed(&value).unwrap().state, State::Executed);
    world.assert_intact();
}

#[test]
fn an_outcome_that_cannot_be_written_gives_the_claim_back_too() {
    for applied in [true, false] {
        let world = World::new();
        let created = world.free(&payload(1));
        let sql = world.sql();
        let answer = world.agent().execute(stored(&created), |_| -> Result<(), _> {
            sql.execute_batch(
                "CREATE TRIGGER broken BEFORE INSERT ON audit_events BEGIN SELECT RAISE(ABORT, 'broken'); END",
            )
            .unwrap();
            Err(if applied { Failure::unknown("?") } else { Failure::not_applied("no") })
        });
        sql.execute_batch("DROP TRIGGER broken").unwrap();
        let unrecorded = match answer.unwrap_err() {
            ExecuteError::Uncertain { unrecorded, .. } if applied => unrecorded,
            ExecuteError::NotApplied { unrecorded, .. } if !applied => unrecorded,
            other => panic!("{other}"),
        };
        let mut unrecorded = unrecorded.unwrap();
        assert_eq!(unrecorded.error.code(), "STORAGE");
        assert_eq!(world.state(&created), State::Executing);
        unrecorded.claim.confirm_failed("no").unwrap();
        world.assert_intact();
    }
}

#[test]
fn an_effect_that_was_settled_meanwhile_is_not_recorded_and_kept_as_evidence() {
    let world = World::new();
    let created = world.free(&payload(1));
    let operator = world.operator();
    let answer = world.agent().execute(stored(&created), |_| {
        operator.settle(&created.plan_token, &countersign::Outcome::NotDone).unwrap();
        Ok("it ran after all")
    });
    let error = answer.unwrap_err();
    assert_eq!(error.code(), "NOT_RECORDED");
    let last = world.rows().pop().unwrap();
    assert_eq!(last.code.as_deref(), Some("NOT_EXECUTING"));
    assert!(last.detail.unwrap().contains("confirm_executed"));
    world.assert_intact();
}

#[test]
fn consume_claims_and_confirms_at_once() {
    let world = World::new();
    let created = world.approved(&payload(1));
    world.rows();
    let plan = world.agent().consume(stored(&created)).unwrap();
    assert_eq!((plan.state, plan.attempt), (State::Executed, 1));
    world.assert_events(&["executing", "executed"]);
    assert_eq!(code(world.agent().consume(stored(&created))), "PLAN_USED");
    let waiting = world.gated(&payload(2));
    assert_eq!(code(world.agent().consume(stored(&waiting))), "AWAITING_APPROVAL");
    world.assert_intact();
}
