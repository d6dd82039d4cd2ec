//! The agent's verbs.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Lane, hop};
use crate::agent::Agent;
use crate::claim::Claim;
use crate::create::PreparedPlan;
use crate::error::Result;
use crate::execute::{BoxError, ExecuteError, Failure, Unrecorded};
use crate::failpoint::hit;
use crate::plan::{Created, NewPlan, Plan, PreparedRedeem, Redeem, Settled, short};
use crate::wait::{Awaited, Look, look, until};

impl Agent {
    /// As [`create`](Agent::create), without blocking the runtime. The plan is checked and its payload canonicalised
    /// now, before the first poll.
    ///
    /// # Errors
    /// As for [`create`](Agent::create).
    pub fn create_async(&self, plan: NewPlan<'_>) -> impl Future<Output = Result<Created>> + Send + use<> {
        let plan = PreparedPlan::prepare(plan, &self.inner.options);
        let agent = self.clone();
        async move {
            let plan = plan?;
            hop(agent.inner.clone(), Lane::Write, move |_| agent.create_prepared(&plan)).await?
        }
    }

    /// As [`plan`](Agent::plan), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`plan`](Agent::plan).
    pub async fn plan_async(&self, token: impl AsRef<str>) -> Result<Plan> {
        let (agent, token) = (self.clone(), short(token.as_ref()));
        hop(self.inner.clone(), Lane::Read, move |_| agent.plan(token)).await?
    }

    /// As [`begin_execute`](Agent::begin_execute), without blocking the runtime. The presented payload is canonicalised
    /// now, before the first poll. When the future is dropped and the claim was made all the same, the claim is dropped.
    ///
    /// # Errors
    /// As for [`begin_execute`](Agent::begin_execute).
    pub fn begin_execute_async(&self, redeem: Redeem<'_>) -> impl Future<Output = Result<Claim>> + Send + use<> {
        let redeem = redeem.prepare(self.inner.options.payload);
        let agent = self.clone();
        async move { agent.begin_hop(redeem?).await }
    }

    async fn begin_hop(self, redeem: PreparedRedeem) -> Result<Claim> {
        hop(self.inner.clone(), Lane::Write, move |_| self.begin(&redeem)).await?
    }

    /// As [`execute`](Agent::execute), with an async side effect, without blocking the runtime.
    ///
    /// The effect runs in this future, not on a blocking thread. When the future is dropped while the effect runs, the
    /// plan stays `executing` and this instance knows that nobody works on it: [`recover`](crate::Operator::recover)
    /// settles it. The effect's clones of the claim keep it at work.
    ///
    /// ```
    /// use countersign::{Approval, Gate, NewPlan, Redeem};
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let created = agent.create_async(NewPlan::new("update_prices", &[1, 2], Approval::NotNeeded)).await?;
    /// let redeem = Redeem::new(&created.plan_token, "update_prices").payload(&[1, 2]);
    /// let rows = agent
    ///     .execute_async(redeem, |claim| async move {
    ///         let ids: Vec<i64> = claim.payload_as()?;
    ///         Ok(ids.len())
    ///     })
    ///     .await?;
    /// assert_eq!(rows, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As for [`execute`](Agent::execute).
    pub fn execute_async<T, F, Fut>(
        &self,
        redeem: Redeem<'_>,
        effect: F,
    ) -> impl Future<Output = Result<T, ExecuteError<T>>> + use<T, F, Fut>
    where
        T: Serialize,
        F: FnOnce(Arc<Claim>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let redeem = redeem.prepare(self.inner.options.payload);
        let agent = self.clone();
        async move {
            let begun = match redeem {
                Ok(redeem) => agent.begin_hop(redeem).await,
                Err(error) => Err(error),
            };
            run(begun.map_err(ExecuteError::Gate)?, effect).await
        }
    }

    /// As [`consume`](Agent::consume), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`consume`](Agent::consume).
    pub fn consume_async(&self, redeem: Redeem<'_>) -> impl Future<Output = Result<Plan>> + Send + use<> {
        let redeem = redeem.prepare(self.inner.options.payload);
        let agent = self.clone();
        async move {
            let redeem = redeem?;
            hop(agent.inner.clone(), Lane::Write, move |_| agent.consume_prepared(&redeem)).await?
        }
    }

    /// As [`adopt`](Agent::adopt), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`adopt`](Agent::adopt).
    pub async fn adopt_async(&self, token: impl AsRef<str>, attempt: u32, claim_token: &str) -> Result<Claim> {
        let (agent, token, claim_token) = (self.clone(), short(token.as_ref()), short(claim_token));
        hop(self.inner.clone(), Lane::Write, move |_| agent.adopt(token, attempt, &claim_token)).await?
    }

