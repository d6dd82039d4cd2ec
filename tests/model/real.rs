//! The real gate, asked the same, with its answers in the model's words.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use countersign::{
    Approval, AuditQuery, Claim, Error, Gate, NewPlan, Outcome, PlanToken, Redeem, RejectedPayloads, TestClock,
};
use serde_json::json;

use crate::ops::{Op, Presented, Report, Run, Seal, Verified};
use crate::plain::{CALLERS, Model, OPERATOR, REVIEWERS, event_text, refused_because, spelled, view_text};

const TOOLS: [&str; 2] = ["write", "delete"];
const WRONG_SEAL: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const WRONG_CLAIM: &str = "000000000000000000000000000000000000000000000000";

pub(crate) struct Real {
    gates: Vec<Gate>,
    pub(crate) clock: Arc<TestClock>,
    tokens: Vec<(PlanToken, countersign::Seal)>,
    index: HashMap<String, usize>,
    pub(crate) claims: Vec<(Claim, usize)>,
    kept_tokens: HashMap<usize, String>,
    seq: i64,
    refuse_rejected: bool,
    max_pending: u64,
    directory: tempfile::TempDir,
}

/// Where a sync costs nothing, if there is such a place: what the model tests is not on the disk.
fn memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

fn digest(n: usize) -> String {
    format!("rows:{n}")
}

fn answer<T>(answer: Result<T, Error>, ok: impl FnOnce(T) -> String) -> String {
    match answer {
        Ok(value) => ok(value),
        Err(error) => match error.refusal() {
            Some(refusal) => refused_because(error.code(), refusal.reason()),
            None => format!("error {}", error.code()),
        },
    }
}

impl Real {
    pub(crate) fn new(now: i64, run: &Run) -> Self {
        let mut real = Self {
            gates: Vec::new(),
            clock: Arc::new(TestClock::at_ms(now)),
            tokens: Vec::new(),
            index: HashMap::new(),
            claims: Vec::new(),
            kept_tokens: HashMap::new(),
            seq: 1,
            refuse_rejected: run.refuse_rejected,
            max_pending: run.max_pending,
            directory: tempfile::Builder::new().prefix("countersign-model-").tempdir_in(memory()).unwrap(),
        };
        for _ in 0..2 {
            real.gates.push(real.open());
        }
        real
    }

    fn open(&self) -> Gate {
        let what = if self.refuse_rejected { RejectedPayloads::Refuse } else { RejectedPayloads::Gate };
        Gate::builder(self.directory.path().join("gate.db"))
            .clock(self.clock.clone())
            .rejected_payloads(what)
            .max_pending(self.max_pending)
            .open()
            .unwrap()
    }

    fn operator(&self, gate: usize) -> countersign::Operator {
        self.gates[gate].operator(OPERATOR).unwrap()
    }

    fn reviewer(&self, gate: usize, reviewer: usize) -> countersign::Reviewer {
        self.gates[gate].reviewer(&spelled(REVIEWERS[reviewer], gate)).unwrap()
    }

    fn agent(&self, gate: usize, caller: usize) -> countersign::Agent {
        self.gates[gate].agent(&spelled(CALLERS[caller], gate)).unwrap()
    }

    pub(crate) fn create(&mut self, op: &Op) -> String {
        let &Op::Create { gate, caller, tool, payload, quorum, digest: d, extra, key, ttl_s } = op else {
            unreachable!()
        };
        let (value, more) = (json!({"payload": payload}), json!({"note": "more"}));
        let approval = if quorum == 0 { Approval::NotNeeded } else { Approval::Required { quorum } };
        let ttl = std::time::Duration::from_secs(ttl_s);
        let mut plan = NewPlan::new(TOOLS[tool], &value, approval).ttl(ttl);
        if let Some(d) = d {
            plan = plan.data_digest(digest(d));
        }
        if extra {
            plan = plan.extra(&more);
        }
        if let Some(key) = key {
            plan = plan.idempotency_key(format!("key {key}"));
        }
        let created = self.agent(gate, caller).create(plan);
        answer(created, |created| {
            let next = self.tokens.len();
            let plan = *self.index.entry(created.plan_token.as_str().to_owned()).or_insert(next);
            if plan == next {
                self.tokens.push((created.plan_token.clone(), created.seal.clone()));
            }
            let earlier = created.earlier_rejection.map(|no| no.reason);
            format!("plan {plan} {} already: {}, earlier no: {earlier:?}", created.state, created.already)
        })
    }

    /// The token of the newest plan, for the model's order.
    pub(crate) fn newest_token(&self) -> String {
        self.tokens.last().unwrap().0.as_str().to_owned()
    }

