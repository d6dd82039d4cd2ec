//! Refusals: the gate's normal "no", with a stable code, what happened, and what the caller can do next
//! (design section 5). Every message and hint stands here, in one place.

use serde::Serialize;

use crate::lifecycle::State;

/// The stable code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCode {
    /// The token was never issued, is malformed, or belongs to another caller.
    UnknownToken,
    /// The plan was not used in its time.
    PlanExpired,
    /// The plan was executed, or settled as failed for ever.
    PlanUsed,
    /// Another tool or another payload than the plan's was presented.
    PlanMismatch,
    /// The data that the preview looked at has changed, or its digest was not presented.
    DataDigestMismatch,
    /// The plan waits for a reviewer.
    AwaitingApproval,
    /// A reviewer said no.
    PlanRejected,
    /// The plan is neither executing nor uncertain.
    NotExecuting,
    /// The plan is claimed: executing, or uncertain.
    AlreadyExecuting,
    /// The gate was built without a reconcile hook.
    NoReconcile,
    /// The idempotency key names another plan.
    IdempotencyConflict,
    /// The seal that was presented is not the plan's.
    ApprovalMismatch,
    /// The reviewer is the plan's caller.
    SelfApproval,
    /// The claim was superseded by a later one.
    StaleClaim,
    /// Too many gated plans of this caller wait already.
    TooManyPending,
}

impl RefusalCode {
    /// All codes.
    pub const ALL: [Self; 15] = [
        Self::UnknownToken,
        Self::PlanExpired,
        Self::PlanUsed,
        Self::PlanMismatch,
        Self::DataDigestMismatch,
        Self::AwaitingApproval,
        Self::PlanRejected,
        Self::NotExecuting,
        Self::AlreadyExecuting,
        Self::NoReconcile,
        Self::IdempotencyConflict,
        Self::ApprovalMismatch,
        Self::SelfApproval,
        Self::StaleClaim,
        Self::TooManyPending,
    ];

    /// The code as it stands in answers, in the audit and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownToken => "UNKNOWN_TOKEN",
            Self::PlanExpired => "PLAN_EXPIRED",
            Self::PlanUsed => "PLAN_USED",
            Self::PlanMismatch => "PLAN_MISMATCH",
            Self::DataDigestMismatch => "DATA_DIGEST_MISMATCH",
            Self::AwaitingApproval => "AWAITING_APPROVAL",
            Self::PlanRejected => "PLAN_REJECTED",
            Self::NotExecuting => "NOT_EXECUTING",
            Self::AlreadyExecuting => "ALREADY_EXECUTING",
            Self::NoReconcile => "NO_RECONCILE",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::ApprovalMismatch => "APPROVAL_MISMATCH",
            Self::SelfApproval => "SELF_APPROVAL",
            Self::StaleClaim => "STALE_CLAIM",
            Self::TooManyPending => "TOO_MANY_PENDING",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::UnknownToken => "Use the plan_token that create returned to this caller.",
            Self::PlanExpired => "Preview the write again and create a new plan.",
            Self::PlanUsed => "Nothing is left to do. For another write, create a new plan.",
            Self::PlanMismatch => {
                "Redeem the token with the tool and the payload that were planned, or create a new plan."
            }
            Self::DataDigestMismatch => "Preview the write again on the present data and create a new plan.",
            Self::AwaitingApproval => "Wait until a reviewer has approved the plan, then call again.",
            Self::PlanRejected => "Do not propose this write again unless the person who rejected it asks for it.",
            Self::NotExecuting => "Read the plan: its state says what became of it.",
            Self::AlreadyExecuting => {
                "Do not run it. Wait, or have an operator reconcile or settle it once its owner is gone."
            }
            Self::NoReconcile => "Settle the plan by hand, or open the gate with a reconcile hook.",
            Self::IdempotencyConflict => "Use a new idempotency key for a new write.",
            Self::ApprovalMismatch => "Load the plan again, read it, and decide on the seal that it shows.",
            Self::SelfApproval => "Another person has to approve this plan.",
            Self::StaleClaim => "Do nothing: a later claim answers for this plan.",
            Self::TooManyPending => "Wait until reviewers have decided some of the plans, then create this one again.",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::UnknownToken => "no plan of this caller has that token",
            Self::PlanExpired => "the plan expired before it was used",
            Self::PlanUsed => "the plan was already used",
            Self::PlanMismatch => "the tool or the payload is not the one that was planned",
            Self::DataDigestMismatch => "the data has changed since the preview",
            Self::AwaitingApproval => "the plan waits for approval",
            Self::PlanRejected => "a reviewer rejected the plan",
            Self::NotExecuting => "the plan is not executing",
            Self::AlreadyExecuting => "the plan is already executing, or nobody knows yet whether it ran",
            Self::NoReconcile => "the gate has no reconcile hook",
            Self::IdempotencyConflict => "the idempotency key already names a different plan",
            Self::ApprovalMismatch => "the seal is not the one of this plan",
            Self::SelfApproval => "a plan is not approved by its own caller",
            Self::StaleClaim => "the claim was superseded by a later one",
            Self::TooManyPending => "too many plans of this caller wait for approval",
        }
    }
}

/// A refusal: its code, what happened, what the caller can do next, and the plan's metadata where there is a plan.
///
/// It serialises as `{code, message, hint}`, with `reason` for PLAN_REJECTED. Text of people and agents in it is
/// escaped (see [`visible`](crate::escape::visible)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    #[serde(serialize_with = "code_text")]
    code: RefusalCode,
    message: String,
    hint: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip)]
    plan: Option<RefusedPlan>,
}

fn code_text<S: serde::Serializer>(code: &RefusalCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.as_str())
}

/// The metadata of the plan that a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedPlan {
    /// The plan's token.
    pub plan_token: String,
    /// The plan's tool.
    pub tool: String,
    /// The plan's state at the refusal.
    pub state: State,
    /// How often the plan was claimed.
    pub attempt: u32,
    /// When the plan expires or expired; unknown after a purge.
    pub expires_at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode) -> Self {
        Self { code, message: code.message().to_owned(), hint: code.hint(), reason: None, plan: None }
    }

    /// Adds the reviewer's reason, already escaped, to the message.
    pub(crate) fn with_reason(mut self, reason: Option<String>) -> Self {
        if let Some(reason) = &reason {
            self.message = format!("{}: {reason}", self.message);
        }
        self.reason = reason;
        self
    }

    /// Replaces the message by a more precise one.
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    pub(crate) fn with_plan(mut self, plan: RefusedPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        self.code
    }

    /// What happened.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the caller can do next.
    #[must_use]
    pub fn hint(&self) -> &str {
        self.hint
    }

    /// The reviewer's reason, for PLAN_REJECTED.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The plan's metadata, where there is a plan that the asker may see.
    #[must_use]
    pub fn plan(&self) -> Option<&RefusedPlan> {
        self.plan.as_ref()
    }
}