    /// As [`wait_for_decision`](Agent::wait_for_decision), without blocking the runtime and without a thread for each
    /// waiter.
    ///
    /// # Errors
    /// As for [`wait_for_decision`](Agent::wait_for_decision).
    pub async fn wait_for_decision_async(&self, token: impl AsRef<str>, timeout: Duration) -> Result<Awaited> {
        let until = until(timeout);
        let token = short(token.as_ref());
        let ask = || {
            let (agent, token) = (self.clone(), token.clone());
            async move { hop(agent.inner.clone(), Lane::Read, move |inner| look(inner, &token, agent.caller())).await? }
        };
        let expires_at = match ask().await? {
            Look::Decided(awaited) => return Ok(awaited),
            Look::Waiting(_) if timeout.is_zero() => return Ok(Awaited::TimedOut),
            Look::Waiting(expires_at) => expires_at,
        };
        let plan = token.clone();
        let changes = hop(self.inner.clone(), Lane::Read, move |inner| {
            inner.store.subscribe(Some(&plan), Some(expires_at), until)
        })
        .await??;
        loop {
            let last = until.is_some_and(|until| until <= Instant::now());
            match ask().await? {
                Look::Decided(awaited) => return Ok(awaited),
                Look::Waiting(_) if last => return Ok(Awaited::TimedOut),
                Look::Waiting(_) => poll_fn(|context| changes.poll(context)).await?,
            }
        }
    }

    /// As [`record_host_event`](Agent::record_host_event), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`record_host_event`](Agent::record_host_event).
    pub async fn record_host_event_async(&self, token: Option<&str>, name: &str, detail: &str) -> Result<()> {
        let (agent, token) = (self.clone(), token.map(short));
        let (name, detail) = (name.to_owned(), detail.to_owned());
        let work = move |_: &_| agent.record_host_event(token.as_deref(), &name, &detail);
        hop(self.inner.clone(), Lane::Write, work).await?
    }
}

/// Runs the effect under the claim and records what happened.
async fn run<T, F, Fut>(claim: Claim, effect: F) -> Result<T, ExecuteError<T>>
where
    T: Serialize,
    F: FnOnce(Arc<Claim>) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let claim = Arc::new(claim);
    let outcome = caught(Arc::clone(&claim), effect).await;
    // The effect may have kept a clone: then both are at work on it.
    let mut claim = Arc::try_unwrap(claim).unwrap_or_else(|shared| shared.again());
    match outcome {
        Ok(outcome) => {
            hit("after_effect");
            let answer = record(claim, outcome).await;
            hit("after_confirm");
            answer
        }
        Err(panic) => {
            if let Err(error) = claim.mark_uncertain_async("the host's code panicked inside the side effect").await {
                crate::report::problem(&format!(
                    "a side effect panicked and its plan could not be marked uncertain ({error}); it stays executing until recover"
                ));
            }
            resume_unwind(panic)
        }
    }
}

type Panic = Box<dyn std::any::Any + Send>;

/// The effect's outcome, or its panic.
async fn caught<T, F, Fut>(claim: Arc<Claim>, effect: F) -> Result<Result<T, Failure>, Panic>
where
    F: FnOnce(Arc<Claim>) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let mut effect = pin!(catch_unwind(AssertUnwindSafe(|| effect(claim)))?);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| effect.as_mut().poll(context))) {
        Ok(Poll::Ready(outcome)) => Poll::Ready(Ok(outcome)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

async fn record<T: Serialize>(mut claim: Claim, outcome: Result<T, Failure>) -> Result<T, ExecuteError<T>> {
    match outcome {
        Ok(value) => {
            let confirm = claim.confirm_executed_async(&value);
            match confirm.await {
                Ok(_) => Ok(value),
                Err(source) => Err(ExecuteError::NotRecorded { value, claim: Box::new(claim), source }),
            }
        }
        Err(Failure::NotApplied(source)) => {
            let recorded = claim.confirm_failed_async(&text(&source)).await;
            Err(ExecuteError::NotApplied { source, unrecorded: unrecorded(recorded, claim) })
        }
        Err(Failure::Unknown(source)) => {
            let recorded = claim.mark_uncertain_async(&text(&source)).await;
            Err(ExecuteError::Uncertain { source, unrecorded: unrecorded(recorded, claim) })
        }
    }
}

fn text(error: &BoxError) -> String {
    error.to_string()
}

fn unrecorded(recorded: Result<Settled>, claim: Claim) -> Option<Box<Unrecorded>> {
    recorded.err().map(|error| Box::new(Unrecorded { claim, error }))
}