    pub(crate) fn begin(&mut self, op: &Op, plan: usize, model: &Model) -> String {
        let &Op::Begin { gate, own, payload, tool, digest: d, consume, .. } = op else { unreachable!() };
        let agent = self.agent(gate, model.asker(plan, own));
        let (real_tool, real_payload) = model.tool_and_payload(plan);
        let tool = TOOLS[if tool { real_tool } else { 1 - real_tool }];
        let shown = if payload == Presented::Other { json!("another") } else { json!({"payload": real_payload}) };
        let mut redeem = match payload {
            Presented::Stored => Redeem::stored(&self.tokens[plan].0, tool),
            _ => Redeem::new(&self.tokens[plan].0, tool).payload(&shown),
        };
        match d {
            Seal::None => {}
            Seal::Right => redeem = redeem.data_digest(digest(model.digest(plan).unwrap_or(7))),
            Seal::Wrong => redeem = redeem.data_digest("other rows"),
        }
        if consume {
            return answer(agent.consume(redeem), |done| format!("plan {plan} attempt {}", done.attempt));
        }
        answer(agent.begin_execute(redeem), |claim| self.hold(claim, plan, gate))
    }

    fn hold(&mut self, claim: Claim, plan: usize, gate: usize) -> String {
        let said = format!("plan {} attempt {}", self.index[claim.plan_token().as_str()], claim.attempt());
        self.kept_tokens.insert(plan, claim.claim_token().to_owned());
        self.claims.push((claim, gate));
        said
    }

    pub(crate) fn approve(&mut self, op: &Op, plan: usize) -> String {
        let &Op::Approve { gate, reviewer, seal, .. } = op else { unreachable!() };
        let (token, right) = &self.tokens[plan];
        let seal = if seal { right.as_str() } else { WRONG_SEAL };
        answer(self.reviewer(gate, reviewer).approve(token, seal), |d| {
            format!("{} already: {}, {} of {}", d.state, d.already, d.approvals, d.approvals_needed)
        })
    }

    pub(crate) fn reject(&mut self, op: &Op, plan: usize) -> String {
        let &Op::Reject { gate, reviewer, seal, reason, .. } = op else { unreachable!() };
        let (token, right) = &self.tokens[plan];
        let reason = reason.map(|n| format!("reason {n}"));
        let reviewer = self.reviewer(gate, reviewer);
        let decision = match seal {
            Seal::None => reviewer.reject(token, reason.as_deref()),
            Seal::Right => reviewer.reject_sealed(token, right, reason.as_deref()),
            Seal::Wrong => reviewer.reject_sealed(token, WRONG_SEAL, reason.as_deref()),
        };
        answer(decision, |d| format!("{} already: {}", d.state, d.already))
    }

    pub(crate) fn lift(&mut self, gate: usize, tool: usize, payload: usize) -> String {
        let fingerprint = countersign::fingerprint(&json!({"payload": payload})).unwrap().to_string();
        let lifted = self.reviewer(gate, 0).lift_rejection(TOOLS[tool], fingerprint, "");
        answer(lifted, |already| format!("already: {already}"))
    }

    pub(crate) fn confirm(&mut self, claim: usize, report: Report) -> String {
        let claim = &mut self.claims[claim].0;
        let settled = match report {
            Report::Executed => claim.confirm_executed(&"done"),
            Report::Failed => claim.confirm_failed("failed"),
            Report::Uncertain => claim.mark_uncertain("unclear"),
        };
        answer(settled, |settled| format!("{} already: {}", settled.state, settled.already))
    }

    pub(crate) fn check(&self, claim: usize) -> String {
        answer(self.claims[claim].0.check(), |()| "ok".to_owned())
    }

    pub(crate) fn adopt(&mut self, op: &Op, plan: usize, model: &Model) -> String {
        let &Op::Adopt { gate, own, attempt, token, .. } = op else { unreachable!() };
        let agent = self.agent(gate, model.asker(plan, own));
        let kept = self.kept_tokens.get(&plan).filter(|_| token).map_or(WRONG_CLAIM, String::as_str);
        let adopted = agent.adopt(&self.tokens[plan].0, model.attempt(plan, attempt), kept);
        answer(adopted, |claim| self.hold(claim, plan, gate))
    }

    pub(crate) fn settle(&self, gate: usize, plan: usize, outcome: Verified) -> String {
        let outcome = match outcome {
            Verified::Done => Outcome::done(&"seen"),
            Verified::NotDone => Outcome::NotDone,
            Verified::Failed => Outcome::Failed("half".to_owned()),
            Verified::Unknown => Outcome::Unknown,
        };
        let settled = self.operator(gate).settle(&self.tokens[plan].0, &outcome);
        answer(settled, |settled| format!("{} already: {}", settled.state, settled.already))
    }

