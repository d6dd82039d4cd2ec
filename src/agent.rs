//! The agent's handle: it proposes writes and runs those that may run. It cannot approve.

use std::sync::Arc;

use serde::Serialize;

use crate::claim::Claim;
use crate::create::{PreparedPlan, create};
use crate::error::{Error, Result};
use crate::execute::{self, ExecuteError, Failure};
use crate::gate::{Inner, LiveClaim};
use crate::gates::{self, Report, Verdict};
use crate::lifecycle::Event;
use crate::names::{Actor, Channel, check_name, check_text, random_hex};
use crate::plan::{ApprovalGiven, Created, NewPlan, Plan, PreparedRedeem, Redeem, short};
use crate::refusal::RefusalCode;
use crate::store::rows::{FullRow, PlanRow};
use crate::store::transition::Change;
use crate::store::tx::{Draft, No, Tx};
use crate::store::unknown_token;

/// What the host's tools call for one agent. Cheap to clone.
///
/// Every verb that names a token answers UNKNOWN_TOKEN for a token that was never issued, is malformed, or belongs to
/// another caller. Names compare without ASCII case.
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
    pub(crate) actor: Actor,
}

impl Agent {
    pub(crate) fn new(inner: Arc<Inner>, actor: Actor) -> Self {
        Self { inner, actor }
    }

    /// The agent's name.
    #[must_use]
    pub fn caller(&self) -> &str {
        &self.actor.name
    }

    /// The same handle, recorded under another channel.
    #[must_use]
    pub fn via(mut self, channel: Channel) -> Self {
        self.actor.channel = channel;
        self
    }

