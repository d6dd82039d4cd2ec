//! What becomes of claims, and housekeeping.

use countersign::State;

use super::{CALLERS, Handle, Model, OPERATOR, event_text, no, spelled};
use crate::ops::{Op, Report, Verified};

impl Model {
    fn is_same_claim(&self, handle: usize) -> bool {
        let handle = &self.handles[handle];
        let p = &self.plans[handle.plan];
        p.fenced && p.attempt == handle.attempt
    }

    pub(crate) fn confirm(&mut self, handle: usize, report: Report) -> String {
        let same = self.is_same_claim(handle);
        let (plan, actor) = (self.handles[handle].plan, self.handles[handle].actor.clone());
        let p = &self.plans[plan];
        let repeated = match report {
            Report::Executed => p.state == State::Executed,
            Report::Uncertain => p.state == State::Uncertain,
            // It left the plan retryable; what became of it since is not the claim's business.
            Report::Failed => p.is_open() || matches!(p.state, State::Rejected | State::Expired),
        };
        if same && repeated {
            return format!("{} already: true", p.state);
        }
        if !p.is_stuck() {
            return self.refuse(plan, "NOT_EXECUTING", &actor);
        }
        if !same {
            return self.refuse(plan, "STALE_CLAIM", &actor);
        }
        let (to, event, code) = match report {
            Report::Executed => (State::Executed, "executed", None),
            Report::Failed => (p.retry(), "failed", Some("EXECUTION_FAILED")),
            Report::Uncertain => (State::Uncertain, "uncertain", None),
        };
        self.go(plan, to, event, code, &actor, None);
        format!("{to} already: false")
    }

    pub(crate) fn check(&self, handle: usize) -> String {
        match self.plans[self.handles[handle].plan].state {
            State::Executing | State::Uncertain if !self.is_same_claim(handle) => no("STALE_CLAIM"),
            State::Executing => "ok".to_owned(),
            _ => no("NOT_EXECUTING"),
        }
    }

    pub(crate) fn adopt(&mut self, op: &Op, plan: usize) -> String {
        let &Op::Adopt { gate, own, attempt, token, .. } = op else { unreachable!() };
        let actor = spelled(CALLERS[self.asker(plan, own)], gate);
        if !own {
            return self.unknown(plan, &actor);
        }
        let p = &self.plans[plan];
        if !p.is_stuck() {
            return self.refuse(plan, "NOT_EXECUTING", &actor);
        }
        if attempt != 0 || !token || p.kept_token != p.attempt || !p.fenced {
            return self.refuse(plan, "STALE_CLAIM", &actor);
        }
        let owner = self.gates[gate];
        self.plans[plan].owner = owner;
        let (attempt, state) = (self.plans[plan].attempt, self.plans[plan].state);
        self.about("adopted", None, plan, state, &actor, None);
        self.handles.push(Handle { plan, attempt, owner, actor });
        format!("plan {plan} attempt {attempt}")
    }

    /// The owner of an executing plan, as seen from a gate.
    fn is_at_work(&self, plan: usize, gate: usize) -> bool {
        let (p, me) = (&self.plans[plan], self.gates[gate]);
        p.owner == me && self.handles.iter().any(|h| (h.plan, h.attempt, h.owner) == (plan, p.attempt, me))
    }

    fn lives_elsewhere(&self, plan: usize, gate: usize) -> bool {
        let owner = self.plans[plan].owner;
        owner != self.gates[gate] && self.gates.contains(&owner)
    }