    pub(crate) fn mark(&self, gate: usize, plan: usize, attempt: u32) -> String {
        let marked = self.operator(gate).mark_interrupted_as_uncertain(&self.tokens[plan].0, attempt);
        answer(marked, |settled| format!("{} already: {}", settled.state, settled.already))
    }

    pub(crate) fn recover(&self, gate: usize) -> String {
        answer(self.operator(gate).recover(), |report| {
            assert!(report.settled.is_empty() && report.errors.is_empty() && report.not_asked.is_empty());
            assert!(report.unknown_owner.is_empty());
            let plans = |tokens: &[PlanToken]| tokens.iter().map(|t| self.index[t.as_str()]).collect::<Vec<_>>();
            format!("uncertain {:?}, alive {:?}", plans(&report.uncertain), plans(&report.alive))
        })
    }

    pub(crate) fn sweep(&self, gate: usize) -> String {
        answer(self.operator(gate).sweep(), |swept| swept.to_string())
    }

    pub(crate) fn purge(&self, gate: usize, age_ms: u64) -> String {
        let age = std::time::Duration::from_millis(age_ms);
        answer(self.operator(gate).purge(age), |purged| purged.to_string())
    }

    pub(crate) fn host(&self, gate: usize, asker: usize, plan: Option<usize>) -> String {
        let token = plan.map(|plan| self.tokens[plan].0.as_str());
        answer(self.agent(gate, asker).record_host_event(token, "note", ""), |()| "ok".to_owned())
    }

    pub(crate) fn reopen(&mut self, gate: usize) {
        self.claims.retain(|(_, of)| *of != gate);
        self.gates[gate].close().unwrap();
        self.gates[gate] = self.open();
    }

    /// The audit's new rows.
    pub(crate) fn take_events(&mut self) -> Vec<String> {
        let rows = self.operator(0).audit().query(&AuditQuery::new().after(self.seq)).unwrap();
        self.seq += rows.len() as i64;
        rows.iter()
            .map(|row| {
                let plan = row.plan_token.as_ref().map(|token| self.index[token]);
                let states = (row.from_state.as_deref(), row.to_state.as_deref());
                let (code, reason) = (row.code.as_deref(), row.reason.as_deref());
                event_text(&row.event, code, plan, states, &row.actor, row.attempt, reason)
            })
            .collect()
    }

    pub(crate) fn view(&self, gate: usize, plan: usize) -> String {
        answer(self.operator(gate).plan(&self.tokens[plan].0), |plan| {
            let ms = |at: chrono::DateTime<chrono::Utc>| at.timestamp_millis();
            let mut approvals: Vec<_> = plan.approvals.iter().map(|given| given.reviewer.as_str()).collect();
            approvals.sort_unstable();
            view_text(
                plan.state,
                (plan.gated, plan.approvals_needed, plan.attempt),
                [
                    Some(ms(plan.created_at)),
                    Some(ms(plan.expires_at)),
                    plan.decided_at.map(ms),
                    plan.executing_since.map(ms),
                    plan.settled_at.map(ms),
                ],
                &approvals,
                plan.reject_reason.as_deref(),
            )
        })
    }

    pub(crate) fn pending(&self, gate: usize) -> Vec<String> {
        let listing = self.reviewer(gate, 0).pending(1_000).unwrap();
        assert_eq!(listing.total, listing.items.len() as u64);
        let card = |card: &countersign::PendingPlan| {
            let plan = self.index[card.plan.plan_token.as_str()];
            let earlier = card.earlier_rejection.as_ref().map(|no| &no.reason);
            format!("plan {plan}, {} approvals, earlier no: {earlier:?}", card.plan.approvals.len())
        };
        listing.items.iter().map(card).collect()
    }

    pub(crate) fn stuck(&self, gate: usize) -> Vec<usize> {
        let listing = self.operator(gate).executing(1_000).unwrap();
        assert_eq!(listing.total, listing.items.len() as u64);
        listing.items.iter().map(|stuck| self.index[stuck.plan.plan_token.as_str()]).collect()
    }

    /// The whole file against itself.
    pub(crate) fn assert_intact(&self) {
        let audit = self.operator(0);
        let head = audit.audit().head().unwrap();
        let report = audit.audit().verify(Some(&head)).unwrap();
        assert_eq!(report.difference, None, "verify");
        assert_eq!(report.plans, self.tokens.len() as u64);
    }
}
