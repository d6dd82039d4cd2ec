//! A plan as its card shows it: the wire form, every text of it safe to look at.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use super::hooks::{Rendered, render};
use super::{Shared, pretty};
use crate::escape::visible;
use crate::plan::{ApprovalGiven, EarlierRejection, PendingPlan, Plan};

/// One card. `payload` is there only where the host allows it.
#[derive(Serialize)]
pub(super) struct Card {
    plan_token: String,
    fingerprint: String,
    seal: String,
    tool: String,
    caller: String,
    /// The agent's words.
    reason: Option<String>,
    idempotency_key: Option<String>,
    /// The host's count.
    preview_count: Option<i64>,
    state: &'static str,
    created_at: String,
    expires_at: String,
    approvals: usize,
    approvals_needed: u32,
    approved_by: Vec<GivenBy>,
    others_waiting: u64,
    earlier_rejection: Option<Rejection>,
    render: Render,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// How the plan ended, where it has: who rejected it stands in its history.
    reject_reason: Option<String>,
}

#[derive(Serialize)]
struct GivenBy {
    reviewer: String,
    at: String,
}

#[derive(Serialize)]
struct Rejection {
    plan_token: String,
    reviewer: String,
    at: String,
    reason: Option<String>,
}

#[derive(Serialize, Default)]
struct Render {
    title: String,
    details: Vec<Detail>,
    /// The host's hook failed: what the plan does is not on the card.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

#[derive(Serialize)]
struct Detail {
    label: String,
    value: String,
    /// The value is JSON that this server laid out; otherwise it is text, in which `\n` and the like are markers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    json: bool,
}

impl Card {
    pub(super) fn new(shared: &Shared, pending: &PendingPlan) -> Self {
        let plan = &pending.plan;
        Self {
            plan_token: plan.plan_token.to_string(),
            fingerprint: plan.fingerprint.clone(),
            seal: plan.seal.to_string(),
            tool: shown(&plan.tool),
            caller: shown(&plan.caller),
            reason: plan.reason.as_deref().map(shown),
            idempotency_key: plan.idempotency_key.as_deref().map(shown),
            preview_count: plan.preview_count,
            state: plan.state.as_str(),
            created_at: time(plan.created_at),
            expires_at: time(plan.expires_at),
            approvals: plan.approvals.len(),
            approvals_needed: plan.approvals_needed,
            approved_by: plan.approvals.iter().map(GivenBy::new).collect(),
            others_waiting: pending.others_waiting,
            earlier_rejection: pending.earlier_rejection.as_ref().map(Rejection::new),
            render: Render::new(shared, pending),
            payload: shared.expose_raw_payload.then(|| pretty::exact(plan.payload.as_str())),
            reject_reason: plan.reject_reason.as_deref().map(shown),
        }
    }

    /// About how large the card is on the wire.
    pub(super) fn bytes(&self) -> usize {
        let details = self.render.details.iter().map(|detail| detail.label.len() + detail.value.len());
        1024 + details.sum::<usize>() + self.payload.as_ref().map_or(0, String::len)
    }
}

impl GivenBy {
    fn new(given: &ApprovalGiven) -> Self {
        Self { reviewer: shown(&given.reviewer), at: time(given.at) }
    }
}

impl Rejection {
    fn new(earlier: &EarlierRejection) -> Self {
        Self {
            plan_token: earlier.plan_token.to_string(),
            reviewer: shown(&earlier.reviewer),
            at: time(earlier.at),
            reason: earlier.reason.as_deref().map(shown),
        }
    }
}

impl Render {
    fn new(shared: &Shared, pending: &PendingPlan) -> Self {
        let plan = &pending.plan;
        let Some(hook) = &shared.render else { return Self::default_of(plan) };
        match render(hook, pending) {
            Some(Rendered { title, details }) => Self {
                title: title.as_deref().map_or_else(|| shown(&plan.tool), shown),
                details: details.iter().map(|(label, value)| Detail::text(label, value)).collect(),
                failed: false,
            },
            None => Self { title: shown(&plan.tool), details: Vec::new(), failed: true },
        }
    }

    /// Without a hook: payload and extra.
    fn default_of(plan: &Plan) -> Self {
        let mut details = vec![Detail::json("payload", plan.payload.as_str())];
        details.extend(plan.extra.iter().map(|extra| Detail::json("extra", extra.as_str())));
        Self { title: shown(&plan.tool), details, failed: false }
    }
}

impl Detail {
    fn text(label: &str, value: &str) -> Self {
        Self { label: shown(label), value: shown(value), json: false }
    }

    fn json(label: &str, canonical: &str) -> Self {
        Self { label: label.to_owned(), value: pretty::pretty(canonical), json: true }
    }
}

pub(super) fn shown(text: &str) -> String {
    visible(text).into_owned()
}

/// RFC 3339 in UTC with milliseconds.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
