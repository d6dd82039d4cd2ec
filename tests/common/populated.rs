//! A gate in which everything happened once: a plan in every state and of every past, each under its label as
//! idempotency key. Made through the public API alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign::{Approval, Claim, Clock as _, Gate, NewPlan, Outcome, PlanToken, Redeem, State, TestClock};
use serde_json::{Value, json};

/// A text that would steer a terminal and turn its own letters around.
pub(crate) const HOSTILE: &str = "harmless\u{202E}txt.exe\u{1B}[2J\nline two";

/// What stands in the gate.
pub(crate) struct Populated {
    pub(crate) gate: Gate,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) tokens: BTreeMap<&'static str, PlanToken>,
    /// The claims of `executing` and `uncertain`: dropped, their plans count as abandoned.
    pub(crate) claims: Vec<Claim>,
}

/// Every label with the state that its plan ends in; the purged ones have no row any more.
pub(crate) const ENDS: &[(&str, State)] = &[
    ("purged-executed", State::Executed),
    ("purged-failed", State::Failed),
    ("purged-rejected", State::Rejected),
    ("purged-expired", State::Expired),
    ("lifted", State::Rejected),
    ("previewed", State::Previewed),
    ("awaiting", State::AwaitingApproval),
    ("awaiting-one-of-two", State::AwaitingApproval),
    ("approved", State::Approved),
    ("executed", State::Executed),
    ("executed-by-two", State::Executed),
    ("executed-retried", State::Executed),
    ("executed-adopted", State::Executed),
    ("consumed", State::Executed),
    ("executing", State::Executing),
    ("uncertain", State::Uncertain),
    ("failed", State::Failed),
    ("rejected", State::Rejected),
    ("regated", State::AwaitingApproval),
    ("expired", State::Expired),
];

const TOOL: &str = "update_prices";

/// The payload under a label; `regated` and `rejected` share one.
pub(crate) fn payload(label: &str) -> Value {
    let label = if label == "regated" { "rejected" } else { label };
    json!({"what": label, "percent": -10, "exact": 9_007_199_254_740_993_u64})
}

impl Populated {
    /// Fills a gate that was opened with this clock. The clock moves on by two days and some minutes.
    pub(crate) fn fill(gate: Gate, clock: Arc<TestClock>) -> Self {
        let mut filled = Self { gate, clock, tokens: BTreeMap::new(), claims: Vec::new() };
        filled.long_ago();
        filled.decided();
        filled.claimed();
        filled.said();
        filled
    }

    pub(crate) fn token(&self, label: &str) -> &PlanToken {
        &self.tokens[label]
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    fn create(&mut self, label: &'static str, approval: Approval, ttl: u64) {
        let payload = payload(label);
        let extra = json!({"label": label});
        let plan = NewPlan::new(TOOL, &payload, approval)
            .idempotency_key(label)
            .reason(if label == "awaiting" { HOSTILE.to_owned() } else { format!("because of {label}") })
            .preview_count(label.len())
            .data_digest("rows-1")
            .extra(&extra)
            .ttl(Duration::from_secs(ttl));
        let created = self.gate.agent("pricing-agent").unwrap().create(plan).unwrap();
        assert!(!created.already);
        self.tokens.insert(label, created.plan_token);
        self.pass(1);
    }

    fn ready(&mut self, label: &'static str) {
        self.create(label, Approval::NotNeeded, 900);
    }

    fn gated(&mut self, label: &'static str, quorum: u32) {
        self.create(label, Approval::Required { quorum }, 900);
    }

    fn approve(&self, label: &str, reviewer: &str) {
        let reviewer = self.gate.reviewer(reviewer).unwrap();
        let seal = reviewer.plan(self.token(label)).unwrap().seal;
        reviewer.approve(self.token(label), &seal).unwrap();
        self.pass(1);
    }

    fn reject(&self, label: &str, reason: &str) {
        self.gate.reviewer("reviewer-a").unwrap().reject(self.token(label), Some(reason)).unwrap();
        self.pass(1);
    }

    fn redeem(&self, label: &str) -> Redeem<'static> {
        Redeem::stored(self.token(label), TOOL).data_digest("rows-1")
    }

    fn begin(&self, label: &str) -> Claim {
        let claim = self.gate.agent("pricing-agent").unwrap().begin_execute(self.redeem(label)).unwrap();
        self.pass(1);
        claim
    }

