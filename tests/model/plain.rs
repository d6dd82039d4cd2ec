//! The plain model: plans in a vector, every rule as the design words it. It shares no rule with the crate.

use countersign::State;

use crate::ops::{Op, Presented, Report, Seal, Verified};

pub(crate) const CALLERS: [&str; 3] = ["agent-0", "Agent-1", "agent-2"];
/// The third is the first caller.
pub(crate) const REVIEWERS: [&str; 3] = ["ada", "Ben", "agent-0"];
pub(crate) const OPERATOR: &str = "olga";

/// A name as it is spelled through a gate.
pub(crate) fn spelled(name: &str, gate: usize) -> String {
    if gate == 0 { name.to_owned() } else { name.to_ascii_uppercase() }
}

pub(crate) struct Plan {
    pub(crate) token: String,
    pub(crate) caller: usize,
    tool: usize,
    payload: usize,
    digest: Option<usize>,
    extra: bool,
    key: Option<usize>,
    quorum: u32,
    gated: bool,
    state: State,
    created: i64,
    expires: i64,
    decided: Option<i64>,
    since: Option<i64>,
    settled: Option<i64>,
    attempt: u32,
    /// The newest claim's token is remembered.
    fenced: bool,
    /// The attempt whose claim token the host has kept.
    kept_token: u32,
    owner: u32,
    /// Reviewer, and the name as it was given.
    approvals: Vec<(usize, String)>,
    reject_reason: Option<String>,
    purged: bool,
}

impl Plan {
    fn is_open(&self) -> bool {
        matches!(self.state, State::Previewed | State::AwaitingApproval | State::Approved)
    }

    fn is_stuck(&self) -> bool {
        matches!(self.state, State::Executing | State::Uncertain)
    }

    fn is_overdue(&self, now: i64) -> bool {
        self.is_open() && self.expires < now
    }

    fn seen_state(&self, now: i64) -> State {
        if self.is_overdue(now) { State::Expired } else { self.state }
    }

    fn newest_time(&self) -> i64 {
        [self.decided, self.since, self.settled].into_iter().flatten().fold(self.created, i64::max)
    }

    fn retry(&self) -> State {
        if !self.gated {
            State::Previewed
        } else if self.approvals.len() >= self.quorum as usize {
            State::Approved
        } else {
            State::AwaitingApproval
        }
    }

    fn rejected(&self) -> String {
        refused_because("PLAN_REJECTED", self.reject_reason.as_deref())
    }
}

/// A "no", in the order in which they were said.
struct No {
    tool: usize,
    payload: usize,
    plan: usize,
    reason: Option<String>,
    lifted: bool,
}

/// A claim that the host holds.
pub(crate) struct Handle {
    plan: usize,
    attempt: u32,
    owner: u32,
    actor: String,
}

pub(crate) struct Model {
    pub(crate) now: i64,
    pub(crate) plans: Vec<Plan>,
    pub(crate) handles: Vec<Handle>,
    nos: Vec<No>,
    /// The instances that are open.
    gates: [u32; 2],
    next_instance: u32,
    refuse_rejected: bool,
    max_pending: usize,
    events: Vec<String>,
}

pub(crate) fn event_text(
    event: &str,
    code: Option<&str>,
    plan: Option<usize>,
    states: (Option<&str>, Option<&str>),
    actor: &str,
    attempt: Option<i64>,
    reason: Option<&str>,
) -> String {
    format!("{event} {code:?} plan {plan:?}: {states:?} by {actor}, attempt {attempt:?}, reason {reason:?}")
}

pub(crate) fn refused_because(code: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("no {code}: {reason}"),
        None => format!("no {code}"),
    }
}

fn no(code: &str) -> String {
    refused_because(code, None)
}