    /// Stores a write that the agent proposes.
    ///
    /// The plan is `previewed` (ready), or `awaiting_approval` when it is gated: because the host asks for it, or
    /// because the same tool and payload was rejected before. With an idempotency key the same create again returns the
    /// same plan, `already: true`, without an event.
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, State};
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let args = serde_json::json!({"category": "tea", "percent": -10});
    /// let created = agent.create(
    ///     NewPlan::new("update_prices", &args, Approval::required()).reason("spring sale").preview_count(62),
    /// )?;
    /// assert_eq!(created.state, State::AwaitingApproval);
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Invalid input for everything that cannot be stored (design section 6 for the payload). Refused:
    /// IDEMPOTENCY_CONFLICT, TOO_MANY_PENDING, PLAN_REJECTED (with
    /// [`RejectedPayloads::Refuse`](crate::RejectedPayloads::Refuse), or when the key names a rejected plan that was
    /// purged), PLAN_USED and PLAN_EXPIRED (when the key names a plan that was purged). Busy and storage errors.
    pub fn create(&self, plan: NewPlan<'_>) -> Result<Created> {
        let plan = PreparedPlan::prepare(plan, &self.inner.options)?;
        self.create_prepared(&plan)
    }

    pub(crate) fn create_prepared(&self, plan: &PreparedPlan) -> Result<Created> {
        let _span = crate::report::span("create", "");
        create(&self.inner, &self.actor, plan)
    }

    /// Reads a plan of this caller. Writes nothing.
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN; after a purge PLAN_USED, PLAN_REJECTED or PLAN_EXPIRED. Storage errors.
    pub fn plan(&self, token: impl AsRef<str>) -> Result<Plan> {
        read_plan(&self.inner, token.as_ref(), Some(&self.actor.name))
    }

    /// Claims a plan: the right to run its side effect once.
    ///
    /// The gates, in this order: rejected PLAN_REJECTED; executed or failed PLAN_USED; executing or uncertain
    /// ALREADY_EXECUTING; past its time PLAN_EXPIRED; another tool or payload PLAN_MISMATCH; other data
    /// DATA_DIGEST_MISMATCH; not approved AWAITING_APPROVAL. Ahead of all: UNKNOWN_TOKEN.
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, Redeem};
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let created = agent.create(NewPlan::new("update_prices", &[1, 2], Approval::NotNeeded))?;
    /// let mut claim = agent.begin_execute(Redeem::new(&created.plan_token, "update_prices").payload(&[1, 2]))?;
    /// // run the side effect here, with claim.payload() and claim.plan_token()
    /// claim.confirm_executed(&"2 rows")?;
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Refused, as above. `corrupt` when the stored payload or row was edited: nothing runs. `clock_went_back`.
    /// `ambiguous` when the commit failed: do not run. `moved`, `rolled back`, busy and storage errors.
    pub fn begin_execute(&self, redeem: Redeem<'_>) -> Result<Claim> {
        let redeem = redeem.prepare(self.inner.options.payload)?;
        self.begin(&redeem)
    }

    pub(crate) fn begin(&self, redeem: &PreparedRedeem) -> Result<Claim> {
        let _span = crate::report::span("begin_execute", &redeem.token);
        let claim_token = random_hex::<24>()?;
        self.inner.register()?;
        let (plan, live) = self.inner.write(&self.actor, |tx| {
            let (full, approvals) = match claim(tx, redeem, &self.actor.name, &claim_token)? {
                Ok(claimed) => claimed,
                Err(no) => return Ok(Err(no)),
            };
            // In the set before the commit: no scan of this process takes it for abandoned.
            let live = LiveClaim::new(self.inner.clone(), &full.core);
            Ok(Ok((full.into_plan(approvals, tx.now), live)))
        })?;
        Ok(Claim::new(live, self.actor.clone(), plan, claim_token, true))
    }

    /// Claims a plan, runs the side effect, and records what happened.
    ///
    /// `Ok(v)`: `executed`, with `v` as the stored result. `Err(Failure::NotApplied)`: the effect did not happen, the
    /// plan may run again. Any other error (`?` converts) or a panic: `uncertain`; the panic goes on.
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, Redeem};
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let created = agent.create(NewPlan::new("update_prices", &[1, 2], Approval::NotNeeded))?;
    /// let redeem = Redeem::new(&created.plan_token, "update_prices").payload(&[1, 2]);
    /// let rows = agent.execute(redeem, |claim| {
    ///     let ids: Vec<i64> = claim.payload_as()?;
    ///     Ok(ids.len())
    /// })?;
    /// assert_eq!(rows, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ExecuteError`] says which: the gate's answer (nothing ran), not applied, uncertain, or not recorded (the effect
    /// ran; the value and the claim are given back).
    pub fn execute<T: Serialize>(
        &self,
        redeem: Redeem<'_>,
        effect: impl FnOnce(&Claim) -> Result<T, Failure>,
    ) -> Result<T, ExecuteError<T>> {
        let claim = self.begin_execute(redeem).map_err(ExecuteError::Gate)?;
        execute::run(claim, effect)
    }

    /// Claims and confirms at once, before the side effect runs: a crash between this call and the effect loses the
    /// write silently. Kept for hosts that come from libraries without a claim; use [`execute`](Agent::execute).
    ///
    /// # Errors
    /// As for [`begin_execute`](Agent::begin_execute).
    pub fn consume(&self, redeem: Redeem<'_>) -> Result<Plan> {
        let redeem = redeem.prepare(self.inner.options.payload)?;
        self.consume_prepared(&redeem)
    }

    pub(crate) fn consume_prepared(&self, redeem: &PreparedRedeem) -> Result<Plan> {
        let _span = crate::report::span("consume", &redeem.token);
        let claim_token = random_hex::<24>()?;
        self.inner.write(&self.actor, |tx| {
            let (mut full, approvals) = match claim(tx, redeem, &self.actor.name, &claim_token)? {
                Ok(claimed) => claimed,
                Err(no) => return Ok(Err(no)),
            };
            let change = Change { duration_us: Some(0), ..Change::default() };
            tx.transition(&mut full.core, Event::Executed, change)?;
            Ok(Ok(full.into_plan(approvals, tx.now)))
        })
    }

    /// Takes a claim over to this instance, whatever became of its old owner: the claim token is the proof. For a host
    /// that keeps its claims outside the process.
    ///
    /// # Errors
    /// Refused as a confirm is: UNKNOWN_TOKEN, NOT_EXECUTING, STALE_CLAIM. Storage errors.
    pub fn adopt(&self, token: impl AsRef<str>, attempt: u32, claim_token: &str) -> Result<Claim> {
        let token = short(token.as_ref());
        let claim_token = short(claim_token);
        let _span = crate::report::span("adopt", &token);
        self.inner.register()?;
        let (plan, live) = self.inner.write(&self.actor, |tx| {
            let Some(mut row) = tx.find(&token, Some(&self.actor.name))? else { return Ok(Err(unknown_token(&token))) };
            if let Verdict::Refuse(code) = gates::report(&row, attempt, &claim_token, Report::Adopt) {
                let no = No::about(&row, row.refusal(code));
                return Ok(Err(no.detail(format!("{{\"verb\":\"adopt\",\"attempt\":{attempt}}}"))));
            }
            let change = Change { owner: Some(tx.instance_id), ..Change::default() };
            tx.transition(&mut row, Event::Adopted, change)?;
            let live = LiveClaim::new(self.inner.clone(), &row);
            let full = tx.full(&token)?.ok_or_else(|| Error::corrupt("an adopted plan has no row"))?;
            Ok(Ok((tx.plan(full)?, live)))
        })?;
        Ok(Claim::new(live, self.actor.clone(), plan, claim_token, false))
    }

    /// Writes the host's own event, `host:<name>`, about a plan of this caller or about none.
    ///
    /// # Errors
    /// Invalid input for a name or a detail that cannot be stored. Refused: UNKNOWN_TOKEN. Storage errors.
    pub fn record_host_event(&self, token: Option<&str>, name: &str, detail: &str) -> Result<()> {
        host_event(&self.inner, &self.actor, token, Some(&self.actor.name), name, detail)
    }
}

