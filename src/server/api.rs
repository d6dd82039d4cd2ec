//! The queue and the decisions.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::answer::{Failed, Json};
use super::card::{Card, time};
use super::hooks::{DecisionAction, DecisionAttempt, tell};
use super::tokens::Pass;
use crate::clock::utc;
use crate::error::Error;

const BODY_MAX_BYTES: usize = 64 * 1024;
const BODY_DEADLINE: Duration = Duration::from_secs(10);
/// How long an answer waits for `on_decision`.
const HOOK_DEADLINE: Duration = Duration::from_secs(5);
/// The most cards of one answer, and about how many bytes of them; `total` says how many plans wait in all.
const CARDS_MAX: u32 = 100;
const CARDS_MAX_BYTES: usize = 16 * 1024 * 1024;

/// A segment of the path: what cannot be decoded is no address.
type Segment = Result<Path<String>, PathRejection>;

#[derive(Serialize)]
pub(super) struct Queue {
    plans: Vec<Card>,
    total: u64,
    now: String,
    reviewer: String,
    raw_payload: bool,
}

pub(super) async fn plans(
    State(shared): State<Arc<Shared>>,
    Extension(pass): Extension<Pass>,
) -> Result<Json<Queue>, Failed> {
    let reads = shared.reads.clone();
    Shared::blocking(&reads, move || {
        let pending = pass.reviewer.pending(CARDS_MAX).map_err(|error| Failed::from_gate(&error))?;
        let mut bytes = 0;
        let mut plans = Vec::with_capacity(pending.items.len());
        for plan in &pending.items {
            let card = Card::new(&shared, plan);
            bytes += card.bytes();
            if bytes > CARDS_MAX_BYTES && !plans.is_empty() {
                break;
            }
            plans.push(card);
        }
        Ok(Json(Queue {
            plans,
            total: pending.total,
            now: shared.now(),
            reviewer: pass.reviewer.name().to_owned(),
            raw_payload: shared.expose_raw_payload,
        }))
    })
    .await
}

#[derive(Serialize)]
pub(super) struct One {
    plan: Card,
    now: String,
    reviewer: String,
}

pub(super) async fn plan(
    State(shared): State<Arc<Shared>>,
    Extension(pass): Extension<Pass>,
    token: Segment,
) -> Result<Json<One>, Failed> {
    let token = segment(token)?;
    let reads = shared.reads.clone();
    Shared::blocking(&reads, move || {
        let pending = pass.reviewer.card(&token).map_err(|error| Failed::from_gate(&error))?;
        let reviewer = pass.reviewer.name().to_owned();
        Ok(Json(One { plan: Card::new(&shared, &pending), now: shared.now(), reviewer }))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproveBody {
    seal: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RejectBody {
    seal: String,
    #[serde(default)]
    reason: Option<String>,
}

/// What was decided.
#[derive(Serialize)]
pub(super) struct Decided {
    ok: bool,
    plan_token: String,
    status: &'static str,
    reviewer: String,
    already: bool,
    approvals: u32,
    approvals_needed: u32,
}

pub(super) async fn approve(
    State(shared): State<Arc<Shared>>,
    Extension(pass): Extension<Pass>,
    token: Segment,
    request: Request,
) -> Result<Json<Decided>, Failed> {
    let token = segment(token)?;
    let ApproveBody { seal } = body(request).await?;
    decide(shared, pass, DecisionAction::Approve, token, seal, None).await
}

pub(super) async fn reject(
    State(shared): State<Arc<Shared>>,
    Extension(pass): Extension<Pass>,
    token: Segment,
    request: Request,
) -> Result<Json<Decided>, Failed> {
    let token = segment(token)?;
    let RejectBody { seal, reason } = body(request).await?;
    decide(shared, pass, DecisionAction::Reject, token, seal, reason).await
}

async fn decide(
    shared: Arc<Shared>,
    pass: Pass,
    action: DecisionAction,
    token: String,
    seal: String,
    reason: Option<String>,
) -> Result<Json<Decided>, Failed> {
    let (send_answer, answer) = tokio::sync::oneshot::channel();
    let decisions = shared.decisions.clone();
    // On its own task: a decision is carried through and told of, also when its client is gone.
    let told = tokio::spawn(async move {
        Shared::blocking(&decisions, move || {
            let outcome = match action {
                DecisionAction::Approve => pass.reviewer.approve(&token, &seal),
                DecisionAction::Reject => pass.reviewer.reject_sealed(&token, &seal, reason.as_deref()),
            };
            let name = pass.reviewer.name();
            // The receiver is gone when the client is.
            let _ = send_answer.send(match &outcome {
                Ok(decision) => Ok(Json(Decided {
                    ok: true,
                    plan_token: decision.plan_token.to_string(),
                    status: decision.state.as_str(),
                    reviewer: name.to_owned(),
                    already: decision.already,
                    approvals: decision.approvals,
                    approvals_needed: decision.approvals_needed,
                })),
                Err(error) => Err(Failed::from_gate(error)),
            });
            if let Some(hook) = &shared.on_decision {
                let (plan_token, reason) = (token.as_str(), reason.as_deref());
                let outcome: Result<_, &Error> = outcome.as_ref();
                tell(hook, &DecisionAttempt { action, plan_token, reviewer: name, reason, outcome });
            }
            Ok(())
        })
        .await
    });
    // The host hears of it before the reviewer does, but it cannot keep the answer back.
    let told = tokio::time::timeout(HOOK_DEADLINE.max(super::CALL_WAIT), told);
    match (told.await, answer.await) {
        (_, Ok(answer)) => answer,
        (Ok(Ok(Err(failed))), Err(_)) => Err(failed),
        (_, Err(_)) => Err(Failed::internal()),
    }
}

pub(super) async fn nothing_here() -> Failed {
    Failed::not_found()
}

pub(super) async fn wrong_method() -> Failed {
    Failed::method_not_allowed()
}

pub(super) fn segment(segment: Segment) -> Result<String, Failed> {
    segment.map(|Path(text)| text).map_err(|_| Failed::not_found())
}

/// A small JSON object, in time.
async fn body<T: serde::de::DeserializeOwned>(request: Request) -> Result<T, Failed> {
    if !is_json(request.headers()) {
        return Err(Failed::media_type());
    }
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if announced.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > BODY_MAX_BYTES as u64) {
        return Err(Failed::too_large());
    }
    let bytes =
        tokio::time::timeout(BODY_DEADLINE, limited(request.into_body())).await.map_err(|_| Failed::too_slow())??;
    // What is wrong with it is said without quoting it.
    serde_json::from_slice(&bytes).map_err(|error| {
        Failed::bad_request(match error.classify() {
            serde_json::error::Category::Data => {
                "the body must be an object with the seal that was shown, and with nothing that this address does not know"
            }
            _ => "the body is not JSON",
        })
    })
}

async fn limited(body: Body) -> Result<Vec<u8>, Failed> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Failed::bad_request("the body broke off"))?;
        if bytes.len() + chunk.len() > BODY_MAX_BYTES {
            return Err(Failed::too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (given.next(), given.next()) else { return false };
    let essence = first.to_str().ok().and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

impl Shared {
    /// The gate's time, so that a page under another clock counts down rightly.
    pub(super) fn now(&self) -> String {
        time(utc(self.operator.inner.store.now()))
    }
}
