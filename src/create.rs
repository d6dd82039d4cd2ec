//! Create: a plan begins, or the one that its key names is returned.

use crate::audit::FIRST_PREV_HASH;
use crate::builder::{Options, RejectedPayloads};
use crate::canonical::CanonicalJson;
use crate::clock::utc;
use crate::error::{Error, Result};
use crate::gate::Inner;
use crate::lifecycle::{self, State};
use crate::names::{Actor, PlanToken, check_key, check_name, check_text};
use crate::plan::{Approval, Created, NewPlan};
use crate::refusal::{Refusal, RefusalCode};
use crate::seal::Seal;
use crate::store::rows::{FullRow, PlanRow};
use crate::store::transition::NewRow;
use crate::store::tx::{Draft, No, Tx};

/// The longest data digest, in bytes.
const DIGEST_MAX: usize = 1024;
/// The largest quorum.
const QUORUM_MAX: u32 = 1_000;

/// A NewPlan that was checked and canonicalised, and holds nothing borrowed.
pub(crate) struct PreparedPlan {
    tool: String,
    payload: CanonicalJson,
    fingerprint: String,
    extra: Option<CanonicalJson>,
    approval: Approval,
    reason: Option<String>,
    preview_count: Option<i64>,
    data_digest: Option<String>,
    ttl_ms: i64,
    key: Option<String>,
}

impl PreparedPlan {
    pub(crate) fn prepare(plan: NewPlan<'_>, options: &Options) -> Result<Self> {
        let tool = check_name("the tool", plan.tool)?;
        if let Approval::Required { quorum } = plan.approval
            && !(1..=QUORUM_MAX).contains(&quorum)
        {
            return Err(Error::invalid(format!("a quorum of {quorum} is not possible: use 1 to {QUORUM_MAX}")));
        }
        let ttl = plan.ttl.unwrap_or(options.ttl);
        if ttl.as_millis() == 0 || ttl > options.longest_ttl {
            return Err(Error::invalid(format!(
                "a ttl of {ttl:?} is not possible: use at least 1 ms and at most {:?}",
                options.longest_ttl
            )));
        }
        let ttl_ms = i64::try_from(ttl.as_millis()).map_err(|_| Error::invalid("the ttl is too long"))?;
        if let Some(reason) = &plan.reason {
            check_text("the reason", reason, options.text_max_bytes)?;
        }
        if let Some(digest) = &plan.data_digest {
            check_text("the data digest", digest, DIGEST_MAX)?;
            if digest.is_empty() {
                return Err(Error::invalid("the data digest is empty: leave it out, or give the digest"));
            }
        }
        if let Some(key) = &plan.idempotency_key {
            check_key(key)?;
        }
        let preview_count = plan
            .preview_count
            .map(i64::try_from)
            .transpose()
            .map_err(|_| Error::invalid("the preview count does not fit 63 bits"))?;
        let payload = plan.payload.canonical(options.payload).map_err(Error::from_canonical)?;
        let extra = match plan.extra {
            None => None,
            Some(extra) => {
                let extra = extra.canonical(options.extra_limits()).map_err(Error::from_canonical)?;
                if !extra.as_str().starts_with('{') {
                    return Err(Error::invalid("extra must be a JSON object"));
                }
                Some(extra)
            }
        };
        Ok(Self {
            fingerprint: payload.fingerprint().to_string(),
            tool,
            payload,
            extra,
            approval: plan.approval,
            reason: plan.reason,
            preview_count,
            data_digest: plan.data_digest,
            ttl_ms,
            key: plan.idempotency_key,
        })
    }

    fn asks_for_gate(&self) -> bool {
        matches!(self.approval, Approval::Required { .. })
    }

    fn quorum(&self) -> u32 {
        match self.approval {
            Approval::NotNeeded => 1,
            Approval::Required { quorum } => quorum,
        }
    }

    /// A refusal that is about no plan that it may name.
    fn refuse(&self, caller: &str, refusal: Refusal) -> No {
        let mut no = No::new(refusal);
        no.draft = Draft {
            tool: Some(self.tool.clone()),
            caller: Some(caller.to_owned()),
            fingerprint: Some(self.fingerprint.clone()),
            reason: self.reason.clone(),
            preview_count: self.preview_count,
            ..no.draft
        };
        no
    }
}

