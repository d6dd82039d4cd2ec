//! What happened, read only: a search over the newest audit rows, one plan's timeline, and the stuck plans.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State, rejection::PathRejection};
use serde::{Deserialize, Serialize};

use super::Shared;
use super::answer::{Failed, Json};
use super::api::segment;
use super::card::{shown, time};
use crate::audit::{AuditEvent, AuditQuery};
use crate::clock::utc;
use crate::escape::still_visible;
use crate::liveness::Liveness;
use crate::names::PlanToken;
use crate::operator::{Operator, StuckPlan};

/// How far back a search goes that reads row after row. What an index answers is found however old it is: a whole token,
/// and, with the opt-in indexes, a tool's or caller's whole name.
const SEARCHED_ROWS: u32 = 10_000;
/// The most rows of one answer.
const FOUND_MAX: usize = 200;
const STUCK_MAX: u32 = 200;
const TIMELINE_MAX: usize = 2_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// A part of a token, a tool's or a caller's name.
    #[serde(default)]
    q: String,
    /// The state that a row led to, or its event.
    #[serde(default)]
    state: String,
    /// Only rows before this one: the next page.
    #[serde(default)]
    before: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct Found {
    rows: Vec<Row>,
    /// How many rows match, of those that were searched.
    matches: usize,
    /// How many of the newest rows were searched.
    searched: usize,
    /// How many there are.
    total: i64,
    now: String,
}

/// One audit row. `detail` is there where it is a seal, or where the host shows raw payloads: it may quote a result.
#[derive(Serialize)]
struct Row {
    seq: i64,
    at: String,
    plan_token: Option<String>,
    event: String,
    from_state: Option<String>,
    to_state: Option<String>,
    tool: Option<String>,
    caller: Option<String>,
    actor: String,
    channel: String,
    code: Option<String>,
    reason: Option<String>,
    preview_count: Option<i64>,
    attempt: Option<i64>,
    instance_id: String,
    duration_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// There is a detail, and it is not shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    detail_hidden: bool,
}

impl Row {
    fn new(shared: &Shared, event: AuditEvent) -> Self {
        let clean = |text: Option<String>| text.map(|text| still_visible(&text).into_owned());
        let seal = matches!(event.event.as_str(), "previewed" | "awaiting_approval" | "approved" | "approval_recorded");
        let had_detail = event.detail.is_some();
        let detail = clean(event.detail).filter(|_| seal || shared.expose_raw_payload);
        Self {
            seq: event.seq,
            at: time(utc(event.at)),
            plan_token: clean(event.plan_token),
            event: still_visible(&event.event).into_owned(),
            from_state: event.from_state,
            to_state: event.to_state,
            tool: clean(event.tool),
            caller: clean(event.caller),
            actor: still_visible(&event.actor).into_owned(),
            channel: still_visible(&event.channel).into_owned(),
            code: event.code,
            reason: clean(event.reason),
            preview_count: event.preview_count,
            attempt: event.attempt,
            instance_id: event.instance_id,
            duration_us: event.duration_us,
            detail_hidden: had_detail && detail.is_none(),
            detail,
        }
    }
}

impl Search {
    fn finds(&self, event: &AuditEvent) -> bool {
        let wanted = self.q.trim().to_ascii_lowercase();
        let has = |text: &Option<String>| text.as_ref().is_some_and(|text| text.to_ascii_lowercase().contains(&wanted));
        let text = wanted.is_empty() || has(&event.plan_token) || has(&event.tool) || has(&event.caller);
        let state =
            self.state.is_empty() || event.to_state.as_deref() == Some(&self.state) || event.event == self.state;
        text && state && self.before.is_none_or(|before| event.seq < before)
    }
}

impl Search {
    fn takes_all(&self) -> bool {
        self.q.trim().is_empty() && self.state.is_empty()
    }

    fn newest(&self, limit: u32) -> AuditQuery {
        let query = AuditQuery::new().newest_first().limit(limit);
        match self.before {
            Some(before) => query.before(before),
            None => query,
        }
    }

    /// Where every row is wanted, those that are shown are read; the others are known by their numbers.
    fn everything(&self, shared: &Shared, total: i64, events: Vec<AuditEvent>) -> Found {
        let searched = total.min(i64::from(SEARCHED_ROWS));
        let before = self.before.unwrap_or(i64::MAX).clamp(1, total.saturating_add(1));
        let matches = usize::try_from(before - 1 - (total - searched)).unwrap_or(0).max(events.len());
        let rows = events.into_iter().map(|event| Row::new(shared, event)).collect();
        Found { rows, matches, searched: usize::try_from(searched).unwrap_or(0), total, now: shared.now() }
    }