/// The conditional UPDATE; where it changed nothing, the first gate that refuses.
fn claim(
    tx: &mut Tx<'_>,
    redeem: &PreparedRedeem,
    caller: &str,
    claim_token: &str,
) -> Result<Result<(FullRow, Vec<ApprovalGiven>), No>> {
    if let Some(claimed) = tx.claim(redeem, caller, claim_token)? {
        return Ok(Ok(claimed));
    }
    let Some(mut row) = tx.find(&redeem.token, Some(caller))? else { return Ok(Err(unknown_token(&redeem.token))) };
    tx.notice_expiry(&mut row)?;
    if let Some(code) = gates::begin_execute(&row, redeem, tx.now) {
        let no = No::about(&row, row.refusal(code));
        return Ok(Err(match mismatch(&row, redeem, code) {
            Some(detail) => no.detail(detail),
            None => no,
        }));
    }
    check_clock(&row, tx.now)?;
    Err(Error::corrupt("no gate refuses the plan, and it could not be claimed"))
}

/// What was presented instead, for the audit.
fn mismatch(row: &PlanRow, redeem: &PreparedRedeem, code: RefusalCode) -> Option<String> {
    if code != RefusalCode::PlanMismatch {
        return None;
    }
    let tool = (redeem.tool != row.tool).then(|| crate::escape::visible_cut(&redeem.tool, 128));
    let fingerprint = redeem.fingerprint.map(|given| given.to_string()).filter(|given| *given != row.fingerprint);
    Some(serde_json::json!({"tool": tool, "fingerprint": fingerprint}).to_string())
}

/// Refuses to go on under a clock that stands more than 2 s behind the plan's own times.
pub(crate) fn check_clock(row: &PlanRow, now: i64) -> Result<()> {
    let behind_ms = row.newest_time().saturating_sub(now);
    if behind_ms > gates::CLOCK_SLACK_MS { Err(Error::clock_went_back(behind_ms)) } else { Ok(()) }
}

pub(crate) fn read_plan(inner: &Inner, token: &str, caller: Option<&str>) -> Result<Plan> {
    inner.read(|reader| {
        let Some(row) = reader.find(token, caller)? else { return Err(Error::refused(unknown_token(token).refusal)) };
        match reader.full(&row.plan_token)? {
            Some(full) => reader.plan(full),
            None => Err(Error::refused(row.refusal(gates::purged(row.state)))),
        }
    })
}

/// Writes a `host:<name>` row. `caller`: an agent names its own plans alone.
pub(crate) fn host_event(
    inner: &Inner,
    actor: &Actor,
    token: Option<&str>,
    caller: Option<&str>,
    name: &str,
    detail: &str,
) -> Result<()> {
    let event = format!("host:{}", check_name("the host event", name)?);
    check_text("the detail", detail, inner.options.text_max_bytes)?;
    let token = token.map(short);
    inner.write(actor, |tx| {
        let draft = match &token {
            None => Draft { caller: caller.map(str::to_owned), ..Draft::new(&event) },
            Some(token) => match tx.find(token, caller)? {
                Some(row) => Draft::unchanged(&event, &row),
                None => return Ok(Err(unknown_token(token))),
            },
        };
        tx.audit(Draft { detail: Some(detail.to_owned()), ..draft })?;
        Ok(Ok(()))
    })
}
