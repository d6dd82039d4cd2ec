//! Rows to domain values, by column name. A stored value that this version does not know is `corrupt`, never a default.

use rusqlite::Row;

use crate::audit::AuditEvent;
use crate::canonical::CanonicalJson;
use crate::clock::utc;
use crate::error::{Error, Result};
use crate::escape::visible;
use crate::lifecycle::State;
use crate::names::PlanToken;
use crate::plan::{EarlierRejection, Plan};
use crate::refusal::{Refusal, RefusalCode, RefusedPlan};
use crate::seal::{Seal, SealFields};

/// A plan without its wide columns; or, after a purge, what its tombstone still says of it.
#[derive(Clone, Debug)]
pub(crate) struct PlanRow {
    pub(crate) plan_token: String,
    pub(crate) tool: String,
    pub(crate) caller: String,
    pub(crate) state: State,
    pub(crate) gated: bool,
    pub(crate) approvals_needed: u32,
    pub(crate) fingerprint: String,
    pub(crate) seal: String,
    pub(crate) created_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) decided_at: Option<i64>,
    pub(crate) executing_since: Option<i64>,
    pub(crate) settled_at: Option<i64>,
    pub(crate) attempt: u32,
    pub(crate) claim_token: Option<String>,
    pub(crate) instance_id: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) preview_count: Option<i64>,
    pub(crate) data_digest: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) reject_reason: Option<String>,
    pub(crate) error: Option<String>,
    /// How many approvals with this plan's seal stand.
    pub(crate) approvals: u32,
    /// Only the tombstone is left.
    pub(crate) purged: bool,
}

impl PlanRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self>> {
        let plan_token: String = row.get("plan_token")?;
        let state: String = row.get("state")?;
        let Some(state) = State::parse(&state) else {
            return Ok(Err(unknown(&plan_token, "state")));
        };
        Ok(Ok(Self {
            tool: row.get("tool")?,
            caller: row.get("caller")?,
            state,
            gated: row.get("gated")?,
            approvals_needed: row.get("approvals_needed")?,
            fingerprint: row.get("fingerprint")?,
            seal: row.get("seal")?,
            created_at: row.get("created_at")?,
            expires_at: row.get("expires_at")?,
            decided_at: row.get("decided_at")?,
            executing_since: row.get("executing_since")?,
            settled_at: row.get("settled_at")?,
            attempt: row.get("attempt")?,
            claim_token: row.get("claim_token")?,
            instance_id: row.get("instance_id")?,
            idempotency_key: row.get("idempotency_key")?,
            preview_count: row.get("preview_count")?,
            data_digest: row.get("data_digest")?,
            reason: row.get("reason")?,
            reject_reason: row.get("reject_reason")?,
            error: row.get("error")?,
            approvals: row.get("approvals")?,
            purged: false,
            plan_token,
        }))
    }

    /// What a tombstone still says, in the shape of a plan in that state: so every verb answers as that plan would.
    pub(super) fn read_tombstone(row: &Row<'_>) -> rusqlite::Result<Result<Self>> {
        let plan_token: String = row.get("plan_token")?;
        let kind: String = row.get("kind")?;
        let Some(state) = State::parse(&kind).filter(|state| state.is_terminal()) else {
            return Ok(Err(unknown(&plan_token, "kind of tombstone")));
        };
        let at: i64 = row.get("at")?;
        let reason: Option<String> = row.get("reason")?;
        Ok(Ok(Self {
            tool: row.get("tool")?,
            caller: row.get("caller")?,
            state,
            gated: false,
            approvals_needed: 1,
            fingerprint: row.get("fingerprint")?,
            seal: row.get("seal")?,
            created_at: at,
            expires_at: at,
            decided_at: None,
            executing_since: None,
            settled_at: Some(at),
            attempt: row.get("attempt")?,
            claim_token: None,
            instance_id: None,
            idempotency_key: None,
            preview_count: None,
            data_digest: None,
            reason: None,
            reject_reason: if state == State::Rejected { reason } else { None },
            error: None,
            approvals: 0,
            purged: true,
            plan_token,
        }))
    }

    /// The newest time that the row carries.
    pub(crate) fn newest_time(&self) -> i64 {
        let times = [self.decided_at, self.executing_since, self.settled_at];
        times.into_iter().flatten().fold(self.created_at, i64::max)
    }

    /// The state as a reader sees it: past its time means expired.
    pub(crate) fn state_at(&self, now: i64) -> State {
        if self.is_overdue(now) { State::Expired } else { self.state }
    }

    /// Unused and past its time. A plan is valid in the millisecond in which it expires.
    pub(crate) fn is_overdue(&self, now: i64) -> bool {
        self.state.is_open() && self.expires_at < now
    }

    pub(crate) fn quorum_complete(&self) -> bool {
        self.approvals >= self.approvals_needed
    }

    pub(crate) fn seal_fields<'a>(&'a self, extra: Option<&'a CanonicalJson>) -> SealFields<'a> {
        SealFields {
            plan_token: &self.plan_token,
            tool: &self.tool,
            caller: &self.caller,
            fingerprint: &self.fingerprint,
            data_digest: self.data_digest.as_deref(),
            reason: self.reason.as_deref(),
            extra,
            preview_count: self.preview_count,
            approvals_needed: self.approvals_needed,
            created_at_ms: self.created_at,
            expires_at_ms: self.expires_at,
        }
    }

    /// A refusal about this plan, with its metadata; PLAN_REJECTED carries the reviewer's reason.
    pub(crate) fn refusal(&self, code: RefusalCode) -> Refusal {
        let refusal = Refusal::new(code).with_plan(RefusedPlan {
            plan_token: self.plan_token.clone(),
            tool: self.tool.clone(),
            state: self.state,
            attempt: self.attempt,
            expires_at: (!self.purged).then(|| utc(self.expires_at)),
        });
        match code {
            RefusalCode::PlanRejected => {
                refusal.with_reason(self.reject_reason.as_deref().map(|reason| visible(reason).into_owned()))
            }
            _ => refusal,
        }
    }
}

