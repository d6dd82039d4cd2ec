//! What is told beside the answers: problems that change no answer, and, with the feature `tracing`, spans and events.
//!
//! Nothing in here carries a payload, a reason, a detail or a whole plan token: of a token its first eight digits.

use crate::audit::AuditEvent;
use crate::error::Result;

/// A problem that changes no answer. To standard error without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
pub(crate) fn problem(what: &str) {
    eprintln!("countersign: {what}");
}

#[cfg(not(feature = "tracing"))]
mod off {
    use super::{AuditEvent, Result};

    /// Nothing, for as long as a verb runs.
    pub(crate) struct Span;

    pub(crate) fn span(_verb: &'static str, _token: &str) -> Span {
        Span
    }

    pub(crate) fn events(_events: &[AuditEvent]) {}

    pub(crate) fn failed<T>(answer: Result<T>) -> Result<T> {
        answer
    }

    #[cfg(feature = "tokio")]
    pub(crate) struct Here;

    #[cfg(feature = "tokio")]
    pub(crate) fn here() -> Here {
        Here
    }

    #[cfg(feature = "tokio")]
    impl Here {
        pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
            work()
        }
    }
}

#[cfg(all(feature = "tokio", not(feature = "tracing")))]
pub(crate) use off::here;
#[cfg(not(feature = "tracing"))]
pub(crate) use off::{events, failed, span};

#[cfg(feature = "tracing")]
mod on {
    use super::{AuditEvent, Result};

    const TARGET: &str = "countersign";

    pub(crate) fn problem(what: &str) {
        tracing::error!(target: TARGET, "{what}");
    }

    /// What names a plan where others read along.
    fn prefix(token: &str) -> &str {
        token.get(..8).unwrap_or("")
    }

    /// The span of a verb, entered until it is dropped.
    pub(crate) fn span(verb: &'static str, token: &str) -> tracing::span::EnteredSpan {
        tracing::debug_span!(target: TARGET, "gate", verb, plan = prefix(token)).entered()
    }

    /// Audit rows that were committed.
    pub(crate) fn events(events: &[AuditEvent]) {
        for event in events {
            let plan = event.plan_token.as_deref().map(prefix);
            let (tool, code) = (event.tool.as_deref(), event.code.as_deref());
            tracing::info!(
                target: TARGET, seq = event.seq, event = event.event.as_str(), plan, tool, code,
                attempt = event.attempt, duration_us = event.duration_us, "committed"
            );
        }
    }

    /// A failure of the store or the caller's mistake, on its way to the caller. Its text stays there.
    pub(crate) fn failed<T>(answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && !error.is_refused()
        {
            tracing::warn!(target: TARGET, code = error.code(), "failed");
        }
        answer
    }

    /// The span and the subscriber of the caller, for a thread that works for it.
    #[cfg(feature = "tokio")]
    pub(crate) struct Here {
        span: tracing::Span,
        subscriber: tracing::Dispatch,
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn here() -> Here {
        Here { span: tracing::Span::current(), subscriber: tracing::dispatcher::get_default(Clone::clone) }
    }

    #[cfg(feature = "tokio")]
    impl Here {
        pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
            tracing::dispatcher::with_default(&self.subscriber, || self.span.in_scope(work))
        }
    }
}

#[cfg(all(feature = "tokio", feature = "tracing"))]
pub(crate) use on::here;
#[cfg(feature = "tracing")]
pub(crate) use on::{events, failed, problem, span};