    pub(crate) fn settle(&mut self, gate: usize, plan: usize, outcome: Verified) -> String {
        let p = &self.plans[plan];
        if !p.is_stuck() {
            return self.refuse(plan, "NOT_EXECUTING", OPERATOR);
        }
        if p.state == State::Executing && self.lives_elsewhere(plan, gate) {
            return self.refuse(plan, "ALREADY_EXECUTING", OPERATOR);
        }
        let (to, event, code) = match outcome {
            Verified::Done => (State::Executed, "executed", None),
            Verified::NotDone => (p.retry(), "failed", Some("EXECUTION_FAILED")),
            Verified::Failed => (State::Failed, "failed", Some("SETTLED_FAILED")),
            Verified::Unknown if p.state == State::Uncertain => return "uncertain already: true".to_owned(),
            Verified::Unknown => (State::Uncertain, "uncertain", None),
        };
        if outcome != Verified::Unknown {
            self.plans[plan].fenced = false;
        }
        self.go(plan, to, event, code, OPERATOR, None);
        format!("{to} already: false")
    }

    pub(crate) fn attempt(&self, plan: usize, by: i8) -> u32 {
        self.plans[plan].attempt.saturating_add_signed(i32::from(by))
    }

    pub(crate) fn mark(&mut self, gate: usize, plan: usize, by: i8) -> String {
        let p = &self.plans[plan];
        if !p.is_stuck() {
            return self.refuse(plan, "NOT_EXECUTING", OPERATOR);
        }
        if by != 0 {
            return self.refuse(plan, "STALE_CLAIM", OPERATOR);
        }
        if p.state == State::Uncertain {
            return "uncertain already: true".to_owned();
        }
        if self.is_at_work(plan, gate) || self.lives_elsewhere(plan, gate) {
            return self.refuse(plan, "ALREADY_EXECUTING", OPERATOR);
        }
        self.go(plan, State::Uncertain, "uncertain", None, OPERATOR, None);
        "uncertain already: false".to_owned()
    }

    /// Without a hook.
    pub(crate) fn recover(&mut self, gate: usize) -> String {
        let (mut uncertain, mut alive) = (Vec::new(), Vec::new());
        for plan in self.stuck() {
            if self.plans[plan].state == State::Executing {
                if self.is_at_work(plan, gate) || self.lives_elsewhere(plan, gate) {
                    alive.push(plan);
                    continue;
                }
                self.go(plan, State::Uncertain, "uncertain", None, OPERATOR, None);
            }
            uncertain.push(plan);
        }
        format!("uncertain {uncertain:?}, alive {alive:?}")
    }

    pub(crate) fn sweep(&mut self) -> String {
        let overdue: Vec<usize> = (0..self.plans.len()).filter(|&p| self.plans[p].is_overdue(self.now)).collect();
        for &plan in &overdue {
            self.notice_expiry(plan, OPERATOR);
        }
        format!("{}", overdue.len())
    }

    pub(crate) fn purge(&mut self, age_ms: u64) -> String {
        let before = self.now - age_ms as i64;
        let mut purged = 0;
        for p in self.plans.iter_mut().filter(|p| !p.purged && p.settled.is_some_and(|at| at < before)) {
            p.purged = true;
            purged += 1;
        }
        if purged > 0 {
            self.events.push(event_text("purged", None, None, (None, None), OPERATOR, None, None));
        }
        format!("{purged}")
    }

    pub(crate) fn host(&mut self, gate: usize, own: bool, plan: Option<usize>) -> String {
        let Some(plan) = plan else {
            let actor = spelled(CALLERS[0], gate);
            self.events.push(event_text("host:note", None, None, (None, None), &actor, None, None));
            return "ok".to_owned();
        };
        let actor = spelled(CALLERS[self.asker(plan, own)], gate);
        if !own {
            return self.unknown(plan, &actor);
        }
        let state = self.plans[plan].state;
        self.about("host:note", None, plan, state, &actor, None);
        "ok".to_owned()
    }

    /// The claims of the old instance are given up with it.
    pub(crate) fn reopen(&mut self, gate: usize) {
        let old = self.gates[gate];
        self.handles.retain(|handle| handle.owner != old);
        self.gates[gate] = self.next_instance;
        self.next_instance += 1;
    }
}
