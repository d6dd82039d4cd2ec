//! The only writer of `plans.state`.
//!
//! Three shapes of one thing: a plan begins ([`Tx::insert_plan`]), a plan is claimed ([`Tx::claim`]), and everything
//! else ([`Tx::transition`]). Each writes the row, its audit row and, for a terminal state, its tombstone in the
//! transaction that the caller holds open.

use rusqlite::named_params;

use super::queries as q;
use super::rows::{FullRow, PlanRow};
use super::tx::{Draft, Tx};
use crate::canonical::CanonicalJson;
use crate::error::{Error, Result};
use crate::failpoint::hit;
use crate::lifecycle::{self, Event, State};
use crate::plan::{ApprovalGiven, PreparedRedeem};

/// What a transition changes beside the state. The default changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Change<'a> {
    /// Becomes gated.
    pub(crate) gate: bool,
    /// A decision was completed now.
    pub(crate) decided: bool,
    /// The claim ends: its token is forgotten.
    pub(crate) clear_claim: bool,
    /// The claim's new owner.
    pub(crate) owner: Option<&'a str>,
    /// What the side effect answered.
    pub(crate) result: Option<&'a CanonicalJson>,
    /// What went wrong.
    pub(crate) error: Option<&'a str>,
    /// Why a reviewer said no.
    pub(crate) reject_reason: Option<&'a str>,
    /// The audit row's detail.
    pub(crate) detail: Option<String>,
    /// Claim to confirm, in microseconds.
    pub(crate) duration_us: Option<i64>,
}

/// A plan to be written.
pub(crate) struct NewRow<'a> {
    pub(crate) row: &'a PlanRow,
    pub(crate) payload: &'a CanonicalJson,
    pub(crate) extra: Option<&'a CanonicalJson>,
}