/// A plan with its wide columns.
#[derive(Clone, Debug)]
pub(crate) struct FullRow {
    pub(crate) core: PlanRow,
    pub(crate) payload: CanonicalJson,
    pub(crate) extra: Option<CanonicalJson>,
    pub(crate) result: Option<CanonicalJson>,
}

impl FullRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self>> {
        let core = match PlanRow::read(row)? {
            Ok(core) => core,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(Self {
            core,
            payload: CanonicalJson::from_stored(row.get("payload")?),
            extra: row.get::<_, Option<String>>("extra")?.map(CanonicalJson::from_stored),
            result: row.get::<_, Option<String>>("result")?.map(CanonicalJson::from_stored),
        }))
    }

    /// The plan as readers see it at `now`.
    pub(crate) fn into_plan(self, approvals: Vec<crate::plan::ApprovalGiven>, now: i64) -> Plan {
        let Self { core, payload, extra, result } = self;
        Plan {
            state: core.state_at(now),
            plan_token: token(&core.plan_token),
            tool: core.tool,
            caller: core.caller,
            payload,
            fingerprint: core.fingerprint,
            seal: Seal::from_stored(core.seal),
            idempotency_key: core.idempotency_key,
            reason: core.reason,
            preview_count: core.preview_count,
            data_digest: core.data_digest,
            extra,
            gated: core.gated,
            approvals_needed: core.approvals_needed,
            approvals,
            created_at: utc(core.created_at),
            expires_at: utc(core.expires_at),
            decided_at: core.decided_at.map(utc),
            executing_since: core.executing_since.map(utc),
            settled_at: core.settled_at.map(utc),
            attempt: core.attempt,
            instance_id: core.instance_id,
            result,
            error: core.error,
            reject_reason: core.reject_reason,
        }
    }
}

/// An open gate that registered, as `instances` has it.
#[derive(Clone, Debug)]
pub(crate) struct InstanceRow {
    pub(crate) instance_id: String,
    pub(crate) lock_dev: i64,
    pub(crate) lock_ino: i64,
    pub(crate) boot_id: String,
    pub(crate) host_name: String,
    pub(crate) pid: i64,
    pub(crate) opened_at: i64,
}

impl InstanceRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            instance_id: row.get("instance_id")?,
            lock_dev: row.get("lock_dev")?,
            lock_ino: row.get("lock_ino")?,
            boot_id: row.get("boot_id")?,
            host_name: row.get("host_name")?,
            pid: row.get("pid")?,
            opened_at: row.get("opened_at")?,
        })
    }
}

pub(super) fn earlier_rejection(row: &Row<'_>) -> rusqlite::Result<EarlierRejection> {
    let plan_token: String = row.get("plan_token")?;
    Ok(EarlierRejection {
        plan_token: token(&plan_token),
        reviewer: row.get("actor")?,
        at: utc(row.get("at")?),
        reason: row.get("reason")?,
    })
}

pub(super) fn audit_event(row: &Row<'_>) -> rusqlite::Result<AuditEvent> {
    Ok(AuditEvent {
        seq: row.get("seq")?,
        at: row.get("at")?,
        plan_token: row.get("plan_token")?,
        event: row.get("event")?,
        from_state: row.get("from_state")?,
        to_state: row.get("to_state")?,
        tool: row.get("tool")?,
        caller: row.get("caller")?,
        reason: row.get("reason")?,
        actor: row.get("actor")?,
        channel: row.get("channel")?,
        code: row.get("code")?,
        detail: row.get("detail")?,
        preview_count: row.get("preview_count")?,
        fingerprint: row.get("fingerprint")?,
        attempt: row.get("attempt")?,
        instance_id: row.get("instance_id")?,
        duration_us: row.get("duration_us")?,
        prev_hash: row.get("prev_hash")?,
        hash: row.get("hash")?,
    })
}

/// The schema's CHECK keeps the shape; a token that slipped past it is still only compared, never trusted.
pub(super) fn token(text: &str) -> PlanToken {
    PlanToken::from_stored(text)
}

fn unknown(plan_token: &str, what: &str) -> Error {
    Error::corrupt(format!(
        "the {what} of plan {}… is not one that this version knows",
        visible(plan_token.get(..8).unwrap_or(""))
    ))
}
