//! The write transaction: what every writing verb does through it, and the audit rows that it leaves.

use std::ops::Deref;
use std::time::Instant;

use rusqlite::{ToSql, named_params};

use super::map_sql;
use super::queries as q;
use super::read::{Reader, bind};
use super::rows::{InstanceRow, PlanRow};
use crate::audit::{AuditEvent, FIRST_PREV_HASH};
use crate::error::{Error, Result};
use crate::escape::visible;
use crate::failpoint::hit;
use crate::lifecycle::State;
use crate::names::Actor;
use crate::refusal::Refusal;

/// A remembered audit head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) seq: i64,
    pub(crate) hash: String,
}

/// A refusal on its way out, with the audit row that it leaves.
#[derive(Debug)]
pub(crate) struct No {
    pub(crate) refusal: Refusal,
    pub(crate) draft: Draft,
}

impl No {
    pub(crate) fn new(refusal: Refusal) -> Self {
        let draft = Draft { code: Some(refusal.code().as_str()), ..Draft::new("refused") };
        Self { refusal, draft }
    }

    /// A refusal about this plan.
    pub(crate) fn about(row: &PlanRow, refusal: Refusal) -> Self {
        let draft = Draft { code: Some(refusal.code().as_str()), ..Draft::unchanged("refused", row) };
        Self { refusal, draft }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.draft.detail = Some(detail.into());
        self
    }
}

/// An audit row before it has a place in the chain. Texts are escaped when it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) event: String,
    pub(crate) plan_token: Option<String>,
    pub(crate) from_state: Option<State>,
    pub(crate) to_state: Option<State>,
    pub(crate) tool: Option<String>,
    pub(crate) caller: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) code: Option<&'static str>,
    pub(crate) detail: Option<String>,
    pub(crate) preview_count: Option<i64>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) attempt: Option<i64>,
    pub(crate) duration_us: Option<i64>,
}

impl Draft {
    pub(crate) fn new(event: &str) -> Self {
        Self { event: event.to_owned(), ..Self::default() }
    }

    /// A row about a plan whose state stays.
    pub(crate) fn unchanged(event: &str, row: &PlanRow) -> Self {
        Self {
            plan_token: Some(row.plan_token.clone()),
            from_state: Some(row.state),
            to_state: Some(row.state),
            tool: Some(row.tool.clone()),
            caller: Some(row.caller.clone()),
            fingerprint: Some(row.fingerprint.clone()),
            attempt: (row.attempt > 0).then_some(i64::from(row.attempt)),
            ..Self::new(event)
        }
    }
}

/// One open `BEGIN IMMEDIATE` transaction.
pub(crate) struct Tx<'c> {
    reader: Reader<'c>,
    pub(crate) instance_id: &'c str,
    pub(crate) actor: &'c Actor,
    head: Option<Seen>,
    events: Vec<AuditEvent>,
}

impl<'c> Deref for Tx<'c> {
    type Target = Reader<'c>;

    fn deref(&self) -> &Reader<'c> {
        &self.reader
    }
}

impl<'c> Tx<'c> {
    /// Reads the head of the chain; the caller holds the write lock.
    pub(super) fn begin(
        sql: &'c rusqlite::Connection,
        now: i64,
        instance_id: &'c str,
        actor: &'c Actor,
        started: Instant,
    ) -> Result<Self> {
        let reader = Reader { sql, now, started };
        let mut tx = Self { reader, instance_id, actor, head: None, events: Vec::new() };
        tx.head = tx.head()?;
        Ok(tx)
    }

    /// The row at the remembered head must still carry the remembered hash (design section 8, "Rolled back").
    pub(super) fn check_not_rolled_back(&self, seen: Option<&Seen>) -> Result<()> {
        // Mostly nobody else wrote since.
        if seen.is_some() && self.head.as_ref() == seen {
            return Ok(());
        }
        self.reader.check_not_rolled_back(seen)
    }

    /// The head after the rows of this transaction, and those rows.
    pub(super) fn finish(self) -> (Option<Seen>, Vec<AuditEvent>) {
        (self.head, self.events)
    }

