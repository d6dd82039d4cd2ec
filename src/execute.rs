//! `execute`: claim, run, record; and the four ways in which it does not end well.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde::Serialize;

use crate::claim::Claim;
use crate::error::Error;
use crate::escape::visible_cut;
use crate::failpoint::hit;

/// An error of the host's own code.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a side effect did not answer with a value. `?` on any error gives [`Failure::Unknown`].
#[derive(Debug)]
pub enum Failure {
    /// The effect certainly did not happen: the plan may run again.
    NotApplied(BoxError),
    /// Nobody knows whether it happened: the plan becomes `uncertain`.
    Unknown(BoxError),
}

impl Failure {
    /// The effect certainly did not happen.
    pub fn not_applied(error: impl Into<BoxError>) -> Self {
        Self::NotApplied(error.into())
    }

    /// Nobody knows whether it happened.
    pub fn unknown(error: impl Into<BoxError>) -> Self {
        Self::Unknown(error.into())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Unknown(Box::new(error))
    }
}

/// A report that could not be written: repeat it on the claim.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unrecorded {
    /// The claim, to repeat the report.
    pub claim: Claim,
    /// Why it could not be written.
    pub error: Error,
}

/// Why [`execute`](crate::Agent::execute) did not end with `executed`.
#[derive(Debug)]
pub enum ExecuteError<T> {
    /// The gate did not give the claim: nothing ran.
    Gate(Error),
    /// The effect did not happen. The plan may run again.
    NotApplied {
        /// The host's own error.
        source: BoxError,
        /// Set when this could not be recorded: the plan is still `executing`.
        unrecorded: Option<Box<Unrecorded>>,
    },
    /// Nobody knows whether the effect happened. Do not run it again; an operator settles the plan.
    Uncertain {
        /// The host's own error.
        source: BoxError,
        /// Set when this could not be recorded: the plan is still `executing`.
        unrecorded: Option<Box<Unrecorded>>,
    },
    /// The effect happened and the confirm could not be written. Confirm again with the claim.
    NotRecorded {
        /// What the effect answered.
        value: T,
        /// The claim, to confirm again.
        claim: Box<Claim>,
        /// Why the confirm could not be written.
        source: Error,
    },
}

impl<T> ExecuteError<T> {
    /// The stable code: the gate's own ([`Error::code`]), `NOT_APPLIED`, `UNCERTAIN` or `NOT_RECORDED`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Gate(error) => error.code(),
            Self::NotApplied { .. } => "NOT_APPLIED",
            Self::Uncertain { .. } => "UNCERTAIN",
            Self::NotRecorded { .. } => "NOT_RECORDED",
        }
    }

    /// What the caller can do next.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            Self::Gate(error) => error.hint(),
            Self::NotApplied { unrecorded: None, .. } => "Nothing was changed. The same plan can be executed again.",
            Self::NotApplied { .. } => {
                "Nothing was changed. Repeat confirm_failed on the claim, or let recover settle it."
            }
            Self::Uncertain { .. } => "Do not run it again. An operator checks what happened and settles the plan.",
            Self::NotRecorded { source, .. } if source.is_refused() => {
                "The write happened, and the plan was settled otherwise meanwhile. Do not run it again; tell an operator."
            }
            Self::NotRecorded { .. } => "The write happened. Do not run it again; confirm again with the claim.",
        }
    }
}

impl<T> fmt::Display for ExecuteError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |error: &dyn fmt::Display| visible_cut(&error.to_string(), 1_000);
        match self {
            Self::Gate(error) => error.fmt(f),
            Self::NotApplied { source, .. } => write!(f, "the write was not applied: {}", text(source)),
            Self::Uncertain { source, .. } => {
                write!(f, "nobody knows whether the write was applied: {}", text(source))
            }
            Self::NotRecorded { source, .. } => {
                write!(f, "the write was applied, and that could not be recorded: {source}")
            }
        }
    }
}

impl<T: fmt::Debug> std::error::Error for ExecuteError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Gate(error) => Some(error),
            Self::NotApplied { source, .. } | Self::Uncertain { source, .. } => Some(&**source),
            Self::NotRecorded { source, .. } => Some(source),
        }
    }
}

/// Runs the effect under the claim and records what happened.
pub(crate) fn run<T: Serialize>(
    mut claim: Claim,
    effect: impl FnOnce(&Claim) -> Result<T, Failure>,
) -> Result<T, ExecuteError<T>> {
    match catch_unwind(AssertUnwindSafe(|| effect(&claim))) {
        Ok(outcome) => {
            hit("after_effect");
            let answer = record(claim, outcome);
            hit("after_confirm");
            answer
        }
        Err(panic) => {
            if let Err(error) = claim.mark_uncertain("the host's code panicked inside the side effect") {
                crate::report::problem(&format!(
                    "a side effect panicked and its plan could not be marked uncertain ({error}); it stays executing until recover"
                ));
            }
            resume_unwind(panic)
        }
    }
}

/// Records the outcome of an effect that returned.
pub(crate) fn record<T: Serialize>(mut claim: Claim, outcome: Result<T, Failure>) -> Result<T, ExecuteError<T>> {
    match outcome {
        Ok(value) => match claim.confirm_executed(&value) {
            Ok(_) => Ok(value),
            Err(source) => Err(ExecuteError::NotRecorded { value, claim: Box::new(claim), source }),
        },
        Err(Failure::NotApplied(source)) => {
            let recorded = claim.confirm_failed(&source.to_string());
            Err(ExecuteError::NotApplied { source, unrecorded: unrecorded(recorded, claim) })
        }
        Err(Failure::Unknown(source)) => {
            let recorded = claim.mark_uncertain(&source.to_string());
            Err(ExecuteError::Uncertain { source, unrecorded: unrecorded(recorded, claim) })
        }
    }
}

fn unrecorded(recorded: crate::Result<crate::Settled>, claim: Claim) -> Option<Box<Unrecorded>> {
    recorded.err().map(|error| Box::new(Unrecorded { claim, error }))
}
