//! The claim: the right to run a plan's side effect once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::canonical::{CanonicalJson, Limits, canonicalize};
use crate::error::{Error, Result};
use crate::gate::{Inner, LiveClaim};
use crate::gates::{self, Report, Verdict};
use crate::lifecycle::{Event, Retry, State};
use crate::names::{Actor, PlanToken, hex};
use crate::plan::{Plan, Settled};
use crate::refusal::RefusalCode;
use crate::store::transition::Change;
use crate::store::tx::No;
use crate::store::unknown_token;

/// The right to run a plan's side effect once: plan token, attempt, and a random claim token.
///
/// Report the outcome with [`confirm_executed`](Claim::confirm_executed), [`confirm_failed`](Claim::confirm_failed) or
/// [`mark_uncertain`](Claim::mark_uncertain); each can be repeated when it answers busy. A claim that is dropped without
/// a report leaves its plan `executing`, and the instance knows that nobody works on it any more.
#[must_use = "a claimed plan stays `executing` until its outcome is reported"]
pub struct Claim {
    live: LiveClaim,
    actor: Actor,
    plan: Arc<Plan>,
    claim_token: String,
    /// When this process made the claim; unknown for an adopted one.
    claimed_us: Option<u64>,
}

/// What a report brings along.
pub(crate) struct Evidence {
    text: Option<String>,
    result: Option<CanonicalJson>,
}

impl Claim {
    pub(crate) fn new(live: LiveClaim, actor: Actor, plan: Plan, claim_token: String, claimed_here: bool) -> Self {
        let claimed_us = claimed_here.then(|| live.inner().options.clock.monotonic_us());
        Self { live, actor, plan: Arc::new(plan), claim_token, claimed_us }
    }

    /// A second holder of the same claim: while either lives, somebody works on it.
    #[cfg(feature = "tokio")]
    pub(crate) fn again(&self) -> Self {
        Self {
            live: self.live.again(),
            actor: self.actor.clone(),
            plan: Arc::clone(&self.plan),
            claim_token: self.claim_token.clone(),
            claimed_us: self.claimed_us,
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        self.live.inner()
    }

    /// The plan's token. Put it into the side effect's own transaction: it is the effect's idempotency key.
    #[must_use]
    pub fn plan_token(&self) -> &PlanToken {
        &self.plan.plan_token
    }

    /// Which claim of the plan this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.plan.attempt
    }

    /// The claim's secret: with it [`Agent::adopt`](crate::Agent::adopt) takes the claim over.
    #[must_use]
    pub fn claim_token(&self) -> &str {
        &self.claim_token
    }

    /// The payload, in canonical JSON: what was planned and approved is what runs.
    #[must_use]
    pub fn payload(&self) -> &CanonicalJson {
        &self.plan.payload
    }

