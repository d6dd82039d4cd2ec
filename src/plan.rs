//! Plans as hosts propose, redeem and read them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::canonical::{CanonicalError, CanonicalJson, Fingerprint, Limits, canonicalize, canonicalize_text};
use crate::error::{Error, Result};
use crate::lifecycle::State;
use crate::names::PlanToken;
use crate::seal::{Seal, SealFields};

/// Whether a plan waits for people before it can run.
///
/// There is no default and no `Deserialize`: only the host's code sets a gate, never an agent's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Ready at once (unless the same payload was rejected before).
    NotNeeded,
    /// Waits until this many different reviewers have approved.
    Required {
        /// How many reviewers; at least 1.
        quorum: u32,
    },
}

impl Approval {
    /// One reviewer has to approve.
    #[must_use]
    pub fn required() -> Self {
        Self::Required { quorum: 1 }
    }
}

/// A JSON value on its way in: any `Serialize`, or strict JSON text. Canonicalised when the gate's limits are known.
#[derive(Clone, Copy)]
pub(crate) enum Json<'a> {
    Value(&'a dyn ToCanonical),
    Text(&'a str),
}

impl Json<'_> {
    pub(crate) fn canonical(&self, limits: Limits) -> Result<CanonicalJson, CanonicalError> {
        match self {
            Self::Value(value) => value.canonical(limits),
            Self::Text(text) => canonicalize_text(text, limits),
        }
    }
}

/// `Serialize` without its generic method, so that a value can be kept by reference until its limits are known.
pub(crate) trait ToCanonical {
    fn canonical(&self, limits: Limits) -> Result<CanonicalJson, CanonicalError>;
}

impl<T: Serialize> ToCanonical for T {
    fn canonical(&self, limits: Limits) -> Result<CanonicalJson, CanonicalError> {
        canonicalize(self, limits)
    }
}

/// A write that an agent proposes. Everything in it is checked by [`Agent::create`](crate::Agent::create).
///
/// It has no `Deserialize`: the host's code decides what is gated.
#[must_use = "a NewPlan does nothing until it is given to Agent::create"]
pub struct NewPlan<'a> {
    pub(crate) tool: &'a str,
    pub(crate) payload: Json<'a>,
    pub(crate) approval: Approval,
    pub(crate) reason: Option<String>,
    pub(crate) preview_count: Option<u64>,
    pub(crate) data_digest: Option<String>,
    pub(crate) extra: Option<Json<'a>>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) idempotency_key: Option<String>,
}

impl<'a> NewPlan<'a> {
    /// A plan to run `tool` with `payload`, any value that serialises to JSON.
    pub fn new<T: Serialize>(tool: &'a str, payload: &'a T, approval: Approval) -> Self {
        Self::with(tool, Json::Value(payload), approval)
    }

    /// A plan whose payload is JSON text. Numbers keep what they say, and duplicate keys are refused.
    pub fn from_json(tool: &'a str, payload: &'a str, approval: Approval) -> Self {
        Self::with(tool, Json::Text(payload), approval)
    }

    fn with(tool: &'a str, payload: Json<'a>, approval: Approval) -> Self {
        Self {
            tool,
            payload,
            approval,
            reason: None,
            preview_count: None,
            data_digest: None,
            extra: None,
            ttl: None,
            idempotency_key: None,
        }
    }

    /// Why the agent wants it, in the agent's words.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// How many things the write touches, as the host counted.
    pub fn preview_count(mut self, count: usize) -> Self {
        self.preview_count = Some(u64::try_from(count).unwrap_or(u64::MAX));
        self
    }

    /// A digest, made by the host, of the data that the preview looked at. The claim has to present the same one.
    pub fn data_digest(mut self, digest: impl Into<String>) -> Self {
        self.data_digest = Some(digest.into());
        self
    }