    /// The queries that an index answers, beyond the newest rows.
    fn indexed(&self, operator: &Operator) -> crate::Result<Vec<AuditQuery>> {
        let wanted = self.q.trim();
        let query = || self.newest(SEARCHED_ROWS);
        if PlanToken::parse(&wanted.to_ascii_lowercase()).is_some() {
            return Ok(vec![query().plan(wanted.to_ascii_lowercase())]);
        }
        if wanted.is_empty() || !operator.has_audit_index()? {
            return Ok(Vec::new());
        }
        Ok(vec![query().tool(wanted), query().caller(wanted)])
    }
}

pub(super) async fn search(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<Search>, QueryRejection>,
) -> Result<Json<Found>, Failed> {
    let Ok(Query(search)) = query else {
        return Err(Failed::bad_request("the search knows q, state and before (a number)"));
    };
    let reads = shared.reads.clone();
    Shared::blocking(&reads, move || {
        let audit = shared.operator.audit();
        let total = audit.head().map_err(|error| Failed::from_gate(&error))?.seq;
        if search.takes_all() {
            let page = search.newest(FOUND_MAX.try_into().unwrap_or(u32::MAX));
            let events = audit.query(&page).map_err(|error| Failed::from_gate(&error))?;
            return Ok(Json(search.everything(&shared, total, events)));
        }
        let newest = AuditQuery::new().newest_first().limit(SEARCHED_ROWS);
        let mut events = audit.query(&newest).map_err(|error| Failed::from_gate(&error))?;
        let searched = events.len();
        for query in search.indexed(&shared.operator).map_err(|error| Failed::from_gate(&error))? {
            events.extend(audit.query(&query).map_err(|error| Failed::from_gate(&error))?);
        }
        events.sort_unstable_by_key(|event| Reverse(event.seq));
        events.dedup_by_key(|event| event.seq);
        let mut matches = 0;
        let mut rows = Vec::new();
        for event in events.into_iter().filter(|event| search.finds(event)) {
            matches += 1;
            if rows.len() < FOUND_MAX {
                rows.push(Row::new(&shared, event));
            }
        }
        Ok(Json(Found { rows, matches, searched, total, now: shared.now() }))
    })
    .await
}

#[derive(Serialize)]
pub(super) struct Timeline {
    rows: Vec<Row>,
    /// How many rows the plan has.
    total: usize,
}

pub(super) async fn timeline(
    State(shared): State<Arc<Shared>>,
    token: Result<Path<String>, PathRejection>,
) -> Result<Json<Timeline>, Failed> {
    let token = segment(token)?;
    let reads = shared.reads.clone();
    Shared::blocking(&reads, move || {
        let events = shared.operator.history(&token).map_err(|error| Failed::from_gate(&error))?;
        let total = events.len();
        let rows = events.into_iter().take(TIMELINE_MAX).map(|event| Row::new(&shared, event)).collect();
        Ok(Json(Timeline { rows, total }))
    })
    .await
}

#[derive(Serialize)]
pub(super) struct Stuck {
    plans: Vec<StuckRow>,
    total: u64,
    now: String,
}

#[derive(Serialize)]
struct StuckRow {
    plan_token: String,
    tool: String,
    caller: String,
    state: &'static str,
    attempt: u32,
    executing_since: Option<String>,
    owner: Liveness,
    instance_id: Option<String>,
    host_name: Option<String>,
    pid: Option<i64>,
}

impl StuckRow {
    fn new(stuck: &StuckPlan) -> Self {
        let plan = &stuck.plan;
        Self {
            plan_token: plan.plan_token.to_string(),
            tool: shown(&plan.tool),
            caller: shown(&plan.caller),
            state: plan.state.as_str(),
            attempt: plan.attempt,
            executing_since: plan.executing_since.map(time),
            owner: stuck.owner,
            instance_id: plan.instance_id.clone(),
            host_name: stuck.host_name.as_deref().map(shown),
            pid: stuck.pid,
        }
    }
}

pub(super) async fn stuck(State(shared): State<Arc<Shared>>) -> Result<Json<Stuck>, Failed> {
    let reads = shared.reads.clone();
    Shared::blocking(&reads, move || {
        let listing = shared.operator.executing(STUCK_MAX).map_err(|error| Failed::from_gate(&error))?;
        let plans = listing.items.iter().map(StuckRow::new).collect();
        Ok(Json(Stuck { plans, total: listing.total, now: shared.now() }))
    })
    .await
}
