//! Clocks that jump between any two steps.

use std::sync::Arc;
use std::time::Duration;

use countersign::{Approval, Clock as _, Gate, NewPlan, Redeem, State, TestClock};

use crate::common::{self, invariants};

const TOOL: &str = "write_rows";
const HOUR: i64 = 3_600_000;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

fn gate() -> (Gate, Arc<TestClock>) {
    let clock = Arc::new(TestClock::at_ms(1_700_000_000_000));
    let gate = common::ephemeral(|builder| builder.clock(clock.clone()));
    (gate, clock)
}

/// Each step of a gated lifecycle, with a jump of the clock before step `at`, and back after it when `back`.
fn lifecycle(at: usize, jump: i64, back: bool) -> Vec<String> {
    let (gate, clock) = gate();
    let agent = gate.agent("agent").unwrap();
    let reviewer = gate.reviewer("ada").unwrap();
    let mut answers = Vec::new();
    let mut step = |number: usize, call: &mut dyn FnMut() -> Result<State, countersign::Error>| {
        clock.advance(Duration::from_secs(10));
        let before = clock.now_ms();
        if number == at {
            clock.set_ms(before + jump);
        }
        let answer = call();
        if number == at && back {
            clock.set_ms(before);
        }
        answers.push(match answer {
            Ok(state) => state.as_str().to_owned(),
            Err(error) => error.code().to_owned(),
        });
    };
    let mut created = None;
    let mut claim = None;
    step(0, &mut || {
        created = Some(agent.create(NewPlan::new(TOOL, &1, Approval::required()))?);
        Ok(created.as_ref().map_or(State::Previewed, |created| created.state))
    });
    let created = created.unwrap();
    step(1, &mut || reviewer.approve(&created.plan_token, &created.seal).map(|decision| decision.state));
    step(2, &mut || {
        claim = Some(agent.begin_execute(Redeem::stored(&created.plan_token, TOOL))?);
        Ok(State::Executing)
    });
    if let Some(claim) = &mut claim {
        step(3, &mut || claim.confirm_executed(&1).map(|settled| settled.state));
    }
    step(4, &mut || reviewer.plan(&created.plan_token).map(|plan| plan.state));
    invariants::sound(&gate);
    answers
}

#[test]
fn after_a_jump_forward_what_expired_stays_expired_also_when_the_clock_comes_back() {
    let good = ["awaiting_approval", "approved", "executing", "executed", "executed"];
    for back in [false, true] {
        assert_eq!(lifecycle(1, TEN_YEARS, back), ["awaiting_approval", "PLAN_EXPIRED", "PLAN_EXPIRED", "expired"]);
        assert_eq!(lifecycle(2, TEN_YEARS, back), ["awaiting_approval", "approved", "PLAN_EXPIRED", "expired"]);
        // What runs never expires.
        assert_eq!(lifecycle(3, TEN_YEARS, back), good);
        assert_eq!(lifecycle(4, TEN_YEARS, back), good);
    }
    // Created in the future, and the clock came back: behind the plan's own time nothing is decided or run.
    assert_eq!(
        lifecycle(0, TEN_YEARS, true),
        ["awaiting_approval", "CLOCK_WENT_BACK", "AWAITING_APPROVAL", "awaiting_approval"]
    );
}

#[test]
fn behind_the_plans_own_times_nothing_is_approved_or_claimed_and_a_confirm_is_recorded() {
    assert_eq!(
        lifecycle(1, -HOUR, true),
        ["awaiting_approval", "CLOCK_WENT_BACK", "AWAITING_APPROVAL", "awaiting_approval"]
    );
    assert_eq!(lifecycle(2, -HOUR, true), ["awaiting_approval", "approved", "CLOCK_WENT_BACK", "approved"]);
    let good = ["awaiting_approval", "approved", "executing", "executed", "executed"];
    assert_eq!(lifecycle(3, -HOUR, true), good);
    assert_eq!(lifecycle(3, -HOUR, false), good);
    assert_eq!(lifecycle(4, -HOUR, false), good);
}

#[test]
fn two_seconds_behind_are_borne_and_one_millisecond_more_is_not() {
    // Ten seconds pass between two steps.
    let good = ["awaiting_approval", "approved", "executing", "executed", "executed"];
    assert_eq!(lifecycle(1, -12_000, true), good);
    assert_eq!(lifecycle(1, -12_001, true)[1], "CLOCK_WENT_BACK");
    assert_eq!(lifecycle(2, -12_000, true), good);
    assert_eq!(lifecycle(2, -12_001, true)[2], "CLOCK_WENT_BACK");
}

#[test]
fn a_retry_is_measured_against_its_last_claim() {
    let (gate, clock) = gate();
    let agent = gate.agent("agent").unwrap();
    let token = agent.create(NewPlan::new(TOOL, &1, Approval::NotNeeded)).unwrap().plan_token;
    clock.advance(Duration::from_secs(60));
    agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap().confirm_failed("no").unwrap();
    clock.set_ms(clock.now_ms() - 30_000);
    let error = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap_err();
    assert!(error.is_clock_went_back(), "{error}");
    clock.advance(Duration::from_secs(30));
    drop(agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap());
    invariants::sound(&gate);
}

#[test]
fn no_jump_makes_a_claim_expire_or_be_swept() {
    let (gate, clock) = gate();
    let agent = gate.agent("agent").unwrap();
    let operator = gate.operator("op").unwrap();
    let token = agent.create(NewPlan::new(TOOL, &1, Approval::NotNeeded)).unwrap().plan_token;
    let mut claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    for jump in [TEN_YEARS, -TEN_YEARS - HOUR, 2 * HOUR] {
        clock.set_ms(clock.now_ms() + jump);
        assert_eq!(operator.sweep().unwrap(), 0);
        assert_eq!(operator.purge(Duration::ZERO).unwrap(), 0);
        assert_eq!(operator.recover().unwrap().alive, std::slice::from_ref(&token));
        assert_eq!(operator.plan(&token).unwrap().state, State::Executing);
    }
    assert_eq!(claim.confirm_executed(&1).unwrap().state, State::Executed);
    invariants::sound(&gate);
}