pub(crate) fn create(inner: &Inner, actor: &Actor, plan: &PreparedPlan) -> Result<Created> {
    // Everything that can be done before the lock is.
    let plan_token = PlanToken::generate()?;
    inner.write(actor, |tx| {
        let caller = actor.name.as_str();
        if let Some(key) = &plan.key
            && let Some(answer) = named_by_key(tx, caller, plan, key)?
        {
            return Ok(answer);
        }
        let earlier = tx.earlier_rejection(&plan.tool, &plan.fingerprint, "")?;
        if let Some(earlier) = &earlier
            && inner.options.rejected_payloads == RejectedPayloads::Refuse
        {
            let reason = earlier.reason.as_deref().map(|reason| crate::escape::visible(reason).into_owned());
            let refusal = Refusal::new(RefusalCode::PlanRejected)
                .with_message("this payload was rejected before")
                .with_reason(reason);
            return Ok(Err(plan.refuse(caller, refusal)));
        }
        let gated = plan.asks_for_gate() || earlier.is_some();
        if gated && tx.waiting_of_caller(caller)? >= inner.options.max_pending {
            return Ok(Err(plan.refuse(caller, Refusal::new(RefusalCode::TooManyPending))));
        }
        let mut row = PlanRow {
            plan_token: plan_token.as_str().to_owned(),
            tool: plan.tool.clone(),
            caller: caller.to_owned(),
            state: lifecycle::first(gated),
            gated,
            approvals_needed: plan.quorum(),
            fingerprint: plan.fingerprint.clone(),
            seal: FIRST_PREV_HASH.to_owned(),
            created_at: tx.now,
            expires_at: tx.now.saturating_add(plan.ttl_ms),
            decided_at: None,
            executing_since: None,
            settled_at: None,
            attempt: 0,
            claim_token: None,
            instance_id: None,
            idempotency_key: plan.key.clone(),
            preview_count: plan.preview_count,
            data_digest: plan.data_digest.clone(),
            reason: plan.reason.clone(),
            reject_reason: None,
            error: None,
            approvals: 0,
            purged: false,
        };
        row.seal = row.seal_fields(plan.extra.as_ref()).seal().as_str().to_owned();
        tx.insert_plan(&NewRow { row: &row, payload: &plan.payload, extra: plan.extra.as_ref() })?;
        Ok(Ok(Created { earlier_rejection: earlier, ..answer(&row, &plan.payload, row.state, false) }))
    })
}

/// The plan that this (caller, tool, key) names already: for ever, also after a purge.
fn named_by_key(tx: &Tx<'_>, caller: &str, plan: &PreparedPlan, key: &str) -> Result<Option<Result<Created, No>>> {
    if let Some(full) = tx.full_by_key(caller, &plan.tool, key)? {
        if same_plan(&full, plan) {
            let state = full.core.state_at(tx.now);
            let earlier_rejection =
                tx.earlier_rejection(&full.core.tool, &full.core.fingerprint, &full.core.plan_token)?;
            return Ok(Some(Ok(Created { earlier_rejection, ..answer(&full.core, &full.payload, state, true) })));
        }
        return Ok(Some(Err(conflict(&full.core))));
    }
    let Some(row) = tx.tombstone_by_key(caller, &plan.tool, key)? else { return Ok(None) };
    if row.fingerprint != plan.fingerprint {
        return Ok(Some(Err(conflict(&row))));
    }
    let code = match row.state {
        State::Rejected => RefusalCode::PlanRejected,
        State::Expired => RefusalCode::PlanExpired,
        _ => RefusalCode::PlanUsed,
    };
    Ok(Some(Err(No::about(&row, row.refusal(code)))))
}

/// Equal in what runs and in what was previewed, and gated at least as strictly as is now asked for.
fn same_plan(full: &FullRow, plan: &PreparedPlan) -> bool {
    let gate_holds = !plan.asks_for_gate() || (full.core.gated && full.core.approvals_needed >= plan.quorum());
    full.core.fingerprint == plan.fingerprint
        && full.core.data_digest == plan.data_digest
        && full.extra == plan.extra
        && gate_holds
}

/// The audit names the plan that has the key; the answer does not.
fn conflict(row: &PlanRow) -> No {
    No::about(row, Refusal::new(RefusalCode::IdempotencyConflict))
}

fn answer(row: &PlanRow, payload: &CanonicalJson, state: State, already: bool) -> Created {
    Created {
        plan_token: PlanToken::from_stored(&row.plan_token),
        fingerprint: payload.fingerprint(),
        seal: Seal::from_stored(row.seal.clone()),
        state,
        expires_at: utc(row.expires_at),
        already,
        earlier_rejection: None,
    }
}
