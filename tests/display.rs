//! Tokens, seals, fingerprints and states go into tables and log lines: they obey width and precision.

use countersign::{Approval, Gate, NewPlan};

#[test]
fn tokens_seals_fingerprints_and_states_obey_width_and_precision() {
    let gate = Gate::ephemeral().unwrap();
    let plan = gate.agent("agent").unwrap().create(NewPlan::new("tool", &1, Approval::required())).unwrap();
    assert_eq!(format!("{:.8}", plan.plan_token), plan.plan_token.as_str()[..8]);
    assert_eq!(format!("{:.8}", plan.seal), plan.seal.as_str()[..8]);
    assert_eq!(format!("{:.8}", plan.fingerprint), plan.fingerprint.to_string()[..8]);
    assert_eq!(format!("{:<20}|", plan.state), "awaiting_approval   |");
}