impl Tx<'_> {
    /// A plan begins.
    pub(crate) fn insert_plan(&mut self, new: &NewRow<'_>) -> Result<()> {
        let row = new.row;
        debug_assert_eq!(row.state, lifecycle::first(row.gated));
        self.insert(
            q::PLAN_INSERT,
            named_params! {
                ":plan_token": row.plan_token, ":tool": row.tool, ":caller": row.caller, ":state": row.state.as_str(),
                ":gated": row.gated, ":approvals_needed": row.approvals_needed, ":fingerprint": row.fingerprint,
                ":seal": row.seal, ":created_at": row.created_at, ":expires_at": row.expires_at,
                ":idempotency_key": row.idempotency_key, ":preview_count": row.preview_count,
                ":data_digest": row.data_digest, ":reason": row.reason, ":payload": new.payload.as_str(),
                ":extra": new.extra.map(CanonicalJson::as_str),
            },
        )?;
        hit("after_update");
        self.audit(Draft {
            from_state: None,
            reason: row.reason.clone(),
            detail: Some(row.seal.clone()),
            preview_count: row.preview_count,
            ..Draft::unchanged(row.state.as_str(), row)
        })?;
        hit("after_audit");
        Ok(())
    }

    /// The claim: one conditional UPDATE that holds every gate. `None`: some gate refused; nothing changed.
    ///
    /// # Errors
    /// `corrupt` when the stored payload or the row does not match its fingerprint or seal: the caller's transaction
    /// rolls back, and nothing runs.
    pub(crate) fn claim(
        &mut self,
        redeem: &PreparedRedeem,
        caller: &str,
        claim_token: &str,
    ) -> Result<Option<(FullRow, Vec<ApprovalGiven>)>> {
        let fingerprint = redeem.fingerprint.map(|fingerprint| fingerprint.to_string());
        let params = named_params! {
            ":claim_token": claim_token, ":instance_id": self.instance_id, ":now": self.now,
            ":plan_token": redeem.token, ":caller": caller, ":tool": redeem.tool, ":fingerprint": fingerprint,
            ":data_digest": redeem.data_digest,
        };
        match self.run(q::PLAN_CLAIM, params)? {
            0 => return Ok(None),
            1 => hit("after_update"),
            changed => return Err(Error::corrupt(format!("a claim of one plan changed {changed} rows"))),
        }
        // Read back under the same lock. RETURNING would save a statement and cost more: SQLite keeps its rows in a table.
        let params = named_params! {":plan_token": redeem.token};
        let full = self.one(q::PLAN_UNCOUNTED, params, FullRow::read)?.transpose()?;
        let mut full = full.ok_or_else(|| Error::corrupt("a claimed plan has no row"))?;
        let approvals = if full.core.gated { self.approvals(&redeem.token, &full.core.seal)? } else { Vec::new() };
        full.core.approvals = u32::try_from(approvals.len()).unwrap_or(u32::MAX);
        check_integrity(&full)?;
        // A claim keeps gated: an approved plan was claimed exactly when it is gated.
        let from = if full.core.gated { State::Approved } else { State::Previewed };
        self.audit(Draft { from_state: Some(from), ..Draft::unchanged(Event::Executing.as_str(), &full.core) })?;
        hit("after_audit");
        Ok(Some((full, approvals)))
    }

    /// Every other transition. `row` is as it was read in this transaction, and becomes what is stored.
    pub(crate) fn transition(&mut self, row: &mut PlanRow, event: Event, change: Change<'_>) -> Result<()> {
        let from = row.state;
        let to = lifecycle::next(from, event).map_err(|illegal| Error::corrupt(illegal.to_string()))?;
        row.state = to;
        row.gated |= change.gate;
        if change.decided {
            row.decided_at = Some(self.now);
        }
        if to == State::AwaitingApproval {
            row.decided_at = None;
        }
        if to.is_terminal() {
            row.settled_at = Some(self.now);
        }
        if change.clear_claim {
            row.claim_token = None;
        }
        if let Some(owner) = change.owner {
            row.instance_id = Some(owner.to_owned());
        }
        if let Some(error) = change.error {
            row.error = Some(error.to_owned());
        }
        if let Some(reason) = change.reject_reason {
            row.reject_reason = Some(reason.to_owned());
        }
        let changed = self.run(
            if change.gate { q::PLAN_TRANSITION_GATED } else { q::PLAN_TRANSITION },
            named_params! {
                ":to_state": to.as_str(), ":decided_at": row.decided_at,
                ":settled_at": row.settled_at, ":claim_token": row.claim_token, ":instance_id": row.instance_id,
                ":reject_reason": row.reject_reason, ":error": row.error,
                ":result": change.result.map(CanonicalJson::as_str), ":plan_token": row.plan_token,
                ":from_state": from.as_str(), ":attempt": row.attempt,
            },
        )?;
        if changed != 1 {
            return Err(Error::corrupt(format!("a transition of one plan changed {changed} rows")));
        }
        hit("after_update");
        self.audit(Draft {
            from_state: Some(from),
            code: event.code(),
            reason: change.reject_reason.map(str::to_owned),
            detail: change.detail,
            duration_us: change.duration_us,
            ..Draft::unchanged(event.as_str(), row)
        })?;
        hit("after_audit");
        if to.is_terminal() {
            self.bury(row)?;
        }
        Ok(())
    }

    /// The lasting memory of a plan that can never run (again).
    fn bury(&mut self, row: &PlanRow) -> Result<()> {
        // An earlier error is no reason of this end.
        let reason = match row.state {
            State::Rejected => row.reject_reason.as_deref(),
            State::Failed => row.error.as_deref(),
            _ => None,
        };
        self.insert(
            q::TOMBSTONE_INSERT,
            named_params! {
                ":plan_token": row.plan_token, ":kind": row.state.as_str(), ":caller": row.caller, ":tool": row.tool,
                ":idempotency_key": row.idempotency_key, ":fingerprint": row.fingerprint, ":attempt": row.attempt,
                ":reason": reason, ":actor": self.actor.name, ":at": self.now,
            },
        )
    }

    /// Notices that the plan's time is over, once.
    pub(crate) fn notice_expiry(&mut self, row: &mut PlanRow) -> Result<()> {
        if row.is_overdue(self.now) {
            self.transition(row, Event::Expired, Change::default())?;
        }
        Ok(())
    }
}

/// What is stored is what runs, and what was approved: both are recomputed from the row before the claim commits.
pub(crate) fn check_integrity(full: &FullRow) -> Result<()> {
    let short = full.core.plan_token.get(..8).unwrap_or("");
    if full.payload.fingerprint().to_string() != full.core.fingerprint {
        return Err(Error::corrupt(format!(
            "the payload of plan {short}… does not match its fingerprint; it was not run"
        )));
    }
    if full.core.seal_fields(full.extra.as_ref()).seal().as_str() != full.core.seal {
        return Err(Error::corrupt(format!("plan {short}… does not match its seal; it was not run")));
    }
    Ok(())
}
