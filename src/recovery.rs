//! What becomes of claims whose owner is gone (design section 8).
//!
//! The scan never guesses: it asks the host's hook, and what nobody knows is `uncertain`. It never touches the plan of
//! an owner that is alive or that it cannot tell.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::canonical::CanonicalJson;
use crate::claim::{keep_json, keep_text};
use crate::error::Result;
use crate::execute::BoxError;
use crate::gate::Inner;
use crate::lifecycle::{Event, Retry, State};
use crate::liveness::Liveness;
use crate::names::{Actor, PlanToken};
use crate::plan::{Plan, Settled};
use crate::refusal::RefusalCode;
use crate::store::read::{Reader, StuckKey};
use crate::store::rows::PlanRow;
use crate::store::transition::Change;
use crate::store::tx::{No, Tx};
use crate::store::unknown_token;

/// The host's answer to "did the side effect of this plan happen?".
pub(crate) type Hook = Arc<dyn Fn(&Plan) -> Result<Outcome, BoxError> + Send + Sync>;

/// What became of a side effect, as somebody verified it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It happened; the plan is `executed` with this result.
    Done(serde_json::Value),
    /// It did not happen; the plan may run again.
    NotDone,
    /// It did not succeed and must not run again; the plan is `failed`.
    Failed(String),
    /// Nobody knows (yet).
    Unknown,
}

impl Outcome {
    /// It happened, with this result. A value that is no JSON is kept as null.
    #[must_use]
    pub fn done<T: Serialize + ?Sized>(result: &T) -> Self {
        Self::Done(serde_json::to_value(result).unwrap_or(serde_json::Value::Null))
    }
}

/// What a scan did. Tokens stand in the order of the claims, oldest first.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Settled, with the state that each has now.
    pub settled: Vec<(PlanToken, State)>,
    /// Nobody knows: they are `uncertain` and are asked again by the next scan.
    pub uncertain: Vec<PlanToken>,
    /// At work in an instance that lives: untouched.
    pub alive: Vec<PlanToken>,
    /// Nobody can tell from here whether the owner lives: untouched, for an operator.
    pub unknown_owner: Vec<PlanToken>,
    /// Could not be settled now, and why.
    pub errors: Vec<(PlanToken, String)>,
    /// Left over when the scan's time was up.
    pub not_asked: Vec<PlanToken>,
    /// Dead instances that owned nothing and were forgotten.
    pub instances_removed: u64,
}

/// What the owner of a claim means for the verb at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This instance, at work on it.
    OwnAtWork,
    /// This instance, and nobody works on it.
    OwnIdle,
    Other(Liveness),
}

impl Inner {
    /// Who owns that claim. The set of live claims is exact inside a write transaction: claims enter it before they
    /// commit.
    pub(crate) fn owner(&self, reader: &Reader<'_>, token: &str, attempt: u32, owner: Option<&str>) -> Result<Owner> {
        Ok(match owner {
            Some(owner) if owner == self.instance.id => {
                if self.works_on(token, attempt) {
                    Owner::OwnAtWork
                } else {
                    Owner::OwnIdle
                }
            }
            Some(owner) => Owner::Other(self.instance.liveness(reader.instance(owner)?.as_ref())),
            None => Owner::Other(Liveness::Unknown),
        })
    }
}

