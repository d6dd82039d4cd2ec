//! Two days of a shop, always the same: what the cookbook's answers were taken from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign::{
    Agent, Approval, Channel, Gate, NewPlan, Outcome, PlanToken, Redeem, Reviewer, TestClock, fingerprint,
};
use serde_json::{Value, json};

/// 2026-03-02T09:00:00Z
const MONDAY_MS: i64 = 1_772_442_000_000;

pub(crate) struct Sample {
    pub(crate) gate: Gate,
    pub(crate) path: PathBuf,
    clock: Arc<TestClock>,
    tokens: BTreeMap<&'static str, PlanToken>,
}

impl Sample {
    pub(crate) fn make(path: &Path) -> Self {
        let clock = Arc::new(TestClock::at_ms(MONDAY_MS));
        let gate = Gate::builder(path).clock(clock.clone()).open().unwrap();
        let mut sample = Self { gate, path: path.to_owned(), clock, tokens: BTreeMap::new() };
        sample.monday();
        sample.tuesday();
        sample.today();
        sample
    }

    /// A token as the cookbook prints it: the same in every run.
    fn printed(label: &str) -> String {
        fingerprint(label).unwrap().to_string()[..48].to_owned()
    }

    /// A query with the tokens of this run.
    pub(crate) fn real(&self, text: &str) -> String {
        self.tokens.iter().fold(text.to_owned(), |text, (label, token)| {
            text.replace(&Self::printed(label), token.as_str()).replace(&format!("{{{label}}}"), token.as_str())
        })
    }

    /// An answer with the tokens of the cookbook.
    pub(crate) fn shown(&self, text: &str) -> String {
        self.tokens.iter().fold(text.to_owned(), |text, (label, token)| {
            text.replace(token.as_str(), &Self::printed(label)).replace(&format!("{{{label}}}"), &Self::printed(label))
        })
    }

    fn agent(&self, caller: &str) -> Agent {
        self.gate.agent(caller).unwrap()
    }

    fn reviewer(&self, name: &str) -> Reviewer {
        self.gate.reviewer(name).unwrap().via(Channel::new("http").unwrap())
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    fn propose(&mut self, label: &'static str, caller: &str, tool: &str, payload: &Value, approval: Approval) {
        self.pass(20);
        let plan =
            NewPlan::new(tool, payload, approval).reason(format!("{label}, as asked")).preview_count(label.len());
        let created = self.agent(caller).create(plan).unwrap();
        self.tokens.insert(label, created.plan_token);
    }

    fn approve(&self, label: &str, reviewer: &Reviewer, seconds: u64) {
        self.pass(seconds);
        let seal = reviewer.plan(&self.tokens[label]).unwrap().seal;
        // A refusal is part of the story too.
        let _ = reviewer.approve(&self.tokens[label], seal);
    }

    fn run(&self, label: &str, caller: &str, tool: &str) {
        self.pass(5);
        let _ = self.agent(caller).execute(Redeem::stored(&self.tokens[label], tool), |_| {
            self.clock.advance(Duration::from_millis(1_250));
            Ok::<_, countersign::Failure>("done")
        });
    }

    fn monday(&mut self) {
        let (pricing, support) = ("pricing-agent", "support-agent");
        self.propose("spring prices", pricing, "update_prices", &json!({"percent": 5}), Approval::required());
        self.run("spring prices", pricing, "update_prices");
        self.approve("spring prices", &self.reviewer("ada"), 40);
        self.run("spring prices", pricing, "update_prices");
        self.propose("typo", pricing, "update_prices", &json!({"title": "shoes"}), Approval::NotNeeded);
        self.run("typo", pricing, "update_prices");
        self.propose("half price", pricing, "update_prices", &json!({"percent": -50}), Approval::required());
        self.pass(90);
        self.reviewer("bob").reject(&self.tokens["half price"], Some("not before the sale")).unwrap();
        self.propose("half price again", pricing, "update_prices", &json!({"percent": -50}), Approval::NotNeeded);
        self.propose("big refund", support, "send_refund", &json!({"order": 7}), Approval::Required { quorum: 2 });
        self.approve("big refund", &self.reviewer("ada"), 30);
        self.approve("big refund", &self.reviewer(support), 2);
        self.approve("big refund", &self.reviewer("bob"), 200);
        self.run("big refund", support, "send_refund");
        self.pass(3600);
        self.gate.operator("nightly").unwrap().sweep().unwrap();
    }

    fn tuesday(&mut self) {
        let support = "support-agent";
        self.clock.set_ms(MONDAY_MS + 24 * 3_600_000);
        self.propose("retried", support, "send_refund", &json!({"order": 8}), Approval::required());
        self.approve("retried", &self.reviewer("ada"), 3);
        self.pass(5);
        let mut claim =
            self.agent(support).begin_execute(Redeem::stored(&self.tokens["retried"], "send_refund")).unwrap();
        self.pass(1);
        claim.confirm_failed("the bank did not answer").unwrap();
        self.run("retried", support, "send_refund");
        self.run("retried", support, "send_refund");

        self.propose("small refund", support, "send_refund", &json!({"order": 9}), Approval::NotNeeded);
        self.pass(5);
        let mut late =
            self.agent(support).begin_execute(Redeem::stored(&self.tokens["small refund"], "send_refund")).unwrap();
        self.pass(600);
        let operator = self.gate.operator("olga").unwrap().via(Channel::new("cli:olga").unwrap());
        operator.settle(&self.tokens["small refund"], &Outcome::Failed("the bank says no".to_owned())).unwrap();
        let _ = late.confirm_executed(&"paid");

        self.propose("unused", support, "send_refund", &json!({"order": 10}), Approval::required());
        let terminal = self.gate.reviewer("ada").unwrap().via(Channel::new("cli:ada").unwrap());
        self.approve("unused", &terminal, 60);
        self.pass(3600);
        operator.sweep().unwrap();

        self.propose("lost", "pricing-agent", "update_prices", &json!({"percent": 1}), Approval::NotNeeded);
        self.pass(5);
        drop(self.agent("pricing-agent").begin_execute(Redeem::stored(&self.tokens["lost"], "update_prices")).unwrap());
        let reviewer = self.reviewer("bob");
        let no = reviewer.plan(&self.tokens["half price"]).unwrap();
        self.pass(3600);
        reviewer.lift_rejection(&no.tool, &no.fingerprint, "the sale begins").unwrap();
        // Somebody set the clock right.
        self.clock.set_ms(MONDAY_MS + 24 * 3_600_000 + 2 * 3_600_000);
        operator.purge(Duration::from_secs(6 * 3600)).unwrap();
    }

    /// What waits now, by the machine's clock: the view compares with that.
    fn today(&mut self) {
        let gate = Gate::open(&self.path).unwrap();
        let payload = json!({"customer": 12});
        let plan = NewPlan::new("delete_customer", &payload, Approval::required())
            .reason("the customer asked for it")
            .preview_count(1)
            .ttl(Duration::from_secs(24 * 3600));
        let created = gate.agent("support-agent").unwrap().create(plan).unwrap();
        self.tokens.insert("waiting", created.plan_token);
    }
}