    fn long_ago(&mut self) {
        let operator = self.gate.operator("operator").unwrap();
        self.ready("purged-executed");
        self.begin("purged-executed").confirm_executed(&json!({"rows": 3})).unwrap();
        self.ready("purged-failed");
        drop(self.begin("purged-failed"));
        operator.settle(self.token("purged-failed"), &Outcome::Failed("the supplier is gone".to_owned())).unwrap();
        self.gated("purged-rejected", 1);
        self.reject("purged-rejected", "not before June");
        self.create("purged-expired", Approval::NotNeeded, 5);
        self.pass(6);
        assert_eq!(operator.sweep().unwrap(), 1);
        self.pass(2 * 24 * 60 * 60);
        assert_eq!(operator.purge(Duration::from_secs(24 * 60 * 60)).unwrap(), 4);
    }

    fn decided(&mut self) {
        self.gated("lifted", 1);
        self.reject("lifted", "ask me again tomorrow");
        let lifted = &self.gate.reviewer("reviewer-b").unwrap();
        let fingerprint = lifted.plan(self.token("lifted")).unwrap().fingerprint;
        assert!(!lifted.lift_rejection(TOOL, fingerprint, "tomorrow has come").unwrap());

        self.create("expired", Approval::required(), 5);
        self.pass(6);
        assert_eq!(self.gate.operator("operator").unwrap().sweep().unwrap(), 1);

        self.ready("previewed");
        self.gated("awaiting", 1);
        self.gated("awaiting-one-of-two", 2);
        self.approve("awaiting-one-of-two", "reviewer-a");
        self.gated("approved", 1);
        self.pass(90);
        self.approve("approved", "reviewer-b");

        self.gated("regated", 1);
        self.approve("regated", "reviewer-b");
        // The same tool and payload: the "no" to one gates the other again.
        self.ready("rejected");
        self.reject("rejected", "below cost");
    }

    fn claimed(&mut self) {
        let agent = self.gate.agent("pricing-agent").unwrap();
        let operator = self.gate.operator("operator").unwrap();
        self.gated("executed", 1);
        let early = agent.begin_execute(self.redeem("executed")).unwrap_err();
        assert_eq!(early.code(), "AWAITING_APPROVAL");
        self.approve("executed", "reviewer-a");
        let mut claim = self.begin("executed");
        claim.record_host_event("exported", "to the till").unwrap();
        claim.confirm_executed(&json!({"rows": 30})).unwrap();

        self.gated("executed-by-two", 2);
        self.pass(30);
        self.approve("executed-by-two", "reviewer-a");
        self.approve("executed-by-two", "reviewer-b");
        self.begin("executed-by-two").confirm_executed("done").unwrap();

        self.ready("executed-retried");
        self.begin("executed-retried").confirm_failed("the till was offline").unwrap();
        self.begin("executed-retried").confirm_executed(&f64::NAN).unwrap();

        self.ready("executed-adopted");
        let first = self.begin("executed-adopted");
        let mut second = agent.adopt(first.plan_token(), first.attempt(), first.claim_token()).unwrap();
        second.confirm_executed(&Value::Null).unwrap();

        self.ready("consumed");
        agent.consume(self.redeem("consumed")).unwrap();

        self.ready("executing");
        self.claims.push(self.begin("executing"));
        self.ready("uncertain");
        let mut claim = self.begin("uncertain");
        claim.mark_uncertain("the till did not answer").unwrap();
        self.claims.push(claim);

        self.ready("failed");
        drop(self.begin("failed"));
        operator.settle(self.token("failed"), &Outcome::Failed("no such product".to_owned())).unwrap();
    }

    /// Refusals and host events.
    fn said(&mut self) {
        let agent = self.gate.agent("pricing-agent").unwrap();
        let refused = |redeem, code| assert_eq!(agent.begin_execute(redeem).unwrap_err().code(), code);
        refused(self.redeem("executed"), "PLAN_USED");
        refused(self.redeem("awaiting"), "AWAITING_APPROVAL");
        refused(self.redeem("rejected"), "PLAN_REJECTED");
        refused(self.redeem("purged-executed"), "PLAN_USED");
        refused(Redeem::stored(self.token("previewed"), "delete_prices"), "PLAN_MISMATCH");
        refused(Redeem::stored(self.token("previewed"), TOOL).data_digest("rows-2"), "DATA_DIGEST_MISMATCH");
        refused(Redeem::stored("0".repeat(48), TOOL), "UNKNOWN_TOKEN");
        let own = self.gate.reviewer("Pricing-Agent").unwrap();
        let seal = own.plan(self.token("awaiting")).unwrap().seal;
        assert_eq!(own.approve(self.token("awaiting"), &seal).unwrap_err().code(), "SELF_APPROVAL");
        agent.record_host_event(Some(self.token("previewed").as_str()), "shown", HOSTILE).unwrap();
        self.gate.operator("operator").unwrap().record_host_event(None, "backup", "nightly").unwrap();
        self.pass(1);
        assert!(self.clock.now_ms() > 0);
    }
}