    /// Writes an audit row: the next number, and the hash over the row before.
    pub(crate) fn audit(&mut self, draft: Draft) -> Result<()> {
        let (seq, prev_hash) = match &self.head {
            Some(head) => (head.seq + 1, head.hash.clone()),
            None => (1, FIRST_PREV_HASH.to_owned()),
        };
        let escaped = |text: Option<String>| text.map(|text| visible(&text).into_owned());
        let mut event = AuditEvent {
            seq,
            at: self.now,
            plan_token: draft.plan_token,
            event: draft.event,
            from_state: draft.from_state.map(|state| state.as_str().to_owned()),
            to_state: draft.to_state.map(|state| state.as_str().to_owned()),
            tool: draft.tool,
            caller: draft.caller,
            reason: escaped(draft.reason),
            actor: self.actor.name.clone(),
            channel: self.actor.channel.as_str().to_owned(),
            code: draft.code.map(str::to_owned),
            detail: escaped(draft.detail),
            preview_count: draft.preview_count,
            fingerprint: draft.fingerprint,
            attempt: draft.attempt,
            instance_id: self.instance_id.to_owned(),
            duration_us: draft.duration_us,
            prev_hash,
            hash: String::new(),
        };
        event.hash = event.computed_hash();
        self.insert(
            q::AUDIT_INSERT,
            named_params! {
                ":seq": event.seq, ":at": event.at, ":plan_token": event.plan_token, ":event": event.event,
                ":from_state": event.from_state, ":to_state": event.to_state, ":tool": event.tool,
                ":caller": event.caller, ":reason": event.reason, ":actor": event.actor, ":channel": event.channel,
                ":code": event.code, ":detail": event.detail, ":preview_count": event.preview_count,
                ":fingerprint": event.fingerprint, ":attempt": event.attempt, ":instance_id": event.instance_id,
                ":duration_us": event.duration_us, ":prev_hash": event.prev_hash, ":hash": event.hash,
            },
        )?;
        self.head = Some(Seen { seq, hash: event.hash.clone() });
        self.events.push(event);
        Ok(())
    }

    /// The `refused` row of a refusal.
    pub(super) fn refused(&mut self, no: &No) -> Result<()> {
        self.audit(no.draft.clone())
    }

    pub(crate) fn insert_approval(&self, row: &PlanRow) -> Result<()> {
        self.insert(
            q::APPROVAL_INSERT,
            named_params! {
                ":plan_token": row.plan_token, ":reviewer": self.actor.name, ":seal": row.seal,
                ":channel": self.actor.channel.as_str(), ":approved_at": self.now,
            },
        )
    }

    pub(crate) fn delete_approvals(&self, token: &str) -> Result<usize> {
        self.run(q::APPROVALS_DELETE, named_params! {":plan_token": token})
    }

    pub(crate) fn lift(&self, tool: &str, fingerprint: &str) -> Result<usize> {
        self.run(
            q::TOMBSTONES_LIFT,
            named_params! {
                ":now": self.now, ":actor": self.actor.name, ":tool": tool, ":fingerprint": fingerprint,
            },
        )
    }

    /// Deletes a settled plan and its approvals; false when it is not (any more) to be purged.
    pub(crate) fn purge(&self, rowid: i64, before: i64) -> Result<bool> {
        let params = named_params! {":rowid": rowid, ":before": before};
        self.run(q::PLAN_PURGE_APPROVALS, params)?;
        Ok(self.run(q::PLAN_PURGE, params)? == 1)
    }

    /// An operator accepted the copy: from now on it is a gate like any other.
    pub(super) fn unmark_backup(&self) -> Result<()> {
        map_sql(self.sql.pragma_update(None, "application_id", super::schema::APPLICATION_ID), self.started)
    }

    /// A statement of this crate that changes no plan and leaves no audit row, such as the making of an index.
    pub(super) fn define(&self, statement: &str) -> Result<()> {
        map_sql(self.sql.execute_batch(statement), self.started)
    }

    /// Writes a page without changing anything.
    pub(super) fn touch(&self) -> Result<()> {
        let version = self.pragma("user_version")?;
        // Not kept prepared: its text is its own.
        map_sql(self.sql.execute_batch(&format!("PRAGMA user_version = {version}")), self.started)
    }

    pub(crate) fn insert_instance(&self, row: &InstanceRow) -> Result<()> {
        self.insert(
            q::INSTANCE_INSERT,
            named_params! {
                ":instance_id": row.instance_id, ":lock_dev": row.lock_dev, ":lock_ino": row.lock_ino,
                ":boot_id": row.boot_id, ":host_name": row.host_name, ":pid": row.pid, ":opened_at": row.opened_at,
            },
        )
    }

    /// Forgets an instance; false while it owns an executing plan.
    pub(crate) fn delete_instance(&self, instance_id: &str) -> Result<bool> {
        Ok(self.run(q::INSTANCE_DELETE, named_params! {":instance_id": instance_id})? == 1)
    }

    /// One row, or an error: a trigger that was planted after the open can swallow an insert without one.
    pub(super) fn insert(&self, statement: &str, params: &[(&str, &dyn ToSql)]) -> Result<()> {
        match self.run(statement, params)? {
            1 => Ok(()),
            _ => Err(Error::storage("a row was not stored: a trigger must have swallowed it")),
        }
    }

    pub(super) fn run(&self, statement: &str, params: &[(&str, &dyn ToSql)]) -> Result<usize> {
        let changed = self.sql.prepare_cached(statement).and_then(|mut statement| {
            bind(&mut statement, params)?;
            statement.raw_execute()
        });
        let changed = map_sql(changed, self.started);
        hit("after_statement");
        changed
    }
}
