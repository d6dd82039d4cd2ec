//! Rows to domain values, each column under its name. A stored value that this version does not know is `corrupt`, never a default.

use rusqlite::Row;
use rusqlite::types::{FromSql, Type, ValueRef};

use crate::audit::{AuditEvent, AuditRow};
use crate::canonical::CanonicalJson;
use crate::clock::utc;
use crate::error::{Error, Result};
use crate::escape::visible;
use crate::lifecycle::State;
use crate::names::PlanToken;
use crate::plan::{EarlierRejection, Plan};
use crate::refusal::{Refusal, RefusalCode, RefusedPlan};
use crate::seal::{Seal, SealFields};

/// Reads a row's columns in the order of their statement, each under the name that it must have there. Finding a column
/// by its name costs more than the rest of reading it, which a walk over millions of rows feels; so the names are
/// compared in debug builds, where the tests run, and the order alone counts in a release.
struct InOrder<'r, 's> {
    row: &'r Row<'s>,
    at: usize,
}

impl<'r, 's> InOrder<'r, 's> {
    fn new(row: &'r Row<'s>) -> Self {
        Self { row, at: 0 }
    }

    fn next<T: FromSql>(&mut self, name: &str) -> rusqlite::Result<T> {
        debug_assert_eq!(self.row.as_ref().column_name(self.at), Ok(name));
        let value = self.row.get(self.at);
        self.at += 1;
        value
    }