    /// More for the reviewer's card, in the host's words: a value that serialises to a JSON object.
    pub fn extra<T: Serialize>(mut self, extra: &'a T) -> Self {
        self.extra = Some(Json::Value(extra));
        self
    }

    /// How long the plan can be used. Default 15 minutes.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// (caller, tool, key) names one plan for ever: the same create again returns that plan.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}

/// What is presented to run a plan.
#[must_use = "a Redeem does nothing until it is given to begin_execute, execute or consume"]
pub struct Redeem<'a> {
    pub(crate) token: String,
    pub(crate) tool: String,
    pub(crate) payload: Presented<'a>,
    pub(crate) data_digest: Option<String>,
}

/// The payload that the caller presents.
pub(crate) enum Presented<'a> {
    Missing,
    Stored,
    Json(Json<'a>),
}

impl<'a> Redeem<'a> {
    /// Redeems a plan for `tool`. Add the [`payload`](Redeem::payload) that the caller means to run.
    pub fn new(token: impl AsRef<str>, tool: impl Into<String>) -> Self {
        Self { token: short(token.as_ref()), tool: tool.into(), payload: Presented::Missing, data_digest: None }
    }

    /// Redeems a plan for `tool` with the payload that is stored, whatever it is.
    pub fn stored(token: impl AsRef<str>, tool: impl Into<String>) -> Self {
        Self { payload: Presented::Stored, ..Self::new(token, tool) }
    }

    /// The payload that the caller means to run: another one than the planned is PLAN_MISMATCH. What runs is the stored
    /// one, always.
    pub fn payload<T: Serialize>(mut self, payload: &'a T) -> Self {
        self.payload = Presented::Json(Json::Value(payload));
        self
    }

    /// The payload as JSON text.
    pub fn payload_json(mut self, payload: &'a str) -> Self {
        self.payload = Presented::Json(Json::Text(payload));
        self
    }

    /// The digest of the data as it is now.
    pub fn data_digest(mut self, digest: impl Into<String>) -> Self {
        self.data_digest = Some(digest.into());
        self
    }

    /// Checks and canonicalises, so that nothing borrowed is left.
    pub(crate) fn prepare(self, limits: Limits) -> Result<PreparedRedeem> {
        let fingerprint = match self.payload {
            Presented::Stored => None,
            Presented::Json(json) => Some(json.canonical(limits).map_err(Error::from_canonical)?.fingerprint()),
            Presented::Missing => {
                return Err(Error::invalid(
                    "the Redeem presents no payload: add .payload(..), or use Redeem::stored to run what was planned",
                ));
            }
        };
        Ok(PreparedRedeem { token: self.token, tool: self.tool, fingerprint, data_digest: self.data_digest })
    }
}

/// A redeem that holds nothing borrowed.
#[derive(Debug)]
pub(crate) struct PreparedRedeem {
    pub(crate) token: String,
    pub(crate) tool: String,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) data_digest: Option<String>,
}

/// A presented token, without copying megabytes of what can be no token.
pub(crate) fn short(token: &str) -> String {
    if token.len() <= 48 { token.to_owned() } else { String::new() }
}

/// The answer of a create.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Created {
    /// Names the plan and redeems it.
    pub plan_token: PlanToken,
    /// The payload's fingerprint.
    pub fingerprint: Fingerprint,
    /// What a reviewer countersigns.
    pub seal: Seal,
    /// `previewed`, or `awaiting_approval`; for a repeated create the plan's present state.
    pub state: State,
    /// Until when the plan can be used; the millisecond itself included.
    pub expires_at: DateTime<Utc>,
    /// True when this (caller, tool, key) had made the plan before: nothing was created.
    pub already: bool,
    /// The newest "no" to the same tool and payload, which is why the plan is gated.
    pub earlier_rejection: Option<EarlierRejection>,
}

/// An earlier "no" to the same tool and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EarlierRejection {
    /// The plan that was rejected.
    pub plan_token: PlanToken,
    /// Who rejected it.
    pub reviewer: String,
    /// When.
    pub at: DateTime<Utc>,
    /// Why, as the reviewer wrote it.
    pub reason: Option<String>,
}

