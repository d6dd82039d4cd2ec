//! The claim's verbs.
//!
//! Each goes on with a second holder of the claim: a report whose future was dropped is still at work on it until it is
//! written, so that no scan of this instance takes the plan for abandoned meanwhile.

use std::future::Future;

use serde::Serialize;

use super::{Lane, hop};
use crate::claim::{Claim, Evidence};
use crate::error::Result;
use crate::gates::Report;
use crate::plan::Settled;

impl Claim {
    /// As [`check`](Claim::check), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`check`](Claim::check).
    pub async fn check_async(&self) -> Result<()> {
        let claim = self.again();
        hop(self.inner().clone(), Lane::Read, move |_| claim.check()).await?
    }

    /// As [`confirm_executed`](Claim::confirm_executed), without blocking the runtime. The result is serialised now,
    /// before the first poll.
    ///
    /// # Errors
    /// As for [`confirm_executed`](Claim::confirm_executed).
    pub fn confirm_executed_async<T: Serialize + ?Sized>(
        &mut self,
        result: &T,
    ) -> impl Future<Output = Result<Settled>> + use<T> {
        let evidence = self.result(result);
        self.report_async(Report::Executed, evidence)
    }

    /// As [`confirm_failed`](Claim::confirm_failed), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`confirm_executed`](Claim::confirm_executed).
    pub fn confirm_failed_async(&mut self, detail: &str) -> impl Future<Output = Result<Settled>> + Send + use<> {
        let evidence = self.detail(detail);
        self.report_async(Report::Failed, evidence)
    }

    /// As [`mark_uncertain`](Claim::mark_uncertain), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`confirm_executed`](Claim::confirm_executed).
    pub fn mark_uncertain_async(&mut self, detail: &str) -> impl Future<Output = Result<Settled>> + Send + use<> {
        let evidence = self.detail(detail);
        self.report_async(Report::Uncertain, evidence)
    }

    /// As [`record_host_event`](Claim::record_host_event), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`record_host_event`](Claim::record_host_event).
    pub async fn record_host_event_async(&self, name: &str, detail: &str) -> Result<()> {
        let (claim, name, detail) = (self.again(), name.to_owned(), detail.to_owned());
        hop(self.inner().clone(), Lane::Write, move |_| claim.record_host_event(&name, &detail)).await?
    }

    fn report_async(&self, report: Report, evidence: Evidence) -> impl Future<Output = Result<Settled>> + Send + use<> {
        let claim = self.again();
        async move { hop(claim.inner().clone(), Lane::Write, move |_| claim.report(report, evidence)).await? }
    }
}
