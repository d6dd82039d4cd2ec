//! What a host can plug in: how a plan looks on its card, and who is told of decisions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::Error;
use crate::execute::BoxError;
use crate::plan::{Decision, PendingPlan};

pub(super) type RenderHook = Arc<dyn Fn(&PendingPlan) -> Result<Rendered, BoxError> + Send + Sync>;
pub(super) type DecisionHook = Arc<dyn Fn(&DecisionAttempt<'_>) + Send + Sync>;

/// How a plan looks on its card, in the host's words: a title, and labelled values. Plain text; the page shows it as
/// text, with every hidden character marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Rendered {
    pub(super) title: Option<String>,
    pub(super) details: Vec<(String, String)>,
}

impl Rendered {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The card's title. Default: the tool's name.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// One more labelled value. It may have several lines.
    pub fn detail(mut self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.details.push((label.into(), value.into()));
        self
    }
}

/// What a reviewer wanted to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecisionAction {
    /// Approve the plan.
    Approve,
    /// Reject it.
    Reject,
}

impl DecisionAction {
    /// `approve` or `reject`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }
}

/// One attempt of a reviewer to decide over HTTP, and what the gate answered.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DecisionAttempt<'a> {
    /// What the reviewer wanted.
    pub action: DecisionAction,
    /// The token that was named; perhaps nobody's.
    pub plan_token: &'a str,
    /// Who.
    pub reviewer: &'a str,
    /// Why, as the reviewer wrote it.
    pub reason: Option<&'a str>,
    /// The gate's answer: the decision, where `already` says that it had been made before, or the refusal or failure.
    pub outcome: Result<&'a Decision, &'a Error>,
}

/// The host's rendering of a plan. `None`: the hook failed or panicked, which is this card's trouble alone.
pub(super) fn render(hook: &RenderHook, plan: &PendingPlan) -> Option<Rendered> {
    match catch_unwind(AssertUnwindSafe(|| hook(plan))) {
        Ok(Ok(rendered)) => Some(rendered),
        Ok(Err(_)) | Err(_) => {
            // What went wrong may quote the payload, which the host may not want to show anywhere.
            crate::report::problem(&format!("approval server: render_plan failed for {:?}", plan.plan.plan_token));
            None
        }
    }
}

/// Tells the host. What it does changes no answer.
pub(super) fn tell(hook: &DecisionHook, attempt: &DecisionAttempt<'_>) {
    if catch_unwind(AssertUnwindSafe(|| hook(attempt))).is_err() {
        crate::report::problem(&format!("approval server: on_decision panicked after {}", attempt.action.as_str()));
    }
}
