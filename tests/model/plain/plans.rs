//! Create, claim and decide.

use countersign::State;

use super::{CALLERS, Handle, Model, No, Plan, REVIEWERS, event_text, no, refused_because, spelled};
use crate::ops::{Op, Presented, Seal};

impl Model {
    pub(crate) fn create(&mut self, op: &Op) -> String {
        let &Op::Create { gate, caller, tool, payload, quorum, digest, extra, key, ttl_s } = op else { unreachable!() };
        let actor = spelled(CALLERS[caller], gate);
        let named = key.and_then(|_| self.plans.iter().position(|p| (p.caller, p.tool, p.key) == (caller, tool, key)));
        if let Some(plan) = named {
            let p = &self.plans[plan];
            if p.purged {
                let code = match p.state {
                    _ if p.payload != payload => "IDEMPOTENCY_CONFLICT",
                    State::Rejected => "PLAN_REJECTED",
                    State::Expired => "PLAN_EXPIRED",
                    _ => "PLAN_USED",
                };
                return self.refuse(plan, code, &actor);
            }
            let strict = quorum == 0 || (p.gated && p.quorum >= quorum);
            if !strict || (p.payload, p.digest, p.extra) != (payload, digest, extra) {
                return self.refuse(plan, "IDEMPOTENCY_CONFLICT", &actor);
            }
            let earlier = self.earlier_no(tool, payload, Some(plan)).map(|no| no.reason.clone());
            return format!("plan {plan} {} already: true, earlier no: {earlier:?}", p.seen_state(self.now));
        }
        let earlier = self.earlier_no(tool, payload, None).map(|no| no.reason.clone());
        if let (Some(reason), true) = (&earlier, self.refuse_rejected) {
            let row = event_text("refused", Some("PLAN_REJECTED"), None, (None, None), &actor, None, None);
            self.events.push(row);
            return refused_because("PLAN_REJECTED", reason.as_deref());
        }
        let gated = quorum > 0 || earlier.is_some();
        let waiting = self
            .plans
            .iter()
            .filter(|p| p.caller == caller && p.state == State::AwaitingApproval && !p.is_overdue(self.now))
            .count();
        if gated && waiting >= self.max_pending {
            let row = event_text("refused", Some("TOO_MANY_PENDING"), None, (None, None), &actor, None, None);
            self.events.push(row);
            return no("TOO_MANY_PENDING");
        }
        let state = if gated { State::AwaitingApproval } else { State::Previewed };
        let plan = self.plans.len();
        self.plans.push(Plan {
            token: String::new(),
            caller,
            tool,
            payload,
            digest,
            extra,
            key,
            quorum: quorum.max(1),
            gated,
            state,
            created: self.now,
            expires: self.now + ttl_s as i64 * 1_000,
            decided: None,
            since: None,
            settled: None,
            attempt: 0,
            fenced: false,
            kept_token: 0,
            owner: 0,
            approvals: Vec::new(),
            reject_reason: None,
            purged: false,
        });
        let states = (None, Some(state.as_str()));
        self.events.push(event_text(state.as_str(), None, Some(plan), states, &actor, None, None));
        format!("plan {plan} {state} already: false, earlier no: {earlier:?}")
    }

    /// The caller of an agent's verb: the plan's own, or the next one.
    pub(crate) fn asker(&self, plan: usize, own: bool) -> usize {
        (self.plans[plan].caller + usize::from(!own)) % CALLERS.len()
    }

    pub(crate) fn begin(&mut self, op: &Op, plan: usize) -> String {
        let &Op::Begin { gate, own, payload, tool, digest, consume, .. } = op else { unreachable!() };
        let actor = spelled(CALLERS[self.asker(plan, own)], gate);
        if !own {
            return self.unknown(plan, &actor);
        }
        self.notice_expiry(plan, &actor);
        let p = &self.plans[plan];
        let code = match p.state {
            State::Rejected => Some("PLAN_REJECTED"),
            State::Executed | State::Failed => Some("PLAN_USED"),
            State::Executing | State::Uncertain => Some("ALREADY_EXECUTING"),
            State::Expired => Some("PLAN_EXPIRED"),
            _ if !tool || payload == Presented::Other => Some("PLAN_MISMATCH"),
            _ if p.digest.is_some() && digest != Seal::Right => Some("DATA_DIGEST_MISMATCH"),
            State::AwaitingApproval => Some("AWAITING_APPROVAL"),
            State::Previewed | State::Approved => None,
        };
        if let Some(code) = code {
            return self.refuse(plan, code, &actor);
        }
        if self.clock_is_behind(plan) {
            return "error CLOCK_WENT_BACK".to_owned();
        }
        let owner = self.gates[gate];
        let p = &mut self.plans[plan];
        p.attempt += 1;
        p.since = Some(self.now);
        p.fenced = true;
        p.owner = owner;
        let attempt = p.attempt;
        self.go(plan, State::Executing, "executing", None, &actor, None);
        if consume {
            self.go(plan, State::Executed, "executed", None, &actor, None);
        } else {
            self.plans[plan].kept_token = attempt;
            self.handles.push(Handle { plan, attempt, owner, actor });
        }
        format!("plan {plan} attempt {attempt}")
    }

