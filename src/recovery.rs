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

use crate::claim::keep_text;
use crate::error::Result;
use crate::execute::BoxError;
use crate::gate::Inner;
use crate::lifecycle::State;
use crate::liveness::Liveness;
use crate::names::{Actor, PlanToken};
use crate::plan::{Plan, Settled};
use crate::refusal::RefusalCode;
use crate::settle::{Evidence, Verb, refuse_owner, settle_row};
use crate::store::read::{Reader, StuckKey};
use crate::store::rows::PlanRow;
use crate::store::tx::No;
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
    /// What went wrong, plan by plan: it could not be settled now; or the hook failed, and then the plan stands in
    /// `uncertain` as well.
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
    inner.standing()?;
    let started = Instant::now();
    let mut report = RecoveryReport::default();
    let stuck = inner.read(|reader| reader.stuck_keys())?;
    let mut owners: HashMap<String, Liveness> = HashMap::new();
    for key in stuck {
        let key = match key {
            Ok(key) => key,
            // One bad row never stops the scan.
            Err((token, error)) => {
                report.errors.push((PlanToken::from_stored(&token), error.to_string()));
                continue;
            }
        };
        let token = PlanToken::from_stored(&key.plan_token);
        match eligible(inner, &key, &mut owners) {
            Ok(Owner::OwnIdle | Owner::Other(Liveness::Dead)) => {}
            Ok(Owner::OwnAtWork | Owner::Other(Liveness::Alive)) => {
                report.alive.push(token);
                continue;
            }
            Ok(Owner::Other(Liveness::Unknown)) => {
                // Another scan may have settled the plan since the list was read, and forgotten the owner.
                match still_as_found(inner, &key) {
                    Ok(true) => report.unknown_owner.push(token),
                    Ok(false) => {}
                    Err(error) => report.errors.push((token, error.to_string())),
                }
                continue;
            }
            Err(error) => {
                report.errors.push((token, error.to_string()));
                continue;
            }
        }
        let left = inner.options.recover_deadline.saturating_sub(started.elapsed());
        if left.is_zero() {
            report.not_asked.push(token);
            continue;
        }
        match recover_one(inner, actor, &key, left) {
            // Settled by somebody else meanwhile: that one reports it.
            Ok(None) => {}
            Ok(Some(Recovered { state, trouble })) => {
                if let Some(trouble) = trouble {
                    report.errors.push((token.clone(), trouble));
                }
                match state {
                    State::Uncertain => report.uncertain.push(token),
                    state => report.settled.push((token, state)),
                }
            }
            Err(error) => report.errors.push((token, error.to_string())),
        }
    }
    report.instances_removed = forget_dead_instances(inner, actor);
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

/// What the scan did with one plan.
struct Recovered {
    state: State,
    /// Why the hook gave no answer.
    trouble: Option<String>,
}

/// Asks and settles one plan. `None`: it is no longer as it was found.
fn recover_one(inner: &Inner, actor: &Actor, key: &StuckKey, left: Duration) -> Result<Option<Recovered>> {
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
    let trouble = trouble.map(|text| keep_text(&text, inner.options.text_max_bytes));
    let mut evidence = Evidence::of(inner, &outcome);
    evidence.error = evidence.error.or_else(|| trouble.clone());
    inner.write(actor, |tx| {
        let Some(mut row) = tx.find(&key.plan_token, None)? else { return Ok(Ok(None)) };
        // Another scan that had no answer may have made it uncertain meanwhile: this answer still counts.
        let made_uncertain = key.executing && row.state == State::Uncertain && row.attempt == key.attempt;
        if !as_found(&row, key) && !made_uncertain {
            return Ok(Ok(None));
        }
        // An adopt may have put it into somebody's hands between the question and this transaction.
        if row.state == State::Executing
            && inner.owner(tx, &row.plan_token, row.attempt, row.instance_id.as_deref())? == Owner::OwnAtWork
        {
            return Ok(Ok(None));
        }
        settle_row(tx, &mut row, &outcome, &evidence)?;
        Ok(Ok(Some(Recovered { state: row.state, trouble: trouble.clone() })))
    })
}

fn still_as_found(inner: &Inner, key: &StuckKey) -> Result<bool> {
    inner.read(|reader| Ok(reader.find(&key.plan_token, None)?.is_some_and(|row| as_found(&row, key))))
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

/// Removes the rows and lock files of dead instances that own no executing plan. Best effort: the report of what was
/// settled is worth more, and the next scan tries again.
fn forget_dead_instances(inner: &Inner, actor: &Actor) -> u64 {
    let mut removed = 0;
    let instances = match inner.read(|reader| reader.instances()) {
        Ok(instances) => instances,
        Err(error) => {
            crate::report::problem(&format!("the list of instances cannot be read: {error}"));
            return 0;
        }
    };
    for instance in instances {
        let id = &instance.instance_id;
        if *id == inner.instance.id || inner.instance.liveness(Some(&instance)) != Liveness::Dead {
            continue;
        }
        match inner.write(actor, |tx| Ok(Ok(tx.delete_instance(id)?))) {
            Ok(true) => {
                inner.instance.remove_lock_of(id);
                removed += 1;
            }
            Ok(false) => {}
            Err(error) => {
                crate::report::problem(&format!("a dead instance cannot be forgotten now: {error}"));
                return removed;
            }
        }
    }
    removed
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
        Some(Recovered { state, .. }) => Ok(Settled { state, already: state == before }),
        // Somebody else settled it meanwhile; the plan says what became of it.
        None => crate::agent::read_plan(inner, token, None).map(|plan| Settled { state: plan.state, already: true }),
    }
}