impl Model {
    pub(crate) fn new(now: i64, refuse_rejected: bool, max_pending: u64) -> Self {
        Self {
            now,
            plans: Vec::new(),
            handles: Vec::new(),
            nos: Vec::new(),
            gates: [0, 1],
            next_instance: 2,
            refuse_rejected,
            max_pending: max_pending as usize,
            events: Vec::new(),
        }
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn about(&mut self, event: &str, code: Option<&str>, plan: usize, from: State, actor: &str, reason: Option<&str>) {
        let p = &self.plans[plan];
        let attempt = (p.attempt > 0).then_some(i64::from(p.attempt));
        let states = (Some(from.as_str()), Some(p.state.as_str()));
        self.events.push(event_text(event, code, Some(plan), states, actor, attempt, reason));
    }

    fn refuse(&mut self, plan: usize, code: &str, actor: &str) -> String {
        let state = self.plans[plan].state;
        self.about("refused", Some(code), plan, state, actor, None);
        if code == "PLAN_REJECTED" { self.plans[plan].rejected() } else { no(code) }
    }

    fn unknown(&mut self, plan: usize, actor: &str) -> String {
        self.events.push(event_text("refused", Some("UNKNOWN_TOKEN"), Some(plan), (None, None), actor, None, None));
        no("UNKNOWN_TOKEN")
    }

    fn go(&mut self, plan: usize, to: State, event: &str, code: Option<&str>, actor: &str, reason: Option<&str>) {
        let p = &mut self.plans[plan];
        let from = p.state;
        p.state = to;
        if matches!(to, State::Executed | State::Failed | State::Rejected | State::Expired) {
            p.settled = Some(self.now);
        }
        if to == State::AwaitingApproval {
            p.decided = None;
        }
        self.about(event, code, plan, from, actor, reason);
    }

    fn notice_expiry(&mut self, plan: usize, actor: &str) {
        if self.plans[plan].is_overdue(self.now) {
            self.go(plan, State::Expired, "expired", None, actor, None);
        }
    }

    fn earlier_no(&self, tool: usize, payload: usize, except: Option<usize>) -> Option<&No> {
        self.nos
            .iter()
            .rev()
            .find(|no| no.tool == tool && no.payload == payload && !no.lifted && Some(no.plan) != except)
    }

    fn clock_is_behind(&self, plan: usize) -> bool {
        self.plans[plan].newest_time() - self.now > 2_000
    }

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

    /// What a read of the plan shows.
    pub(crate) fn view(&self, plan: usize) -> String {
        let p = &self.plans[plan];
        if p.purged {
            return match p.state {
                State::Rejected => p.rejected(),
                State::Expired => no("PLAN_EXPIRED"),
                _ => no("PLAN_USED"),
            };
        }
        let mut approvals: Vec<_> = p.approvals.iter().map(|(_, name)| name.as_str()).collect();
        approvals.sort_unstable();
        view_text(
            p.seen_state(self.now),
            (p.gated, p.quorum, p.attempt),
            [Some(p.created), Some(p.expires), p.decided, p.since, p.settled],
            &approvals,
            p.reject_reason.as_deref(),
        )
    }

    /// Plan, approvals, and the newest earlier "no".
    pub(crate) fn pending(&self) -> Vec<String> {
        let mut waiting: Vec<usize> = (0..self.plans.len())
            .filter(|&p| self.plans[p].state == State::AwaitingApproval && !self.plans[p].is_overdue(self.now))
            .collect();
        waiting.sort_by_key(|&p| (self.plans[p].expires, p));
        let card = |plan: usize| {
            let p = &self.plans[plan];
            let earlier = self.earlier_no(p.tool, p.payload, Some(plan)).map(|no| &no.reason);
            format!("plan {plan}, {} approvals, earlier no: {earlier:?}", p.approvals.len())
        };
        waiting.into_iter().map(card).collect()
    }

    pub(crate) fn stuck(&self) -> Vec<usize> {
        let mut stuck: Vec<usize> = (0..self.plans.len()).filter(|&p| self.plans[p].is_stuck()).collect();
        stuck.sort_by_key(|&p| (self.plans[p].since, p));
        stuck
    }

    pub(crate) fn digest(&self, plan: usize) -> Option<usize> {
        self.plans[plan].digest
    }

    pub(crate) fn tool_and_payload(&self, plan: usize) -> (usize, usize) {
        (self.plans[plan].tool, self.plans[plan].payload)
    }
}

pub(crate) fn view_text(
    state: State,
    counts: (bool, u32, u32),
    times: [Option<i64>; 5],
    approvals: &[&str],
    reason: Option<&str>,
) -> String {
    format!(
        "{state}, gated {}, quorum {}, attempt {}, times {times:?}, approvals {approvals:?}, reason {reason:?}",
        counts.0, counts.1, counts.2
    )
}
