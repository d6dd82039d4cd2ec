//! The operator's handle: recovery, settlement, housekeeping, and the audit.

use std::cell::RefCell;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::agent::{host_event, read_plan};
use crate::audit::{AuditEvent, AuditQuery, Head};
use crate::clock::utc;
use crate::error::{Error, Result};
use crate::gate::Inner;
use crate::lifecycle::State;
use crate::liveness::Liveness;
use crate::names::{Actor, Channel};
use crate::plan::{Listing, Plan, Settled, short};
use crate::recovery::{self, Outcome, Owner, RecoveryReport};
use crate::settle::{self, RestoreReport};
use crate::store::read::Reader;
use crate::store::{unknown_token, verify};

pub use crate::store::verify::{Difference, VerifyReport};

/// What whoever recovers, settles, sweeps and audits calls. Cheap to clone.
#[derive(Clone)]
pub struct Operator {
    pub(crate) inner: Arc<Inner>,
    pub(crate) actor: Actor,
}

impl Operator {
    pub(crate) fn new(inner: Arc<Inner>, actor: Actor) -> Self {
        Self { inner, actor }
    }

    /// The operator's name.
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

    /// One plan, of any caller, in any state.
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN; after a purge PLAN_USED, PLAN_REJECTED or PLAN_EXPIRED. Storage errors.
    pub fn plan(&self, token: impl AsRef<str>) -> Result<Plan> {
        read_plan(&self.inner, token.as_ref(), None)
    }

    /// Claimed plans that nobody has settled, `executing` and `uncertain`, oldest claim first, also past their time.
    ///
    /// # Errors
    /// Storage errors.
    pub fn executing(&self, limit: u32) -> Result<Listing<StuckPlan>> {
        self.inner.read(|reader| {
            let (plans, total) = reader.stuck(limit)?;
            let items = plans.into_iter().map(|plan| self.stuck(reader, plan)).collect::<Result<_>>()?;
            Ok(Listing { items, total })
        })
    }

    fn stuck(&self, reader: &Reader<'_>, plan: Plan) -> Result<StuckPlan> {
        let id = plan.instance_id.as_deref();
        let owner = match self.inner.owner(reader, plan.plan_token.as_str(), plan.attempt, id)? {
            Owner::OwnAtWork | Owner::OwnIdle => Liveness::Alive,
            Owner::Other(liveness) => liveness,
        };
        let known = match id {
            Some(id) => reader.instance(id)?,
            None => None,
        };
        Ok(StuckPlan {
            owner,
            host_name: known.as_ref().map(|known| known.host_name.clone()),
            pid: known.as_ref().map(|known| known.pid),
            plan,
        })
    }

    /// The restart scan: safe at every start of every process. It takes plans whose owner is dead (or that this instance
    /// claimed and dropped), and `uncertain` ones, asks the reconcile hook about each, and settles it in a transaction of
    /// its own. Without a hook it marks the claims of dead owners `uncertain`. Plans of an owner that is alive, or that
    /// nobody can tell, are reported and never touched, at whatever age.
    ///
    /// ```
    /// # let gate = countersign::Gate::ephemeral()?;
    /// let report = gate.operator("startup")?.recover()?;
    /// assert!(report.settled.is_empty());
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors of the scan itself; the trouble of a single plan stands in the report.
    pub fn recover(&self) -> Result<RecoveryReport> {
        recovery::recover(&self.inner, &self.actor)
    }

    /// Asks the reconcile hook about one plan and settles it by the answer.
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN; NOT_EXECUTING; NO_RECONCILE without a hook; ALREADY_EXECUTING while its owner is alive (this
    /// instance at work on it included) or cannot be told. Busy and storage errors.
    pub fn reconcile(&self, token: impl AsRef<str>) -> Result<Settled> {
        recovery::reconcile(&self.inner, &self.actor, &short(token.as_ref()))
    }

    /// Records what the operator verified of a claimed plan: done, not-done, failed for ever, or still unknown.
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, Outcome, Redeem, State};
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let created = agent.create(NewPlan::new("update_prices", &1, Approval::NotNeeded))?;
    /// let claim = agent.begin_execute(Redeem::stored(&created.plan_token, "update_prices"))?;
    /// drop(claim); // the host lost it
    /// let settled = gate.operator("olga")?.settle(&created.plan_token, &Outcome::done(&"seen in the ledger"))?;
    /// assert_eq!(settled.state, State::Executed);
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN; NOT_EXECUTING; ALREADY_EXECUTING while its owner is alive elsewhere, without override, or
    /// cannot be told ([`mark_interrupted_as_uncertain`](Operator::mark_interrupted_as_uncertain) first). Busy and
    /// storage errors.
    pub fn settle(&self, token: impl AsRef<str>, outcome: &Outcome) -> Result<Settled> {
        settle::settle(&self.inner, &self.actor, &short(token.as_ref()), outcome)
    }

    /// Marks the claim `attempt` of a plan `uncertain`, when its owner is gone or cannot be told: the operator has made
    /// sure that it no longer runs.
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN; NOT_EXECUTING; STALE_CLAIM for another attempt; ALREADY_EXECUTING while its owner is alive
    /// (this instance at work on it included). Busy and storage errors.
    pub fn mark_interrupted_as_uncertain(&self, token: impl AsRef<str>, attempt: u32) -> Result<Settled> {
        settle::mark_interrupted(&self.inner, &self.actor, &short(token.as_ref()), attempt)
    }

    /// Accepts that the file was put back to an earlier state (a restored backup): every open plan expires and every
    /// executing one becomes uncertain, in one transaction. Other open gates stay refused until they are opened again.
    ///
    /// # Errors
    /// Busy and storage errors.
    pub fn accept_restore(&self) -> Result<RestoreReport> {
        settle::accept_restore(&self.inner, &self.actor)
    }

