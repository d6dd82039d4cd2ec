//! Long random runs against a plain model: answers, states, listings and audit after each operation, and the chain at
//! the end.
//!
//! `COUNTERSIGN_MODEL_CASES` (default 128) sets how many runs, `COUNTERSIGN_MODEL_OPS` (default 120) how long the longest
//! one is. A failure prints the shortest list of operations that shows it.

mod ops;
mod plain;
mod real;

use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};

use ops::{Op, Run};
use plain::Model;
use real::Real;

const START_MS: i64 = 1_700_000_000_000;

/// One operation on both; `None` where there is nothing yet to do it to.
fn step(model: &mut Model, real: &mut Real, op: &Op) -> Option<(String, String)> {
    let plans = model.plans.len();
    let claims = model.handles.len();
    Some(match *op {
        Op::Create { .. } => {
            let expected = model.create(op);
            let answer = real.create(op);
            if model.plans.len() > plans && answer == expected {
                model.plans[plans].token = real.newest_token();
            }
            (expected, answer)
        }
        Op::Begin { plan, .. } => {
            let plan = plan.of(plans)?;
            let answer = real.begin(op, plan, model);
            (model.begin(op, plan), answer)
        }
        Op::Approve { plan, .. } => {
            let plan = plan.of(plans)?;
            (model.approve(op, plan), real.approve(op, plan))
        }
        Op::Reject { plan, .. } => {
            let plan = plan.of(plans)?;
            (model.reject(op, plan), real.reject(op, plan))
        }
        Op::Lift { gate, tool, payload } => (model.lift(gate, tool, payload), real.lift(gate, tool, payload)),
        Op::Confirm { claim, report } => {
            let claim = claim.of(claims)?;
            (model.confirm(claim, report), real.confirm(claim, report))
        }
        Op::Check { claim } => {
            let claim = claim.of(claims)?;
            (model.check(claim), real.check(claim))
        }
        Op::DropClaim { claim } => {
            let claim = claim.of(claims)?;
            model.handles.remove(claim);
            drop(real.claims.remove(claim));
            (String::new(), String::new())
        }
        Op::Adopt { plan, .. } => {
            let plan = plan.of(plans)?;
            let answer = real.adopt(op, plan, model);
            (model.adopt(op, plan), answer)
        }
        Op::Settle { gate, plan, outcome } => {
            let plan = plan.of(plans)?;
            (model.settle(gate, plan, outcome), real.settle(gate, plan, outcome))
        }
        Op::Mark { gate, plan, attempt } => {
            let plan = plan.of(plans)?;
            let named = model.attempt(plan, attempt);
            // Below zero there is no other attempt to name.
            let by = if named == model.attempt(plan, 0) { 0 } else { attempt };
            (model.mark(gate, plan, by), real.mark(gate, plan, named))
        }
        Op::Recover { gate } => (model.recover(gate), real.recover(gate)),
        Op::Sweep { gate } => (model.sweep(), real.sweep(gate)),
        Op::Purge { gate, age_ms } => (model.purge(age_ms), real.purge(gate, age_ms)),
        Op::Host { gate, own, plan } => {
            let plan = match plan {
                Some(plan) => Some(plan.of(plans)?),
                None => None,
            };
            let asker = plan.map_or(0, |plan| model.asker(plan, own));
            (model.host(gate, own, plan), real.host(gate, asker, plan))
        }
        Op::Forward { ms } => {
            model.now += ms as i64;
            real.clock.advance(Duration::from_millis(ms));
            (String::new(), String::new())
        }
        Op::Back { ms } => {
            model.now -= ms;
            real.clock.set_ms(model.now);
            (String::new(), String::new())
        }
        Op::Reopen { gate } => {
            model.reopen(gate);
            real.reopen(gate);
            (String::new(), String::new())
        }
    })
}

fn run_both(run: &Run) {
    let mut model = Model::new(START_MS, run.refuse_rejected, run.max_pending);
    let mut real = Real::new(START_MS, run);
    for (n, op) in run.ops.iter().enumerate() {
        let Some((expected, answer)) = step(&mut model, &mut real, op) else { continue };
        assert_eq!(answer, expected, "the answer of operation {n}: {op:?}");
        let (mut told, mut expected) = (real.take_events(), model.take_events());
        if matches!(op, Op::Sweep { .. }) {
            // In which order plans of one sweep expire is nobody's business.
            told.sort();
            expected.sort();
        }
        assert_eq!(told, expected, "the audit of operation {n}: {op:?}");
        assert_eq!(real.claims.len(), model.handles.len());
        let gate = n % 2;
        for plan in 0..model.plans.len() {
            assert_eq!(real.view(gate, plan), model.view(plan), "plan {plan} after operation {n}: {op:?}");
        }
        assert_eq!(real.pending(gate), model.pending(), "pending after operation {n}: {op:?}");
        assert_eq!(real.stuck(gate), model.stuck(), "executing after operation {n}: {op:?}");
    }
    assert!(real.take_events().is_empty(), "reads left rows");
    real.assert_intact();
}

fn from_env(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")),
        Err(_) => default,
    }
}

#[test]
fn the_gate_does_what_the_plain_model_does() {
    let config = Config {
        cases: from_env("COUNTERSIGN_MODEL_CASES", 128) as u32,
        max_shrink_iters: 5_000,
        failure_persistence: None,
        ..Config::default()
    };
    let longest = from_env("COUNTERSIGN_MODEL_OPS", 120).max(2);
    let outcome = TestRunner::new(config).run(&ops::run(longest), |run| {
        run_both(&run);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
