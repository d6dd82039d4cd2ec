//! Every lifecycle trace of `conformance/lifecycle.jsonl`: answers and audit events.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::ExecuteOutcome;
use countersign::{
    Agent, Approval, AuditQuery, Claim, Clock as _, Gate, NewPlan, Outcome, PlanToken, Redeem, Seal, TestClock,
};
use serde_json::{Value, json};

const TRACES: &str = include_str!("conformance/lifecycle.jsonl");

struct Known {
    token: PlanToken,
    seal: Seal,
    agent: Agent,
    tool: String,
    claim: Option<Claim>,
}

struct World {
    gate: Gate,
    clock: Arc<TestClock>,
    ttl: Duration,
    plans: Vec<Known>,
    index: HashMap<String, usize>,
    seq: i64,
}

impl World {
    fn new(ttl: Duration) -> Self {
        let clock = Arc::new(TestClock::at_ms(1_700_000_000_000));
        let gate = common::ephemeral(|builder| builder.clock(clock.clone()));
        let seq = gate.operator("op").unwrap().audit().head().unwrap().seq;
        Self { gate, clock, ttl, plans: Vec::new(), index: HashMap::new(), seq }
    }

    fn run(&mut self, step: &Value) -> Value {
        let op = step["op"].as_str().unwrap();
        let plan = step["plan"].as_u64().map(|plan| plan as usize);
        match op {
            "advance" => {
                self.clock.advance(Duration::from_millis(step["ms"].as_u64().unwrap()));
                json!({"ok": true})
            }
            "create" => self.create(step),
            "approve" => {
                let known = &self.plans[plan.unwrap()];
                let answer = self.gate.reviewer("reviewer").unwrap().approve(&known.token, &known.seal);
                common::answer(answer, |decision| json!({"ok": true, "already": decision.already}))
            }
            "reject" => {
                let known = &self.plans[plan.unwrap()];
                let answer = self.gate.reviewer("reviewer").unwrap().reject(&known.token, step["reason"].as_str());
                common::answer(answer, |decision| json!({"ok": true, "already": decision.already}))
            }
            "begin_execute" | "consume" => {
                let known = &mut self.plans[plan.unwrap()];
                let mut redeem = Redeem::new(&known.token, known.tool.clone()).payload(&step["payload"]);
                if let Some(digest) = step["digest"].as_str() {
                    redeem = redeem.data_digest(digest);
                }
                if op == "consume" {
                    return common::answer(known.agent.consume(redeem), |_| json!({"ok": true}));
                }
                let answer = known.agent.begin_execute(redeem);
                common::answer(answer, |claim| {
                    known.claim = Some(claim);
                    json!({"ok": true})
                })
            }
            "confirm_executed" | "confirm_failed" => {
                let known = &mut self.plans[plan.unwrap()];
                let answer = match &mut known.claim {
                    // A plan that was never begun: a made-up claim is tried through adopt.
                    None => known.agent.adopt(&known.token, 1, &"0".repeat(48)).map(|_| ()),
                    Some(claim) if op == "confirm_executed" => claim.confirm_executed(&json!(null)).map(|_| ()),
                    Some(claim) => claim.confirm_failed("it failed").map(|_| ()),
                };
                common::answer(answer, |()| json!({"ok": true}))
            }
            "reconcile_stuck" => {
                let outcome = ExecuteOutcome::parse(step["outcome"].as_str().unwrap());
                let answer =
                    self.gate.operator("op").unwrap().settle(&self.plans[plan.unwrap()].token, &Outcome::from(outcome));
                common::answer(answer, |_| json!({"ok": true}))
            }
            "list_pending" => {
                let pending = self.gate.reviewer("reviewer").unwrap().pending(1000).unwrap();
                let plans: Vec<_> =
                    pending.items.iter().map(|card| self.index[card.plan.plan_token.as_str()]).collect();
                json!({"ok": true, "plans": plans})
            }
            "list_executing" => {
                let stuck = self.gate.operator("op").unwrap().executing(1000).unwrap();
                let plans: Vec<_> =
                    stuck.items.iter().map(|stuck| self.index[stuck.plan.plan_token.as_str()]).collect();
                json!({"ok": true, "plans": plans})
            }
            other => panic!("the traces have a new operation: {other}"),
        }
    }

    fn create(&mut self, step: &Value) -> Value {
        let agent = self.gate.agent(step["caller"].as_str().unwrap()).unwrap();
        let tool = step["tool"].as_str().unwrap().to_owned();
        let approval = if step["gated"].as_bool().unwrap() { Approval::required() } else { Approval::NotNeeded };
        let mut plan = NewPlan::new(&tool, &step["payload"], approval).ttl(self.ttl);
        if let Some(reason) = step["reason"].as_str() {
            plan = plan.reason(reason);
        }
        if let Some(count) = step["preview_count"].as_u64() {
            plan = plan.preview_count(count as usize);
        }
        if let Some(digest) = step["digest"].as_str() {
            plan = plan.data_digest(digest);
        }
        let created = agent.create(plan).unwrap();
        assert_eq!(step["plan"].as_u64().unwrap() as usize, self.plans.len());
        self.index.insert(created.plan_token.as_str().to_owned(), self.plans.len());
        self.plans.push(Known { token: created.plan_token, seal: created.seal, agent, tool, claim: None });
        let left = created.expires_at.timestamp_millis() - self.clock.now_ms();
        json!({"ok": true, "status": created.state.as_str(), "expires_in_ms": left})
    }

    /// The events that a step added, without the notice of an expiry.
    fn new_events(&mut self) -> Vec<Value> {
        let operator = self.gate.operator("op").unwrap();
        let events = operator.audit().query(&AuditQuery::new().after(self.seq)).unwrap();
        self.seq += events.len() as i64;
        events
            .iter()
            .filter(|event| event.event != "expired")
            .map(|event| json!({"event": event.event, "code": event.code}))
            .collect()
    }
}

#[test]
fn every_lifecycle_trace_gives_its_answers_and_its_audit_events() {
    let mut steps = 0;
    let mut traces = 0;
    for (number, line) in TRACES.lines().enumerate() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let mut world = World::new(Duration::from_millis(trace["ttl_ms"].as_u64().unwrap()));
        for (at, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            let mut answer = world.run(step);
            if step["op"] == "approve" {
                // The traces tell the reviewer's reason to the agent alone.
                answer.as_object_mut().unwrap().remove("reason");
            }
            let events = world.new_events();
            assert_eq!(answer, step["expect"], "trace {number}, step {at}: {step}");
            assert_eq!(json!(events), step["audit"], "trace {number}, step {at}: {step}");
            world.clock.advance(Duration::from_millis(1));
            steps += 1;
        }
        let report = world.gate.operator("op").unwrap().audit().verify(None).unwrap();
        assert_eq!(report.difference, None, "trace {number}");
        traces += 1;
    }
    assert_eq!((traces, steps), (150, 2609));
}