    /// A text where it lies, good until the statement's next step.
    fn text(&mut self, name: &str) -> rusqlite::Result<&'r str> {
        let at = self.at;
        self.text_or_null(name)?.ok_or_else(|| rusqlite::Error::InvalidColumnType(at, name.to_owned(), Type::Null))
    }

    fn text_or_null(&mut self, name: &str) -> rusqlite::Result<Option<&'r str>> {
        debug_assert_eq!(self.row.as_ref().column_name(self.at), Ok(name));
        let (row, at) = (self.row, self.at);
        self.at += 1;
        match row.get_ref(at)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map(Some).map_err(|error| rusqlite::Error::Utf8Error(at, error))
            }
            other => Err(rusqlite::Error::InvalidColumnType(at, name.to_owned(), other.data_type())),
        }
    }
}

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
        Self::read_from(&mut InOrder::new(row))
    }

    /// The columns of `core_columns!`, in its order.
    fn read_from(row: &mut InOrder<'_, '_>) -> rusqlite::Result<Result<Self>> {
        let plan_token: String = row.next("plan_token")?;
        let (tool, caller) = (row.next("tool")?, row.next("caller")?);
        let state: String = row.next("state")?;
        let Some(state) = State::parse(&state) else {
            return Ok(Err(unknown(&plan_token, "state")));
        };
        Ok(Ok(Self {
            plan_token,
            tool,
            caller,
            state,
            gated: row.next("gated")?,
            approvals_needed: row.next("approvals_needed")?,
            fingerprint: row.next("fingerprint")?,
            seal: row.next("seal")?,
            created_at: row.next("created_at")?,
            expires_at: row.next("expires_at")?,
            decided_at: row.next("decided_at")?,
            executing_since: row.next("executing_since")?,
            settled_at: row.next("settled_at")?,
            attempt: row.next("attempt")?,
            claim_token: row.next("claim_token")?,
            instance_id: row.next("instance_id")?,
            idempotency_key: row.next("idempotency_key")?,
            preview_count: row.next("preview_count")?,
            data_digest: row.next("data_digest")?,
            reason: row.next("reason")?,
            reject_reason: row.next("reject_reason")?,
            error: row.next("error")?,
            approvals: row.next("approvals")?,
            purged: false,
        }))
    }

    /// What a tombstone still says, in the shape of a plan in that state: so every verb answers as that plan would.
    pub(super) fn read_tombstone(row: &Row<'_>) -> rusqlite::Result<Result<Self>> {
        let mut row = InOrder::new(row);
        let plan_token: String = row.next("plan_token")?;
        let kind: String = row.next("kind")?;
        let (caller, tool) = (row.next("caller")?, row.next("tool")?);
        let (fingerprint, attempt) = (row.next("fingerprint")?, row.next("attempt")?);
        let reason: Option<String> = row.next("reason")?;
        let at: i64 = row.next("at")?;
        let Some(state) = State::parse(&kind).filter(|state| state.is_terminal()) else {
            return Ok(Err(unknown(&plan_token, "kind of tombstone")));
        };
        Ok(Ok(Self {
            tool,
            caller,
            state,
            gated: false,
            approvals_needed: 1,
            fingerprint,
            seal: row.next("seal")?,
            created_at: at,
            expires_at: at,
            decided_at: None,
            executing_since: None,
            settled_at: Some(at),
            attempt,
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
        let mut row = InOrder::new(row);
        let core = match PlanRow::read_from(&mut row)? {
            Ok(core) => core,
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(Self {
            core,
            payload: CanonicalJson::from_stored(row.next("payload")?),
            extra: row.next::<Option<String>>("extra")?.map(CanonicalJson::from_stored),
            result: row.next::<Option<String>>("result")?.map(CanonicalJson::from_stored),
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

/// Kind, fingerprint, tool, caller, attempt.
pub(super) type Buried = (String, String, String, String, i64);

/// As [`Buried`], where it lies.
pub(super) type BuriedRef<'r> = (&'r str, &'r str, &'r str, &'r str, i64);

/// What the audit vouches for of a tombstone.
pub(super) fn tombstone_verified(row: &Row<'_>) -> rusqlite::Result<Buried> {
    let (kind, fingerprint, tool, caller, attempt) = buried(row)?;
    Ok((kind.to_owned(), fingerprint.to_owned(), tool.to_owned(), caller.to_owned(), attempt))
}

pub(super) fn buried<'r>(row: &'r Row<'_>) -> rusqlite::Result<BuriedRef<'r>> {
    let mut row = InOrder::new(row);
    Ok((row.text("kind")?, row.text("fingerprint")?, row.text("tool")?, row.text("caller")?, row.next("attempt")?))
}

/// What the audit vouches for of an approval: reviewer, seal, channel and time.
pub(super) fn approval<'r>(row: &'r Row<'_>) -> rusqlite::Result<(&'r str, &'r str, &'r str, i64)> {
    let mut row = InOrder::new(row);
    Ok((row.text("reviewer")?, row.text("seal")?, row.text("channel")?, row.next("approved_at")?))
}

/// The columns of `audit_columns!`, in its order.
pub(super) fn audit_event(row: &Row<'_>) -> rusqlite::Result<AuditEvent> {
    let mut row = InOrder::new(row);
    Ok(AuditEvent {
        seq: row.next("seq")?,
        at: row.next("at")?,
        plan_token: row.next("plan_token")?,
        event: row.next("event")?,
        from_state: row.next("from_state")?,
        to_state: row.next("to_state")?,
        tool: row.next("tool")?,
        caller: row.next("caller")?,
        reason: row.next("reason")?,
        actor: row.next("actor")?,
        channel: row.next("channel")?,
        code: row.next("code")?,
        detail: row.next("detail")?,
        preview_count: row.next("preview_count")?,
        fingerprint: row.next("fingerprint")?,
        attempt: row.next("attempt")?,
        instance_id: row.next("instance_id")?,
        duration_us: row.next("duration_us")?,
        prev_hash: row.next("prev_hash")?,
        hash: row.next("hash")?,
    })
}

/// As [`audit_event`], without a copy of its texts.
pub(super) fn audit_row<'r>(row: &'r Row<'_>) -> rusqlite::Result<AuditRow<'r>> {
    let mut row = InOrder::new(row);
    Ok(AuditRow {
        seq: row.next("seq")?,
        at: row.next("at")?,
        plan_token: row.text_or_null("plan_token")?,
        event: row.text("event")?,
        from_state: row.text_or_null("from_state")?,
        to_state: row.text_or_null("to_state")?,
        tool: row.text_or_null("tool")?,
        caller: row.text_or_null("caller")?,
        reason: row.text_or_null("reason")?,
        actor: row.text("actor")?,
        channel: row.text("channel")?,
        code: row.text_or_null("code")?,
        detail: row.text_or_null("detail")?,
        preview_count: row.next("preview_count")?,
        fingerprint: row.text_or_null("fingerprint")?,
        attempt: row.next("attempt")?,
        instance_id: row.text("instance_id")?,
        duration_us: row.next("duration_us")?,
        prev_hash: row.text("prev_hash")?,
        hash: row.text("hash")?,
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