    fn decision(&self, plan: usize, already: bool) -> String {
        let p = &self.plans[plan];
        format!("{} already: {already}, {} of {}", p.state, p.approvals.len(), p.quorum)
    }

    pub(crate) fn approve(&mut self, op: &Op, plan: usize) -> String {
        let &Op::Approve { gate, reviewer, seal, .. } = op else { unreachable!() };
        let actor = spelled(REVIEWERS[reviewer], gate);
        self.notice_expiry(plan, &actor);
        let p = &self.plans[plan];
        let voted = p.approvals.iter().any(|(who, _)| *who == reviewer);
        let code = match p.state {
            State::Rejected => Some("PLAN_REJECTED"),
            State::Executed | State::Failed => Some("PLAN_USED"),
            State::Expired => Some("PLAN_EXPIRED"),
            _ if !seal => Some("APPROVAL_MISMATCH"),
            State::AwaitingApproval if !voted && REVIEWERS[reviewer].eq_ignore_ascii_case(CALLERS[p.caller]) => {
                Some("SELF_APPROVAL")
            }
            _ => None,
        };
        if let Some(code) = code {
            return self.refuse(plan, code, &actor);
        }
        if voted || p.state != State::AwaitingApproval {
            return self.decision(plan, true);
        }
        if self.clock_is_behind(plan) {
            return "error CLOCK_WENT_BACK".to_owned();
        }
        let now = self.now;
        let p = &mut self.plans[plan];
        p.approvals.push((reviewer, actor.clone()));
        if p.approvals.len() >= p.quorum as usize {
            p.decided = Some(now);
            self.go(plan, State::Approved, "approved", None, &actor, None);
        } else {
            let from = p.state;
            self.about("approval_recorded", None, plan, from, &actor, None);
        }
        self.decision(plan, false)
    }

    pub(crate) fn reject(&mut self, op: &Op, plan: usize) -> String {
        let &Op::Reject { gate, reviewer, seal, reason, .. } = op else { unreachable!() };
        let actor = spelled(REVIEWERS[reviewer], gate);
        let reason = reason.map(|n| format!("reason {n}"));
        self.notice_expiry(plan, &actor);
        let code = match self.plans[plan].state {
            State::Executed | State::Failed => Some("PLAN_USED"),
            State::Executing | State::Uncertain => Some("ALREADY_EXECUTING"),
            State::Expired => Some("PLAN_EXPIRED"),
            _ if seal == Seal::Wrong => Some("APPROVAL_MISMATCH"),
            State::Rejected => return "rejected already: true".to_owned(),
            _ => None,
        };
        if let Some(code) = code {
            return self.refuse(plan, code, &actor);
        }
        let now = self.now;
        let p = &mut self.plans[plan];
        p.decided = Some(now);
        p.reject_reason.clone_from(&reason);
        let (tool, payload) = (p.tool, p.payload);
        self.go(plan, State::Rejected, "rejected", None, &actor, reason.as_deref());
        self.nos.push(No { tool, payload, plan, reason, lifted: false });
        let mut twins: Vec<usize> = (0..self.plans.len())
            .filter(|&other| {
                let p = &self.plans[other];
                other != plan && (p.tool, p.payload) == (tool, payload) && (p.is_open() || p.is_stuck())
            })
            .collect();
        twins.sort_by(|a, b| self.plans[*a].token.cmp(&self.plans[*b].token));
        for twin in twins {
            let p = &mut self.plans[twin];
            let changes = !p.gated || !p.approvals.is_empty() || p.state == State::Approved;
            p.gated = true;
            p.approvals.clear();
            if changes {
                let to = if p.is_open() { State::AwaitingApproval } else { p.state };
                self.go(twin, to, "regated", None, &actor, None);
            }
        }
        "rejected already: false".to_owned()
    }

    pub(crate) fn lift(&mut self, gate: usize, tool: usize, payload: usize) -> String {
        let mut lifted = false;
        for no in self.nos.iter_mut().filter(|no| (no.tool, no.payload) == (tool, payload) && !no.lifted) {
            no.lifted = true;
            lifted = true;
        }
        if lifted {
            let actor = spelled(REVIEWERS[0], gate);
            self.events.push(event_text("rejection_lifted", None, None, (None, None), &actor, None, None));
        }
        format!("already: {}", !lifted)
    }
}
