//! The plain model: plans in a vector, every rule as the design words it. It shares no rule with the crate.

mod claims;
mod plans;

use countersign::State;

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
