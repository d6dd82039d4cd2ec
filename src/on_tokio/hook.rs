//! An async reconcile hook.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use tokio::runtime::Handle;

use super::runtime;
use crate::builder::GateBuilder;
use crate::error::Result;
use crate::execute::BoxError;
use crate::plan::Plan;
use crate::recovery::{Hook, Outcome};

type Answer = Pin<Box<dyn Future<Output = Result<Outcome, BoxError>> + Send>>;

/// The hook, and the runtime on which it runs.
#[derive(Clone)]
pub(crate) struct AsyncHook {
    runtime: Handle,
    hook: Arc<dyn Fn(Plan) -> Answer + Send + Sync>,
}

impl AsyncHook {
    /// As recovery asks it: on a thread of its own. One that is late is aborted.
    pub(crate) fn into_hook(self, deadline: Duration) -> Hook {
        Arc::new(move |plan| {
            let (send, answer) = sync_channel(1);
            let (hook, plan) = (self.hook.clone(), plan.clone());
            let task = self.runtime.spawn(async move {
                // Nobody waits any more when the answer is late.
                let _ = send.send(hook(plan).await);
            });
            match answer.recv_timeout(deadline) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => {
                    task.abort();
                    Err(format!("no answer within {deadline:?}").into())
                }
                Err(RecvTimeoutError::Disconnected) => Err("it panicked, or its runtime was shut down".into()),
            }
        })
    }
}

impl GateBuilder {
    /// As [`reconcile`](GateBuilder::reconcile), with an async hook. It runs on the runtime in which this is called;
    /// one that is late is aborted. Ask for recovery with [`recover_async`](crate::Operator::recover_async): a
    /// synchronous `recover` on the only thread of a runtime would keep the hook from running until its deadline.
    ///
    /// ```
    /// use countersign::{Gate, Outcome};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # async fn ledger_has(_: &str) -> bool { true }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let gate = Gate::builder(dir.path().join("gate.db"))
    ///     .reconcile_async(|stuck| async move {
    ///         Ok(if ledger_has(stuck.plan_token.as_str()).await { Outcome::done(&"found") } else { Outcome::NotDone })
    ///     })
    ///     .open_async()
    ///     .await?;
    /// gate.operator("startup")?.recover_async().await?;
    /// # Ok::<(), countersign::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`open`](GateBuilder::open) answers invalid input when this was called outside of a runtime.
    pub fn reconcile_async<F, Fut>(self, hook: F) -> Self
    where
        F: Fn(Plan) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, BoxError>> + Send + 'static,
    {
        let hook = runtime().map(|runtime| AsyncHook { runtime, hook: Arc::new(move |plan| Box::pin(hook(plan))) });
        self.async_hook(hook)
    }
}
