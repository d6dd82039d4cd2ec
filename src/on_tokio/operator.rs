//! The operator's verbs.

use std::time::Duration;

use super::{Lane, hop};
use crate::audit::{AuditEvent, AuditQuery, Head};
use crate::error::Result;
use crate::operator::{Health, Operator, StuckPlan, VerifyReport};
use crate::plan::{Listing, Plan, Settled, short};
use crate::recovery::{Outcome, RecoveryReport};
use crate::settle::RestoreReport;

impl Operator {
    /// As [`plan`](Operator::plan), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`plan`](Operator::plan).
    pub async fn plan_async(&self, token: impl AsRef<str>) -> Result<Plan> {
        let operator = self.clone();
        let token = short(token.as_ref());
        hop(self.inner.clone(), Lane::Read, move |_| operator.plan(&token)).await?
    }

    /// As [`executing`](Operator::executing), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`executing`](Operator::executing).
    pub async fn executing_async(&self, limit: u32) -> Result<Listing<StuckPlan>> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Read, move |_| operator.executing(limit)).await?
    }

    /// As [`recover`](Operator::recover), without blocking the runtime. When the future is dropped, the scan goes on to its
    /// end.
    ///
    /// # Errors
    /// As for [`recover`](Operator::recover).
    pub async fn recover_async(&self) -> Result<RecoveryReport> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Long, move |_| operator.recover()).await?
    }

    /// As [`reconcile`](Operator::reconcile), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`reconcile`](Operator::reconcile).
    pub async fn reconcile_async(&self, token: impl AsRef<str>) -> Result<Settled> {
        let operator = self.clone();
        let token = short(token.as_ref());
        hop(self.inner.clone(), Lane::Long, move |_| operator.reconcile(&token)).await?
    }

    /// As [`settle`](Operator::settle), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`settle`](Operator::settle).
    pub async fn settle_async(&self, token: impl AsRef<str>, outcome: &Outcome) -> Result<Settled> {
        let operator = self.clone();
        let token = short(token.as_ref());
        let outcome = outcome.clone();
        hop(self.inner.clone(), Lane::Write, move |_| operator.settle(&token, &outcome)).await?
    }

    /// As [`mark_interrupted_as_uncertain`](Operator::mark_interrupted_as_uncertain), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`mark_interrupted_as_uncertain`](Operator::mark_interrupted_as_uncertain).
    pub async fn mark_interrupted_as_uncertain_async(&self, token: impl AsRef<str>, attempt: u32) -> Result<Settled> {
        let operator = self.clone();
        let token = short(token.as_ref());
        hop(self.inner.clone(), Lane::Write, move |_| operator.mark_interrupted_as_uncertain(&token, attempt)).await?
    }

    /// As [`accept_restore`](Operator::accept_restore), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`accept_restore`](Operator::accept_restore).
    pub async fn accept_restore_async(&self) -> Result<RestoreReport> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Long, move |_| operator.accept_restore()).await?
    }

    /// As [`sweep`](Operator::sweep), without blocking the runtime. When the future is dropped, it goes on to its
    /// end.
    ///
    /// # Errors
    /// As for [`sweep`](Operator::sweep).
    pub async fn sweep_async(&self) -> Result<u64> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Long, move |_| operator.sweep()).await?
    }

    /// As [`purge`](Operator::purge), without blocking the runtime. When the future is dropped, it goes on to its
    /// end.
    ///
    /// # Errors
    /// As for [`purge`](Operator::purge).
    pub async fn purge_async(&self, older_than: Duration) -> Result<u64> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Long, move |_| operator.purge(older_than)).await?
    }

    /// As [`history`](Operator::history), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`history`](Operator::history).
    pub async fn history_async(&self, token: impl AsRef<str>) -> Result<Vec<AuditEvent>> {
        let operator = self.clone();
        let token = short(token.as_ref());
        hop(self.inner.clone(), Lane::Read, move |_| operator.history(&token)).await?
    }

    /// As [`record_host_event`](Operator::record_host_event), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`record_host_event`](Operator::record_host_event).
    pub async fn record_host_event_async(&self, token: Option<&str>, name: &str, detail: &str) -> Result<()> {
        let operator = self.clone();
        let token = token.map(short);
        let name = name.to_owned();
        let detail = detail.to_owned();
        hop(self.inner.clone(), Lane::Write, move |_| operator.record_host_event(token.as_deref(), &name, &detail))
            .await?
    }

    /// As [`health`](Operator::health), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`health`](Operator::health).
    pub async fn health_async(&self) -> Result<Health> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Read, move |_| operator.health()).await?
    }

    /// As [`Audit::query`](crate::Audit::query), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`Audit::query`](crate::Audit::query).
    pub async fn audit_query_async(&self, query: AuditQuery) -> Result<Vec<AuditEvent>> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Read, move |_| operator.audit().query(&query)).await?
    }

    /// As [`Audit::head`](crate::Audit::head), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`Audit::head`](crate::Audit::head).
    pub async fn audit_head_async(&self) -> Result<Head> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Read, move |_| operator.audit().head()).await?
    }

    /// As [`Audit::verify`](crate::Audit::verify), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`Audit::verify`](crate::Audit::verify).
    pub async fn audit_verify_async(&self, head: Option<Head>) -> Result<VerifyReport> {
        let operator = self.clone();
        hop(self.inner.clone(), Lane::Long, move |_| operator.audit().verify(head.as_ref())).await?
    }
}
