//! The states of a plan and the ONE transition table, free of I/O (design section 2).
//!
//! The write path, recovery, the audit's replay and the tests all ask [`next`]. What the table does not list is illegal.

use std::fmt;

/// The state of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Ready; needs no approval.
    Previewed,
    /// Gated and not decided.
    AwaitingApproval,
    /// Gated and approved: ready.
    Approved,
    /// Claimed; the side effect may be running.
    Executing,
    /// Claimed once; nobody knows whether the side effect happened.
    Uncertain,
    /// Terminal: it happened.
    Executed,
    /// Terminal: settled as "did not succeed, must not run again".
    Failed,
    /// Terminal: a person said no.
    Rejected,
    /// Terminal: nobody used it in time.
    Expired,
}

impl State {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Previewed,
        Self::AwaitingApproval,
        Self::Approved,
        Self::Executing,
        Self::Uncertain,
        Self::Executed,
        Self::Failed,
        Self::Rejected,
        Self::Expired,
    ];

    /// The state's name in SQL, JSON and text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Previewed => "previewed",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Approved => "approved",
            Self::Executing => "executing",
            Self::Uncertain => "uncertain",
            Self::Executed => "executed",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }

    /// The state with that name, or `None`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// True for a state that no transition leaves.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Executed | Self::Failed | Self::Rejected | Self::Expired => true,
            Self::Previewed | Self::AwaitingApproval | Self::Approved | Self::Executing | Self::Uncertain => false,
        }
    }

    /// True for a plan that nobody has claimed or settled: it expires, and it can be rejected.
    #[must_use]
    pub fn is_open(self) -> bool {
        match self {
            Self::Previewed | Self::AwaitingApproval | Self::Approved => true,
            Self::Executing | Self::Uncertain | Self::Executed | Self::Failed | Self::Rejected | Self::Expired => false,
        }
    }

    /// True for a claimed plan whose side effect may have happened.
    #[must_use]
    pub fn is_stuck(self) -> bool {
        matches!(self, Self::Executing | Self::Uncertain)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl serde::Serialize for State {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What a retry waits for: where a plan goes whose side effect did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Not gated: ready.
    Previewed,
    /// Gated, and its approvals still complete the quorum: ready.
    Approved,
    /// Gated, and to be approved (again).
    AwaitingApproval,
}

impl Retry {
    /// Where a plan goes that may run again.
    #[must_use]
    pub fn of(gated: bool, quorum_complete: bool) -> Self {
        match (gated, quorum_complete) {
            (false, _) => Self::Previewed,
            (true, true) => Self::Approved,
            (true, false) => Self::AwaitingApproval,
        }
    }

    fn state(self) -> State {
        match self {
            Self::Previewed => State::Previewed,
            Self::Approved => State::Approved,
            Self::AwaitingApproval => State::AwaitingApproval,
        }
    }
}

/// What happens to a plan that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// An approval that completes the quorum.
    Approved,
    /// An approval that does not complete it yet.
    ApprovalRecorded,
    /// A reviewer said no.
    Rejected,
    /// Another plan of the same tool and payload was rejected.
    Regated,
    /// The claim.
    Executing,
    /// The side effect happened: confirmed, or settled done.
    Executed,
    /// The side effect did not happen: confirmed failed, or settled not-done. It may run again.
    NotApplied(Retry),
    /// Settled failed: it must not run again.
    SettledFailed,
    /// Nobody knows whether the side effect happened.
    Uncertain,
    /// The claim moved to another instance.
    Adopted,
    /// The time of the plan was over.
    Expired,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 13] = [
        Self::Approved,
        Self::ApprovalRecorded,
        Self::Rejected,
        Self::Regated,
        Self::Executing,
        Self::Executed,
        Self::NotApplied(Retry::Previewed),
        Self::NotApplied(Retry::Approved),
        Self::NotApplied(Retry::AwaitingApproval),
        Self::SettledFailed,
        Self::Uncertain,
        Self::Adopted,
        Self::Expired,
    ];

    /// The audit event of this transition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::ApprovalRecorded => "approval_recorded",
            Self::Rejected => "rejected",
            Self::Regated => "regated",
            Self::Executing => "executing",
            Self::Executed => "executed",
            Self::NotApplied(_) | Self::SettledFailed => "failed",
            Self::Uncertain => "uncertain",
            Self::Adopted => "adopted",
            Self::Expired => "expired",
        }
    }

    /// The code that the audit event of this transition carries.
    #[must_use]
    pub fn code(self) -> Option<&'static str> {
        match self {
            Self::NotApplied(_) => Some("EXECUTION_FAILED"),
            Self::SettledFailed => Some("SETTLED_FAILED"),
            _ => None,
        }
    }

    /// The event of an audit row, from its event name, its code and the state that it led to.
    #[must_use]
    pub fn parse(event: &str, code: Option<&str>, to: State) -> Option<Self> {
        Self::ALL.into_iter().find(|candidate| {
            candidate.as_str() == event
                && candidate.code() == code
                && !matches!(candidate, Self::NotApplied(retry) if retry.state() != to)
        })
    }
}

/// The state in which a plan begins.
#[must_use]
pub fn first(gated: bool) -> State {
    if gated { State::AwaitingApproval } else { State::Previewed }
}

/// The transition table: the state that follows `state` on `event`.
///
/// # Errors
/// [`IllegalTransition`] where the table has no such pair; it names both.
pub fn next(state: State, event: Event) -> Result<State, IllegalTransition> {
    use Event as E;
    use State as S;
    let to = match (state, event) {
        (S::AwaitingApproval, E::Approved) => S::Approved,
        (S::AwaitingApproval, E::ApprovalRecorded) => S::AwaitingApproval,
        (S::Previewed | S::AwaitingApproval | S::Approved, E::Rejected) => S::Rejected,
        (S::Previewed | S::AwaitingApproval | S::Approved, E::Regated) => S::AwaitingApproval,
        (S::Executing | S::Uncertain, E::Regated) => state,
        (S::Previewed | S::Approved, E::Executing) => S::Executing,
        (S::Executing | S::Uncertain, E::Executed) => S::Executed,
        (S::Executing | S::Uncertain, E::NotApplied(retry)) => retry.state(),
        (S::Executing | S::Uncertain, E::SettledFailed) => S::Failed,
        (S::Executing, E::Uncertain) => S::Uncertain,
        (S::Executing | S::Uncertain, E::Adopted) => state,
        (S::Previewed | S::AwaitingApproval | S::Approved, E::Expired) => S::Expired,
        _ => return Err(IllegalTransition { state, event }),
    };
    Ok(to)
}

/// A pair that the transition table does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a plan that is {state} has no transition {}", event.as_str())]
pub struct IllegalTransition {
    /// The state that the plan was in.
    pub state: State,
    /// The event that does not apply to it.
    pub event: Event,
}