/// The restart scan.
pub(crate) fn recover(inner: &Inner, actor: &Actor) -> Result<RecoveryReport> {
    let _span = crate::report::span("recover", "");
    let started = Instant::now();
    let mut report = RecoveryReport::default();
    let stuck = inner.read(|reader| reader.stuck_keys())?;
    let mut owners: HashMap<String, Liveness> = HashMap::new();
    for key in stuck {
        let token = PlanToken::from_stored(&key.plan_token);
        match eligible(inner, &key, &mut owners) {
            Ok(Owner::OwnIdle | Owner::Other(Liveness::Dead)) => {}
            Ok(Owner::OwnAtWork | Owner::Other(Liveness::Alive)) => {
                report.alive.push(token);
                continue;
            }
            Ok(Owner::Other(Liveness::Unknown)) => {
                report.unknown_owner.push(token);
                continue;
            }
            Err(error) => {
                report.errors.push((token, error.to_string()));
                continue;
            }
        }
        if inner.options.reconcile.is_some() && started.elapsed() >= inner.options.recover_deadline {
            report.not_asked.push(token);
            continue;
        }
        let left = inner.options.recover_deadline.saturating_sub(started.elapsed());
        match recover_one(inner, actor, &key, left) {
            // Settled by somebody else meanwhile: that one reports it.
            Ok(None) => {}
            Ok(Some(State::Uncertain)) => report.uncertain.push(token),
            Ok(Some(state)) => report.settled.push((token, state)),
            // One bad row never stops the scan.
            Err(error) => report.errors.push((token, error.to_string())),
        }
    }
    report.instances_removed = forget_dead_instances(inner, actor)?;
    Ok(report)
}

/// `uncertain` rows are asked about whoever owned them: nobody works on them.
fn eligible(inner: &Inner, key: &StuckKey, owners: &mut HashMap<String, Liveness>) -> Result<Owner> {
    if !key.executing {
        return Ok(Owner::OwnIdle);
    }
    if let Some(known) = key.owner.as_ref().and_then(|owner| owners.get(owner)) {
        return Ok(Owner::Other(*known));
    }
    let owner = inner.read(|reader| inner.owner(reader, &key.plan_token, key.attempt, key.owner.as_deref()))?;
    if let (Owner::Other(liveness), Some(id)) = (owner, &key.owner) {
        owners.insert(id.clone(), liveness);
    }
    Ok(owner)
}

/// Asks and settles one plan. `None`: it is no longer as it was found.
fn recover_one(inner: &Inner, actor: &Actor, key: &StuckKey, left: Duration) -> Result<Option<State>> {
    let (outcome, trouble) = match &inner.options.reconcile {
        None => (Outcome::Unknown, None),
        Some(hook) => {
            let full = inner.read(|reader| match reader.full(&key.plan_token)? {
                Some(full) if as_found(&full.core, key) => reader.plan(full).map(Some),
                _ => Ok(None),
            })?;
            let Some(plan) = full else { return Ok(None) };
            ask(hook, plan, inner.options.hook_deadline.min(left))
        }
    };
    let mut evidence = Evidence::of(inner, &outcome);
    evidence.error = evidence.error.or(trouble);
    inner.write(actor, |tx| {
        let Some(mut row) = tx.find(&key.plan_token, None)? else { return Ok(Ok(None)) };
        if !as_found(&row, key) {
            return Ok(Ok(None));
        }
        // An adopt may have put it into somebody's hands between the question and this transaction.
        if key.executing
            && inner.owner(tx, &row.plan_token, row.attempt, row.instance_id.as_deref())? == Owner::OwnAtWork
        {
            return Ok(Ok(None));
        }
        settle_row(tx, &mut row, &outcome, &evidence)?;
        Ok(Ok(Some(row.state)))
    })
}

/// Same claim, same owner, same state.
fn as_found(row: &PlanRow, key: &StuckKey) -> bool {
    row.attempt == key.attempt
        && row.instance_id == key.owner
        && row.state == if key.executing { State::Executing } else { State::Uncertain }
}

/// Asks the hook on a thread of its own. Late, panicking and failing all mean unknown; the text says which.
fn ask(hook: &Hook, plan: Plan, deadline: Duration) -> (Outcome, Option<String>) {
    let hook = hook.clone();
    let (answer, wait) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("countersign-reconcile".to_owned()).spawn(move || {
        // Nobody waits any more when the answer is late.
        let _ = answer.send(catch_unwind(AssertUnwindSafe(|| hook(&plan))));
    });
    if let Err(error) = thread {
        return (Outcome::Unknown, Some(format!("the reconcile hook could not be started: {error}")));
    }
    match wait.recv_timeout(deadline) {
        Ok(Ok(Ok(outcome))) => (outcome, None),
        Ok(Ok(Err(error))) => (Outcome::Unknown, Some(format!("the reconcile hook failed: {error}"))),
        Ok(Err(_)) => (Outcome::Unknown, Some("the reconcile hook panicked".to_owned())),
        Err(_) => (Outcome::Unknown, Some(format!("the reconcile hook did not answer within {deadline:?}"))),
    }
}