    /// A plan's audit rows, oldest first; also after a purge.
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN. Storage errors.
    pub fn history(&self, token: impl AsRef<str>) -> Result<Vec<AuditEvent>> {
        let token = token.as_ref();
        self.inner.read(|reader| match reader.find(token, None)? {
            Some(_) => reader.history(token),
            None => Err(Error::refused(unknown_token(token).refusal)),
        })
    }

    /// The audit of the whole store.
    #[must_use]
    pub fn audit(&self) -> Audit<'_> {
        Audit { inner: &self.inner }
    }

    /// Writes the host's own event, `host:<name>`, about a plan or about none.
    ///
    /// # Errors
    /// Invalid input for a name or a detail that cannot be stored. Refused: UNKNOWN_TOKEN. Storage errors.
    pub fn record_host_event(&self, token: Option<&str>, name: &str, detail: &str) -> Result<()> {
        host_event(&self.inner, &self.actor, token, None, name, detail)
    }

    /// How the store stands.
    ///
    /// # Errors
    /// Storage errors; `moved` when the file is no longer there.
    pub fn health(&self) -> Result<Health> {
        let file = self.inner.store.pools().stat()?;
        let wal_bytes = self.inner.store.pools().wal_bytes()?;
        self.inner.read(|reader| {
            let mut health = Health {
                sqlite_version: crate::store::sqlite_version().to_owned(),
                schema_version: reader.pragma("user_version")?.parse().unwrap_or(0),
                journal_mode: reader.pragma("journal_mode")?,
                synchronous: reader.pragma("synchronous")?,
                file_bytes: file.size,
                wal_bytes,
                previewed: 0,
                awaiting_approval: 0,
                approved: 0,
                executing: 0,
                uncertain: 0,
                instances: reader.instances()?.len() as u64,
                oldest_executing: reader.oldest_executing()?.map(utc),
                head: reader.audit_head()?,
            };
            for (state, count) in reader.live_counts()? {
                match State::parse(&state) {
                    Some(State::Previewed) => health.previewed = count,
                    Some(State::AwaitingApproval) => health.awaiting_approval = count,
                    Some(State::Approved) => health.approved = count,
                    Some(State::Executing) => health.executing = count,
                    Some(State::Uncertain) => health.uncertain = count,
                    _ => {}
                }
            }
            Ok(health)
        })
    }
}

/// A claimed plan that nobody has settled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckPlan {
    /// The plan.
    pub plan: Plan,
    /// Whether the instance that claimed it lives.
    pub owner: Liveness,
    /// The host name of that instance, when it is known.
    pub host_name: Option<String>,
    /// The process id of that instance, when it is known.
    pub pid: Option<i64>,
}

/// How the store stands.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The SQLite that is linked.
    pub sqlite_version: String,
    /// The schema's number.
    pub schema_version: u32,
    /// `wal`.
    pub journal_mode: String,
    /// `2`: FULL.
    pub synchronous: String,
    /// The main file's size.
    pub file_bytes: u64,
    /// The write-ahead log's size; it shrinks when no reader is pinned.
    pub wal_bytes: u64,
    /// Plans in that state, those past their time and not yet swept included.
    pub previewed: u64,
    /// Plans in that state, those past their time and not yet swept included.
    pub awaiting_approval: u64,
    /// Plans in that state, those past their time and not yet swept included.
    pub approved: u64,
    /// Plans in that state.
    pub executing: u64,
    /// Plans in that state.
    pub uncertain: u64,
    /// Instances that registered and were not forgotten.
    pub instances: u64,
    /// When the oldest open claim was made.
    pub oldest_executing: Option<DateTime<Utc>>,
    /// Where the audit stands.
    pub head: Head,
}

/// The audit of the whole store.
pub struct Audit<'a> {
    inner: &'a Inner,
}

impl Audit<'_> {
    /// The rows for which all conditions hold.
    ///
    /// # Errors
    /// Storage errors.
    pub fn query(&self, query: &AuditQuery) -> Result<Vec<AuditEvent>> {
        self.inner.read(|reader| reader.audit_query(query))
    }

    /// Where the audit stands now. Keep it outside the file, for a later [`verify`](Audit::verify).
    ///
    /// # Errors
    /// Storage errors.
    pub fn head(&self) -> Result<Head> {
        self.inner.read(|reader| reader.audit_head())
    }

    /// Walks the whole chain, replays it through the transition table, and compares it with the plans. With a head that
    /// was exported earlier it also finds a cut or replaced tail; without one the report says that it could not.
    ///
    /// ```
    /// # let gate = countersign::Gate::ephemeral()?;
    /// let operator = gate.operator("auditor")?;
    /// let head = operator.audit().head()?;
    /// assert!(operator.audit().verify(Some(&head))?.is_intact());
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors. A difference is no error: it stands in the report.
    pub fn verify(&self, head: Option<&Head>) -> Result<VerifyReport> {
        self.verify_with(head, &mut |_, _| {})
    }

    /// As [`verify`](Audit::verify); `progress` is told how many rows were walked, and how many there were at the start.
    ///
    /// # Errors
    /// As for [`verify`](Audit::verify).
    pub fn verify_with(&self, head: Option<&Head>, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.inner.usable()?;
        let walker = RefCell::new(self.inner.store.walker()?);
        let read = |f: &mut dyn FnMut(&Reader<'_>) -> Result<()>| {
            self.inner.usable()?;
            walker.borrow_mut().read(f)
        };
        verify::verify(read, head, progress)
    }
}