/// A plan as it stands. A plan past its time is shown as `expired`, whether that was noticed or not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Names the plan.
    pub plan_token: PlanToken,
    /// The tool that runs it.
    pub tool: String,
    /// The agent that created it.
    pub caller: String,
    /// The payload: what is stored is what runs.
    pub payload: CanonicalJson,
    /// The payload's fingerprint.
    pub fingerprint: String,
    /// What a reviewer countersigns.
    pub seal: Seal,
    /// The key under which the host created it.
    pub idempotency_key: Option<String>,
    /// The agent's words, as they were given: escape them before you show them.
    pub reason: Option<String>,
    /// How many things the write touches, as the host counted.
    pub preview_count: Option<i64>,
    /// The host's digest of the data that the preview looked at.
    pub data_digest: Option<String>,
    /// The host's words for the card: a JSON object.
    pub extra: Option<CanonicalJson>,
    /// The state.
    pub state: State,
    /// True when people have to approve it; for ever.
    pub gated: bool,
    /// How many reviewers have to approve, were it gated.
    pub approvals_needed: u32,
    /// The approvals that stand.
    pub approvals: Vec<ApprovalGiven>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Until when it can be used.
    pub expires_at: DateTime<Utc>,
    /// When the last approval completed the quorum, or a reviewer rejected it.
    pub decided_at: Option<DateTime<Utc>>,
    /// When the newest claim was made.
    pub executing_since: Option<DateTime<Utc>>,
    /// When it became terminal.
    pub settled_at: Option<DateTime<Utc>>,
    /// How often it was claimed.
    pub attempt: u32,
    /// The instance that made or adopted the newest claim.
    pub instance_id: Option<String>,
    /// What the side effect answered.
    pub result: Option<CanonicalJson>,
    /// What went wrong, last.
    pub error: Option<String>,
    /// Why it was rejected.
    pub reject_reason: Option<String>,
}

impl Plan {
    /// The fields under the plan's seal, to recompute it.
    #[must_use]
    pub fn seal_fields(&self) -> SealFields<'_> {
        SealFields {
            plan_token: self.plan_token.as_str(),
            tool: &self.tool,
            caller: &self.caller,
            fingerprint: &self.fingerprint,
            data_digest: self.data_digest.as_deref(),
            reason: self.reason.as_deref(),
            extra: self.extra.as_ref(),
            preview_count: self.preview_count,
            approvals_needed: self.approvals_needed,
            created_at_ms: self.created_at.timestamp_millis(),
            expires_at_ms: self.expires_at.timestamp_millis(),
        }
    }
}

/// One reviewer's approval of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovalGiven {
    /// Who approved.
    pub reviewer: String,
    /// Through what.
    pub channel: String,
    /// When.
    pub at: DateTime<Utc>,
}

/// A plan that waits for a decision, with everything that a reviewer's card shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PendingPlan {
    /// The plan.
    pub plan: Plan,
    /// The newest "no" to the same tool and payload.
    pub earlier_rejection: Option<EarlierRejection>,
    /// How many other plans of this caller and tool wait now.
    pub others_waiting: u64,
}

/// A page of a listing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing<T> {
    /// The first items, up to the limit that was asked for.
    pub items: Vec<T>,
    /// How many there are in all.
    pub total: u64,
}

/// The answer of an approve or reject.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The plan.
    pub plan_token: PlanToken,
    /// Its state after the decision.
    pub state: State,
    /// True when the decision had been made before: nothing changed.
    pub already: bool,
    /// How many approvals stand.
    pub approvals: u32,
    /// How many are needed.
    pub approvals_needed: u32,
}

/// The answer of a confirm, a settle or a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// The plan's state now.
    pub state: State,
    /// True when it had been recorded before: nothing changed.
    pub already: bool,
}