/// What an outcome leaves in the row.
struct Evidence {
    result: Option<CanonicalJson>,
    error: Option<String>,
}

impl Evidence {
    fn of(inner: &Inner, outcome: &Outcome) -> Self {
        let options = &inner.options;
        match outcome {
            Outcome::Done(result) => Self { result: Some(keep_json(result, options.payload)), error: None },
            Outcome::Failed(error) => Self { result: None, error: Some(keep_text(error, options.text_max_bytes)) },
            Outcome::NotDone | Outcome::Unknown => Self { result: None, error: None },
        }
    }
}

/// Records a verified outcome: done, not-done and failed end the claim. True when something changed.
fn settle_row(tx: &mut Tx<'_>, row: &mut PlanRow, outcome: &Outcome, evidence: &Evidence) -> Result<bool> {
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

/// Removes the rows and lock files of dead instances that own no executing plan.
fn forget_dead_instances(inner: &Inner, actor: &Actor) -> Result<u64> {
    let mut removed = 0;
    for instance in inner.read(|reader| reader.instances())? {
        let id = &instance.instance_id;
        if *id == inner.instance.id || inner.instance.liveness(Some(&instance)) != Liveness::Dead {
            continue;
        }
        if inner.write(actor, |tx| Ok(Ok(tx.delete_instance(id)?)))? {
            inner.instance.remove_lock_of(id);
            removed += 1;
        }
    }
    Ok(removed)
}

/// Asks the hook about one plan and settles it.
pub(crate) fn reconcile(inner: &Inner, actor: &Actor, token: &str) -> Result<Settled> {
    let _span = crate::report::span("reconcile", token);
    let found = inner.write(actor, |tx| {
        let Some(row) = tx.find(token, None)? else { return Ok(Err(unknown_token(token))) };
        if !row.state.is_stuck() {
            return Ok(Err(No::about(&row, row.refusal(RefusalCode::NotExecuting))));
        }
        if inner.options.reconcile.is_none() {
            return Ok(Err(No::about(&row, row.refusal(RefusalCode::NoReconcile))));
        }
        if let Some(no) = refuse_owner(inner, tx, &row, Verb::Reconcile)? {
            return Ok(Err(no));
        }
        let key = StuckKey {
            plan_token: row.plan_token.clone(),
            executing: row.state == State::Executing,
            attempt: row.attempt,
            owner: row.instance_id.clone(),
        };
        Ok(Ok((key, row.state)))
    })?;
    let (key, before) = found;
    match recover_one(inner, actor, &key, inner.options.recover_deadline)? {
        Some(state) => Ok(Settled { state, already: state == before }),
        // Somebody else settled it meanwhile; the plan says what became of it.
        None => crate::agent::read_plan(inner, token, None).map(|plan| Settled { state: plan.state, already: true }),
    }
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
enum Verb {
    Reconcile,
    Settle,
    MarkInterrupted,
}

/// Whether the owner of an executing plan forbids the verb. An owner that lives elsewhere forbids all, without override;
/// this instance's own work forbids all but settle, where the operator answers for it; an owner that nobody can tell
/// forbids all but marking.
fn refuse_owner(inner: &Inner, tx: &Tx<'_>, row: &PlanRow, verb: Verb) -> Result<Option<No>> {
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
        if !rolled_back {
            return Ok(Ok(RestoreReport { already: true, ..RestoreReport::default() }));
        }
        let mut report = RestoreReport::default();
        tx.audit(crate::store::tx::Draft::new("restore_accepted"))?;
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