    /// The payload as a `T`.
    ///
    /// # Errors
    /// Invalid input, when the payload is no `T`.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.plan.payload.as_str()).map_err(|error| {
            Error::invalid(format!("the planned payload is not of the type that the host expects: {error}"))
        })
    }

    /// The plan as it was claimed.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Re-reads the fence: call it just before the side effect, above all after a long preparation.
    ///
    /// # Errors
    /// Refused: STALE_CLAIM when a later claim answers for the plan, NOT_EXECUTING when the plan is no longer
    /// executing. Storage errors.
    pub fn check(&self) -> Result<()> {
        self.inner().read(|reader| {
            let row = reader.find(self.plan_token().as_str(), None)?;
            let Some(row) = row else { return Err(Error::refused(crate::Refusal::new(RefusalCode::UnknownToken))) };
            match gates::report(&row, self.plan.attempt, &self.claim_token, Report::Adopt) {
                Verdict::Refuse(code) => Err(Error::refused(row.refusal(code))),
                _ if row.state != State::Executing => Err(Error::refused(row.refusal(RefusalCode::NotExecuting))),
                _ => Ok(()),
            }
        })
    }

    /// Records that the side effect happened, with its result. Never refused for its content: a result that is too big,
    /// too deep or not JSON is stored as `{omitted, bytes, sha256}`.
    ///
    /// # Errors
    /// Refused: STALE_CLAIM when a later claim answers for the plan, NOT_EXECUTING when it was settled meanwhile; both
    /// keep this report in the audit. Busy and storage errors: call again.
    pub fn confirm_executed<T: Serialize + ?Sized>(&mut self, result: &T) -> Result<Settled> {
        let evidence = self.result(result);
        self.report(Report::Executed, evidence)
    }

    /// Records that the side effect did not happen: the plan may run again, after all gates.
    ///
    /// # Errors
    /// As for [`confirm_executed`](Claim::confirm_executed).
    pub fn confirm_failed(&mut self, detail: &str) -> Result<Settled> {
        let evidence = self.detail(detail);
        self.report(Report::Failed, evidence)
    }

    /// Records that nobody knows whether the side effect happened.
    ///
    /// # Errors
    /// As for [`confirm_executed`](Claim::confirm_executed).
    pub fn mark_uncertain(&mut self, detail: &str) -> Result<Settled> {
        let evidence = self.detail(detail);
        self.report(Report::Uncertain, evidence)
    }

    /// Writes the host's own event, `host:<name>`, into the plan's audit.
    ///
    /// # Errors
    /// Invalid input for a name or a detail that cannot be stored; storage errors.
    pub fn record_host_event(&self, name: &str, detail: &str) -> Result<()> {
        crate::agent::host_event(self.inner(), &self.actor, Some(self.plan_token().as_str()), None, name, detail)
    }

    pub(crate) fn result<T: Serialize + ?Sized>(&self, result: &T) -> Evidence {
        Evidence { text: None, result: Some(keep_json(result, self.inner().options.payload)) }
    }

    pub(crate) fn detail(&self, detail: &str) -> Evidence {
        Evidence { text: Some(keep_text(detail, self.inner().options.text_max_bytes)), result: None }
    }

    pub(crate) fn report(&self, report: Report, evidence: Evidence) -> Result<Settled> {
        let _span = crate::report::span(verb(report), self.plan_token().as_str());
        let duration_us = self.duration_us();
        let (attempt, claim_token) = (self.plan.attempt, &self.claim_token);
        let token = self.plan.plan_token.as_str();
        let settled = self.inner().write(&self.actor, |tx| {
            let Some(mut row) = tx.find(token, None)? else { return Ok(Err(unknown_token(token))) };
            // The claim token went with the row; the audit still tells whether this claim ended its own work.
            if row.purged && tx.was_reported(token, attempt)? {
                row.claim_token = Some(claim_token.clone());
            }
            match gates::report(&row, attempt, claim_token, report) {
                Verdict::Refuse(code) => {
                    let no = No::about(&row, row.refusal(code));
                    return Ok(Err(no.detail(reported(report, attempt, &evidence))));
                }
                Verdict::Already => return Ok(Ok(Settled { state: row.state, already: true })),
                Verdict::Go => {}
            }
            let event = match report {
                Report::Executed => Event::Executed,
                Report::Failed => Event::NotApplied(Retry::of(row.gated, row.quorum_complete())),
                Report::Uncertain | Report::Adopt => Event::Uncertain,
            };
            let change = Change {
                result: evidence.result.as_ref(),
                error: evidence.text.as_deref(),
                detail: evidence.text.clone(),
                duration_us: Some(duration_us.unwrap_or_else(|| since_us(row.executing_since, tx.now))),
                ..Change::default()
            };
            tx.transition(&mut row, event, change)?;
            Ok(Ok(Settled { state: row.state, already: false }))
        })?;
        Ok(settled)
    }

    fn duration_us(&self) -> Option<i64> {
        let now = self.inner().options.clock.monotonic_us();
        self.claimed_us.map(|claimed| i64::try_from(now.saturating_sub(claimed)).unwrap_or(i64::MAX))
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("plan_token", self.plan_token()).field("attempt", &self.attempt()).finish()
    }
}

fn since_us(since: Option<i64>, now: i64) -> i64 {
    since.map_or(0, |since| now.saturating_sub(since).max(0).saturating_mul(1000))
}

fn verb(report: Report) -> &'static str {
    match report {
        Report::Executed => "confirm_executed",
        Report::Failed => "confirm_failed",
        Report::Uncertain => "mark_uncertain",
        Report::Adopt => "adopt",
    }
}

/// What was reported, as evidence in the `refused` row that an effect may have happened.
fn reported(report: Report, attempt: u32, evidence: &Evidence) -> String {
    let digest = evidence.result.as_ref().map(|result| result.fingerprint().to_string());
    let mut said = serde_json::json!({"verb": verb(report), "attempt": attempt});
    if let Some(digest) = digest {
        said["result_sha256"] = digest.into();
    }
    if let Some(text) = &evidence.text {
        said["detail"] = text.as_str().into();
    }
    said.to_string()
}

/// What stands for a result that is not kept.
#[derive(Serialize)]
struct Omitted {
    bytes: Option<usize>,
    omitted: String,
    sha256: Option<String>,
}

/// A result as it is stored: canonical JSON, or what is known of it when it cannot be kept. A value that panics while
/// it serialises is one that cannot be kept: the side effect has happened, and that must be recorded.
pub(crate) fn keep_json<T: Serialize + ?Sized>(value: &T, limits: Limits) -> CanonicalJson {
    let canonical = |limits| match catch_unwind(AssertUnwindSafe(|| canonicalize(value, limits))) {
        Ok(json) => json.map_err(|error| error.to_string()),
        Err(_) => Err("the result panicked while it was serialised".to_owned()),
    };
    let error = match canonical(limits) {
        Ok(json) => return json,
        Err(error) => error,
    };
    // Its size and digest, where it has a canonical form at all. The depth stays bounded.
    let whole = canonical(Limits { max_bytes: usize::MAX, ..limits }).ok();
    let omitted = Omitted {
        bytes: whole.as_ref().map(|json| json.as_str().len()),
        omitted: crate::escape::visible_cut(&error, 300),
        sha256: whole.as_ref().map(|json| json.fingerprint().to_string()),
    };
    canonicalize(&omitted, Limits { max_bytes: usize::MAX, max_depth: 1 })
        .unwrap_or_else(|_| CanonicalJson::from_stored("{\"omitted\":\"\"}".to_owned()))
}

/// A detail as it is stored: whole, or its size and digest.
pub(crate) fn keep_text(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let digest = hex(&Sha256::digest(text.as_bytes()));
    format!("{{\"omitted\":\"longer than {max_bytes} bytes\",\"bytes\":{},\"sha256\":\"{digest}\"}}", text.len())
}
