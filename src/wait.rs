//! Waiting for a decision, of whatever process.

use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::escape::visible;
use crate::gate::Inner;
use crate::lifecycle::State;
use crate::plan::short;
use crate::store::unknown_token;

/// How a wait for a decision ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// No approval is missing: the plan was approved, or never needed it. Whether it can still run is what
    /// [`begin_execute`](Agent::begin_execute) answers.
    Approved,
    /// A reviewer said no.
    Rejected {
        /// Why, with every hidden character visible.
        reason: Option<String>,
    },
    /// The plan's time is over.
    Expired,
    /// Nothing was decided in the time that the caller gave.
    TimedOut,
}

/// What one look at the plan says.
pub(crate) enum Look {
    Decided(Awaited),
    /// Until when the plan waits, on the gate's clock.
    Waiting(i64),
}

/// Looks once; writes nothing.
pub(crate) fn look(inner: &Inner, token: &str, caller: &str) -> Result<Look> {
    inner.read(|reader| {
        let Some(row) = reader.find(token, Some(caller))? else {
            return Err(Error::refused(unknown_token(token).refusal));
        };
        Ok(match row.state_at(reader.now) {
            State::AwaitingApproval => Look::Waiting(row.expires_at),
            State::Rejected => {
                let reason = row.reject_reason.as_deref().map(|reason| visible(reason).into_owned());
                Look::Decided(Awaited::Rejected { reason })
            }
            State::Expired => Look::Decided(Awaited::Expired),
            State::Previewed
            | State::Approved
            | State::Executing
            | State::Uncertain
            | State::Executed
            | State::Failed => Look::Decided(Awaited::Approved),
        })
    })
}

/// When a wait of that length ends; `None`: never.
pub(crate) fn until(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

impl Agent {
    /// Waits until the plan needs no approval any more, is rejected, or expires; at most `timeout`, in real time. Blocks
    /// this thread; writes nothing.
    ///
    /// A decision of any process is answered within some 10 ms. However many threads wait, one thread and one
    /// connection of the gate look for changes, and they read plans only after a commit.
    ///
    /// ```
    /// use countersign::{Approval, Awaited, Gate, NewPlan};
    /// use std::time::Duration;
    ///
    /// let gate = Gate::ephemeral()?;
    /// let agent = gate.agent("pricing-agent")?;
    /// let created = agent.create(NewPlan::new("update_prices", &1, Approval::required()))?;
    /// gate.reviewer("ada")?.reject(&created.plan_token, Some("wrong table"))?;
    /// let awaited = agent.wait_for_decision(&created.plan_token, Duration::from_secs(60))?;
    /// assert_eq!(awaited, Awaited::Rejected { reason: Some("wrong table".to_owned()) });
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Refused: UNKNOWN_TOKEN. `closed` when the gate is closed meanwhile. Storage errors.
    pub fn wait_for_decision(&self, token: impl AsRef<str>, timeout: Duration) -> Result<Awaited> {
        let until = until(timeout);
        let token = short(token.as_ref());
        let _span = crate::report::span("wait_for_decision", &token);
        let look = || look(&self.inner, &token, self.caller());
        let expires_at = match look()? {
            Look::Decided(awaited) => return Ok(awaited),
            Look::Waiting(_) if timeout.is_zero() => return Ok(Awaited::TimedOut),
            Look::Waiting(expires_at) => expires_at,
        };
        let changes = self.inner.store.subscribe(Some(&token), Some(expires_at), until)?;
        let mut in_time = true;
        loop {
            match look()? {
                Look::Decided(awaited) => return Ok(awaited),
                Look::Waiting(_) if !in_time => return Ok(Awaited::TimedOut),
                Look::Waiting(_) => in_time = changes.wait(until)?,
            }
        }
    }
}
