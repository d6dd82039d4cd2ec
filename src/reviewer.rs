//! The reviewer's handle: a person (or a trusted process) who decides.

use std::sync::Arc;

use crate::agent::{check_clock, read_plan};
use crate::error::{Error, Result};
use crate::gate::Inner;
use crate::gates::{self, Verdict};
use crate::lifecycle::Event;
use crate::names::{Actor, Channel, PlanToken, check_name, check_text};
use crate::plan::{Decision, Listing, PendingPlan, Plan, short};
use crate::store::rows::PlanRow;
use crate::store::transition::Change;
use crate::store::tx::{Draft, No, Tx};
use crate::store::unknown_token;

/// What a reviewer's page or terminal calls. Cheap to clone.
///
/// A name is whoever holds the handle: authenticating people is the host's work.
#[derive(Clone)]
pub struct Reviewer {
    pub(crate) inner: Arc<Inner>,
    pub(crate) actor: Actor,
}

impl Reviewer {
    pub(crate) fn new(inner: Arc<Inner>, actor: Actor) -> Self {
        Self { inner, actor }
    }

    /// The reviewer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.actor.name
    }

    /// The same handle, recorded under another channel.
    #[must_use]
    pub fn via(mut self, channel: Channel) -> Self {
        self.actor.channel = channel;
        self
    }

    /// The plans that wait, soonest-expiring first, with everything that a card shows.
    ///
    /// # Errors
    /// Storage errors.
    pub fn pending(&self, limit: u32) -> Result<Listing<PendingPlan>> {
        self.inner.read(|reader| reader.pending(limit))
    }

    /// One plan, of any caller, in any state.
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN; after a purge PLAN_USED, PLAN_REJECTED or PLAN_EXPIRED. Storage errors.
    pub fn plan(&self, token: impl AsRef<str>) -> Result<Plan> {
        read_plan(&self.inner, token.as_ref(), None)
    }

    /// One plan with everything that a card shows.
    ///
    /// # Errors
    /// As for [`plan`](Reviewer::plan).
    pub fn card(&self, token: impl AsRef<str>) -> Result<PendingPlan> {
        let token = token.as_ref();
        self.inner.read(|reader| {
            let Some(row) = reader.find(token, None)? else { return Err(Error::refused(unknown_token(token).refusal)) };
            match reader.full(&row.plan_token)? {
                Some(full) => reader.pending_plan(full),
                None => Err(Error::refused(row.refusal(gates::purged(row.state)))),
            }
        })
    }

    /// Approves the plan that carries exactly this seal: the one on the card that the reviewer read.
    ///
    /// The gates, in this order: rejected PLAN_REJECTED; executed or failed PLAN_USED; past its time PLAN_EXPIRED;
    /// another seal APPROVAL_MISMATCH; then, without an event, `already: true` for a second approval by the same
    /// reviewer and for a plan that is approved, executing, uncertain or was never gated; then the caller itself
    /// SELF_APPROVAL.
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, State};
    /// let gate = Gate::ephemeral()?;
    /// let created = gate.agent("pricing-agent")?.create(NewPlan::new("update_prices", &1, Approval::required()))?;
    /// let reviewer = gate.reviewer("ada")?;
    /// let card = &reviewer.pending(10)?.items[0];
    /// let decision = reviewer.approve(&card.plan.plan_token, &card.plan.seal)?;
    /// assert_eq!(decision.state, State::Approved);
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Refused, as above. `clock_went_back`. Busy and storage errors.
    pub fn approve(&self, token: impl AsRef<str>, seal: impl AsRef<str>) -> Result<Decision> {
        let (token, seal) = (short(token.as_ref()), seal.as_ref());
        let _span = crate::report::span("approve", &token);
        self.inner.write(&self.actor, |tx| {
            let Some(mut row) = tx.find(&token, None)? else { return Ok(Err(unknown_token(&token))) };
            tx.notice_expiry(&mut row)?;
            let voted = tx.has_voted(&row, &self.actor.name)?;
            match gates::approve(&row, seal, &self.actor.name, voted, tx.now) {
                Verdict::Refuse(code) => return Ok(Err(No::about(&row, row.refusal(code)))),
                Verdict::Already => return Ok(Ok(decision(&row, true))),
                Verdict::Go => {}
            }
            check_clock(&row, tx.now)?;
            tx.insert_approval(&row)?;
            row.approvals = row.approvals.saturating_add(1);
            let complete = row.quorum_complete();
            let event = if complete { Event::Approved } else { Event::ApprovalRecorded };
            let change = Change { decided: complete, detail: Some(row.seal.clone()), ..Change::default() };
            tx.transition(&mut row, event, change)?;
            Ok(Ok(decision(&row, false)))
        })
    }

    /// Rejects a plan that nobody has claimed: it can never run. Every other unfinished plan of the same tool and
    /// payload has to be approved (again), and so has each later one, until
    /// [`lift_rejection`](Reviewer::lift_rejection).
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, Redeem};
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let created = agent.create(NewPlan::new("update_prices", &1, Approval::NotNeeded))?;
    /// gate.reviewer("ada")?.reject(&created.plan_token, Some("wrong table"))?;
    /// let error = agent.begin_execute(Redeem::stored(&created.plan_token, "update_prices")).unwrap_err();
    /// assert_eq!(error.code(), "PLAN_REJECTED");
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Invalid input for a reason that is too long. Refused: UNKNOWN_TOKEN, PLAN_USED, ALREADY_EXECUTING, PLAN_EXPIRED. A
    /// second reject is `already: true`; the first reason stays. Busy and storage errors.
    pub fn reject(&self, token: impl AsRef<str>, reason: Option<&str>) -> Result<Decision> {
        self.reject_any(token.as_ref(), None, reason)
    }

    /// Rejects the plan that carries exactly this seal.
    ///
    /// # Errors
    /// As for [`reject`](Reviewer::reject), and refused APPROVAL_MISMATCH for another seal.
    pub fn reject_sealed(
        &self,
        token: impl AsRef<str>,
        seal: impl AsRef<str>,
        reason: Option<&str>,
    ) -> Result<Decision> {
        self.reject_any(token.as_ref(), Some(seal.as_ref()), reason)
    }

    fn reject_any(&self, token: &str, seal: Option<&str>, reason: Option<&str>) -> Result<Decision> {
        let token = short(token);
        let _span = crate::report::span("reject", &token);
        let reason = reason.filter(|reason| !reason.is_empty());
        check_text("the reason", reason.unwrap_or(""), self.inner.options.text_max_bytes)?;
        self.inner.write(&self.actor, |tx| {
            let Some(mut row) = tx.find(&token, None)? else { return Ok(Err(unknown_token(&token))) };
            tx.notice_expiry(&mut row)?;
            match gates::reject(&row, seal, tx.now) {
                Verdict::Refuse(code) => return Ok(Err(No::about(&row, row.refusal(code)))),
                Verdict::Already => return Ok(Ok(decision(&row, true))),
                Verdict::Go => {}
            }
            let change = Change { decided: true, reject_reason: reason, ..Change::default() };
            tx.transition(&mut row, Event::Rejected, change)?;
            regate_twins(tx, &row)?;
            Ok(Ok(decision(&row, false)))
        })
    }

    /// Ends the memory of a "no": later plans of this tool and payload are gated only when the host asks for it. The
    /// rejected plan stays rejected, and plans that were gated by it stay gated. Answers true when there was nothing to
    /// lift.
    ///
    /// # Errors
    /// Invalid input for a tool, fingerprint or reason that cannot be one. Busy and storage errors.
    pub fn lift_rejection(&self, tool: &str, fingerprint: impl AsRef<str>, reason: &str) -> Result<bool> {
        let _span = crate::report::span("lift_rejection", "");
        let tool = check_name("the tool", tool)?;
        let fingerprint = fingerprint.as_ref();
        if fingerprint.parse::<crate::Fingerprint>().is_err() {
            return Err(Error::invalid("this is no fingerprint: give the 64 lower-case hex digits of the payload's"));
        }
        check_text("the reason", reason, self.inner.options.text_max_bytes)?;
        self.inner.write(&self.actor, |tx| {
            let lifted = tx.lift(&tool, fingerprint)?;
            if lifted == 0 {
                return Ok(Ok(true));
            }
            tx.audit(Draft {
                tool: Some(tool.clone()),
                fingerprint: Some(fingerprint.to_owned()),
                reason: (!reason.is_empty()).then(|| reason.to_owned()),
                detail: Some(format!("{{\"tombstones\":{lifted}}}")),
                ..Draft::new("rejection_lifted")
            })?;
            Ok(Ok(false))
        })
    }
}

/// Every other unfinished plan of the same tool and payload has to be approved (again).
fn regate_twins(tx: &mut Tx<'_>, rejected: &PlanRow) -> Result<()> {
    for token in tx.twins(rejected)? {
        let Some(mut twin) = tx.find(&token, None)? else { continue };
        let dropped = tx.delete_approvals(&token)?;
        let stays = twin.gated && dropped == 0;
        if stays && twin.state != crate::lifecycle::State::Approved {
            continue;
        }
        twin.approvals = 0;
        tx.transition(&mut twin, Event::Regated, Change { gate: true, ..Change::default() })?;
    }
    Ok(())
}

fn decision(row: &PlanRow, already: bool) -> Decision {
    Decision {
        plan_token: PlanToken::from_stored(&row.plan_token),
        state: row.state,
        already,
        approvals: row.approvals,
        approvals_needed: row.approvals_needed,
    }
}
