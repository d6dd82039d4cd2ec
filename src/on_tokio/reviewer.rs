//! The reviewer's verbs.

use super::{Lane, hop};
use crate::error::Result;
use crate::plan::{Decision, Listing, PendingPlan, Plan, short};
use crate::reviewer::Reviewer;

impl Reviewer {
    /// As [`pending`](Reviewer::pending), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`pending`](Reviewer::pending).
    pub async fn pending_async(&self, limit: u32) -> Result<Listing<PendingPlan>> {
        let reviewer = self.clone();
        hop(self.inner.clone(), Lane::Read, move |_| reviewer.pending(limit)).await?
    }

    /// As [`plan`](Reviewer::plan), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`plan`](Reviewer::plan).
    pub async fn plan_async(&self, token: impl AsRef<str>) -> Result<Plan> {
        let reviewer = self.clone();
        let token = short(token.as_ref());
        hop(self.inner.clone(), Lane::Read, move |_| reviewer.plan(&token)).await?
    }

    /// As [`card`](Reviewer::card), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`card`](Reviewer::card).
    pub async fn card_async(&self, token: impl AsRef<str>) -> Result<PendingPlan> {
        let reviewer = self.clone();
        let token = short(token.as_ref());
        hop(self.inner.clone(), Lane::Read, move |_| reviewer.card(&token)).await?
    }

    /// As [`approve`](Reviewer::approve), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`approve`](Reviewer::approve).
    pub async fn approve_async(&self, token: impl AsRef<str>, seal: impl AsRef<str>) -> Result<Decision> {
        let reviewer = self.clone();
        let token = short(token.as_ref());
        let seal = seal.as_ref().to_owned();
        hop(self.inner.clone(), Lane::Write, move |_| reviewer.approve(&token, &seal)).await?
    }

    /// As [`reject`](Reviewer::reject), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`reject`](Reviewer::reject).
    pub async fn reject_async(&self, token: impl AsRef<str>, reason: Option<&str>) -> Result<Decision> {
        let reviewer = self.clone();
        let token = short(token.as_ref());
        let reason = reason.map(str::to_owned);
        hop(self.inner.clone(), Lane::Write, move |_| reviewer.reject(&token, reason.as_deref())).await?
    }

    /// As [`reject_sealed`](Reviewer::reject_sealed), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`reject_sealed`](Reviewer::reject_sealed).
    pub async fn reject_sealed_async(
        &self,
        token: impl AsRef<str>,
        seal: impl AsRef<str>,
        reason: Option<&str>,
    ) -> Result<Decision> {
        let reviewer = self.clone();
        let token = short(token.as_ref());
        let seal = seal.as_ref().to_owned();
        let reason = reason.map(str::to_owned);
        hop(self.inner.clone(), Lane::Write, move |_| reviewer.reject_sealed(&token, &seal, reason.as_deref())).await?
    }

    /// As [`lift_rejection`](Reviewer::lift_rejection), without blocking the runtime.
    ///
    /// # Errors
    /// As for [`lift_rejection`](Reviewer::lift_rejection).
    pub async fn lift_rejection_async(&self, tool: &str, fingerprint: impl AsRef<str>, reason: &str) -> Result<bool> {
        let reviewer = self.clone();
        let tool = tool.to_owned();
        let fingerprint = fingerprint.as_ref().to_owned();
        let reason = reason.to_owned();
        hop(self.inner.clone(), Lane::Write, move |_| reviewer.lift_rejection(&tool, &fingerprint, &reason)).await?
    }
}
