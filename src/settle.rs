//! What an operator records about a claimed plan, and how an outcome changes its row (design section 8).

use crate::canonical::CanonicalJson;
use crate::claim::{keep_json, keep_text};
use crate::error::Result;
use crate::gate::Inner;
use crate::lifecycle::{Event, Retry, State};
use crate::liveness::Liveness;
use crate::names::Actor;
use crate::plan::Settled;
use crate::recovery::{Outcome, Owner};
use crate::refusal::RefusalCode;
use crate::store::rows::PlanRow;
use crate::store::transition::Change;
use crate::store::tx::{Draft, No, Tx};
use crate::store::unknown_token;

/// What an outcome leaves in the row.
pub(crate) struct Evidence {
    result: Option<CanonicalJson>,
    pub(crate) error: Option<String>,
}

impl Evidence {
    pub(crate) fn of(inner: &Inner, outcome: &Outcome) -> Self {
        let options = &inner.options;
        match outcome {
            Outcome::Done(result) => Self { result: Some(keep_json(result, options.payload)), error: None },
            Outcome::Failed(error) => Self { result: None, error: Some(keep_text(error, options.text_max_bytes)) },
            Outcome::NotDone | Outcome::Unknown => Self { result: None, error: None },
        }
    }
}

/// Records a verified outcome: done, not-done and failed end the claim. True when something changed.
pub(crate) fn settle_row(tx: &mut Tx<'_>, row: &mut PlanRow, outcome: &Outcome, evidence: &Evidence) -> Result<bool> {
    let event = match outcome {
        Outcome::Done(_) => Event::Executed,
        Outcome::NotDone => Event::NotApplied(Retry::of(row.gated, row.quorum_complete())),
        Outcome::Failed(_) => Event::SettledFailed,
        Outcome::Unknown if row.state == State::Uncertain => return Ok(false),
        Outcome::Unknown => Event::Uncertain,
    };
    let change = Change {
        clear_claim: *outcome != Outcome::Unknown,
        result: evidence.result.as_ref(),
        error: evidence.error.as_deref(),
        detail: evidence.error.clone(),
        ..Change::default()
    };
    tx.transition(row, event, change)?;
    Ok(true)
}

/// Records what an operator verified.
pub(crate) fn settle(inner: &Inner, actor: &Actor, token: &str, outcome: &Outcome) -> Result<Settled> {
    let _span = crate::report::span("settle", token);
    let evidence = Evidence::of(inner, outcome);
    inner.write(actor, |tx| {
        let Some(mut row) = tx.find(token, None)? else { return Ok(Err(unknown_token(token))) };
        if !row.state.is_stuck() {
            return Ok(Err(No::about(&row, row.refusal(RefusalCode::NotExecuting))));
        }
        if let Some(no) = refuse_owner(inner, tx, &row, Verb::Settle)? {
            return Ok(Err(no));
        }
        let changed = settle_row(tx, &mut row, outcome, &evidence)?;
        Ok(Ok(Settled { state: row.state, already: !changed }))
    })
}

/// Turns the claim of an owner that is gone, or that nobody can tell, into `uncertain`.
pub(crate) fn mark_interrupted(inner: &Inner, actor: &Actor, token: &str, attempt: u32) -> Result<Settled> {
    let _span = crate::report::span("mark_interrupted_as_uncertain", token);
    inner.write(actor, |tx| {
        let Some(mut row) = tx.find(token, None)? else { return Ok(Err(unknown_token(token))) };
        if !row.state.is_stuck() {
            return Ok(Err(No::about(&row, row.refusal(RefusalCode::NotExecuting))));
        }
        if row.attempt != attempt {
            return Ok(Err(No::about(&row, row.refusal(RefusalCode::StaleClaim))));
        }
        if row.state == State::Uncertain {
            return Ok(Ok(Settled { state: row.state, already: true }));
        }
        if let Some(no) = refuse_owner(inner, tx, &row, Verb::MarkInterrupted)? {
            return Ok(Err(no));
        }
        tx.transition(&mut row, Event::Uncertain, Change::default())?;
        Ok(Ok(Settled { state: row.state, already: false }))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Reconcile,
    Settle,
    MarkInterrupted,
}

/// Whether the owner of an executing plan forbids the verb. An owner that lives elsewhere forbids all, without override;
/// this instance's own work forbids all but settle, where the operator answers for it; an owner that nobody can tell
/// forbids all but marking.
pub(crate) fn refuse_owner(inner: &Inner, tx: &Tx<'_>, row: &PlanRow, verb: Verb) -> Result<Option<No>> {
    if row.state != State::Executing {
        return Ok(None);
    }
    let owner = inner.owner(tx, &row.plan_token, row.attempt, row.instance_id.as_deref())?;
    let message = match owner {
        Owner::OwnIdle | Owner::Other(Liveness::Dead) => return Ok(None),
        Owner::OwnAtWork if verb == Verb::Settle => return Ok(None),
        Owner::Other(Liveness::Unknown) if verb == Verb::MarkInterrupted => return Ok(None),
        Owner::OwnAtWork => "this host is running the plan right now",
        Owner::Other(Liveness::Alive) => "the host that runs the plan is alive",
        Owner::Other(Liveness::Unknown) => {
            "nobody can tell from here whether the host that runs the plan is alive: make sure that it is gone, then mark the plan interrupted"
        }
    };
    let refusal = row.refusal(RefusalCode::AlreadyExecuting).with_message(message);
    Ok(Some(No::about(row, refusal)))
}

/// An operator accepts that the file was put back to an earlier state: what was open expires, what was claimed is
/// uncertain.
pub(crate) fn accept_restore(inner: &Inner, actor: &Actor) -> Result<RestoreReport> {
    let _span = crate::report::span("accept_restore", "");
    inner.usable()?;
    let answer = inner.store.write_accepting(actor, |tx, rolled_back| {
        inner.usable()?;
        if !rolled_back {
            return Ok(Ok(RestoreReport { already: true, ..RestoreReport::default() }));
        }
        let mut report = RestoreReport::default();
        // The file that was put back may know nothing of this instance, and its claims would have no owner.
        if let Some(row) = inner.instance.own_row() {
            tx.insert_instance(&row)?;
        }
        tx.audit(Draft::new("restore_accepted"))?;
        for state in [State::Previewed, State::AwaitingApproval, State::Approved, State::Executing] {
            for mut row in tx.in_state(state)? {
                if state == State::Executing {
                    tx.transition(&mut row, Event::Uncertain, Change::default())?;
                    report.uncertain += 1;
                } else {
                    tx.transition(&mut row, Event::Expired, Change::default())?;
                    report.expired += 1;
                }
            }
        }
        Ok(Ok(report))
    });
    inner.store.deliver();
    answer
}

/// What accepting a restore changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Open plans that expired.
    pub expired: u64,
    /// Executing plans that became uncertain.
    pub uncertain: u64,
    /// True when nothing had been put back: nothing changed.
    pub already: bool,
}
