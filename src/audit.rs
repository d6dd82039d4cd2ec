//! Audit rows and the hash chain over them (design section 7).
//!
//! `hash = sha256(prev_hash as hex text, then the canonical JSON array of the columns seq to duration_us)`; the first
//! `prev_hash` is 64 zeros. The chain is tamper-evident: it shows an edited, removed or inserted row. It does not show a
//! rewrite of the whole chain, nor a cut tail, to somebody who kept no [`Head`].

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::canonical::push_string;
use crate::error::{Error, Result};
use crate::names::{hex, is_hex_of};

/// The `prev_hash` of the first row.
pub(crate) const FIRST_PREV_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One row of the audit. Texts that came from agents and people are escaped; payloads are never in it.
///
/// It serialises with the column names of `audit_events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The row's number: contiguous from 1.
    pub seq: i64,
    /// When, in milliseconds since 1970-01-01 UTC. Order by `seq`, not by this.
    pub at: i64,
    /// The plan, or none.
    pub plan_token: Option<String>,
    /// What happened: a transition, `refused`, `host:<name>`, ...
    pub event: String,
    /// The plan's state before.
    pub from_state: Option<String>,
    /// The plan's state after.
    pub to_state: Option<String>,
    /// The plan's tool.
    pub tool: Option<String>,
    /// The agent whose plan it is.
    pub caller: Option<String>,
    /// The agent's reason at creation, the reviewer's at a rejection.
    pub reason: Option<String>,
    /// Who did it.
    pub actor: String,
    /// Through what.
    pub channel: String,
    /// A refusal's code, or the kind of a failure.
    pub code: Option<String>,
    /// The seal at creation and approval; otherwise what the event says about itself.
    pub detail: Option<String>,
    /// The host's count at creation.
    pub preview_count: Option<i64>,
    /// The payload's fingerprint.
    pub fingerprint: Option<String>,
    /// The claim that it concerns.
    pub attempt: Option<i64>,
    /// The open gate that wrote the row.
    pub instance_id: String,
    /// Claim to confirm, in microseconds, on a confirm's rows.
    pub duration_us: Option<i64>,
    /// The hash of the row before.
    pub prev_hash: String,
    /// The hash of this row.
    pub hash: String,
}

impl AuditEvent {
    /// The hash that this row must carry, recomputed from its columns and its `prev_hash`.
    #[must_use]
    pub fn computed_hash(&self) -> String {
        hex(&self.as_row().digest(&mut String::with_capacity(640)))
    }

    fn as_row(&self) -> AuditRow<'_> {
        AuditRow {
            seq: self.seq,
            at: self.at,
            plan_token: self.plan_token.as_deref(),
            event: &self.event,
            from_state: self.from_state.as_deref(),
            to_state: self.to_state.as_deref(),
            tool: self.tool.as_deref(),
            caller: self.caller.as_deref(),
            reason: self.reason.as_deref(),
            actor: &self.actor,
            channel: &self.channel,
            code: self.code.as_deref(),
            detail: self.detail.as_deref(),
            preview_count: self.preview_count,
            fingerprint: self.fingerprint.as_deref(),
            attempt: self.attempt,
            instance_id: &self.instance_id,
            duration_us: self.duration_us,
            prev_hash: &self.prev_hash,
            hash: &self.hash,
        }
    }
}

/// An [`AuditEvent`] that borrows its texts: a walk over millions of rows copies none of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditRow<'a> {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) plan_token: Option<&'a str>,
    pub(crate) event: &'a str,
    pub(crate) from_state: Option<&'a str>,
    pub(crate) to_state: Option<&'a str>,
    pub(crate) tool: Option<&'a str>,
    pub(crate) caller: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) actor: &'a str,
    pub(crate) channel: &'a str,
    pub(crate) code: Option<&'a str>,
    pub(crate) detail: Option<&'a str>,
    pub(crate) preview_count: Option<i64>,
    pub(crate) fingerprint: Option<&'a str>,
    pub(crate) attempt: Option<i64>,
    pub(crate) instance_id: &'a str,
    pub(crate) duration_us: Option<i64>,
    pub(crate) prev_hash: &'a str,
    pub(crate) hash: &'a str,
}

impl AuditRow<'_> {
    /// True when the row carries the hash of its columns and its `prev_hash`. `line` is a buffer to work in.
    pub(crate) fn is_hashed(&self, line: &mut String) -> bool {
        is_hex_of(self.hash, &self.digest(line))
    }

    fn digest(&self, line: &mut String) -> [u8; 32] {
        let number = |line: &mut String, value: Option<i64>| {
            line.push(',');
            match value {
                Some(value) => line.push_str(itoa::Buffer::new().format(value)),
                None => line.push_str("null"),
            }
        };
        let text = |line: &mut String, value: Option<&str>| {
            line.push(',');
            match value {
                Some(value) => push_string(line, value),
                None => line.push_str("null"),
            }
        };
        line.clear();
        line.push_str(self.prev_hash);
        line.push('[');
        line.push_str(itoa::Buffer::new().format(self.seq));
        number(line, Some(self.at));
        text(line, self.plan_token);
        text(line, Some(self.event));
        text(line, self.from_state);
        text(line, self.to_state);
        text(line, self.tool);
        text(line, self.caller);
        text(line, self.reason);
        text(line, Some(self.actor));
        text(line, Some(self.channel));
        text(line, self.code);
        text(line, self.detail);
        number(line, self.preview_count);
        text(line, self.fingerprint);
        number(line, self.attempt);
        text(line, Some(self.instance_id));
        number(line, self.duration_us);
        line.push(']');
        Sha256::digest(line.as_bytes()).into()
    }
}

/// Where an audit stood: the store's random id, the newest row's number and its hash. Keep one outside the file, and
/// [`verify`](crate::Audit::verify) finds a cut or replaced tail.
///
/// Its text form is `STORE:SEQ:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Head {
    /// The random id from the `store_created` row.
    pub store_id: String,
    /// The newest row's number.
    pub seq: i64,
    /// The newest row's hash.
    pub hash: String,
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.store_id, self.seq, self.hash)
    }
}

impl std::str::FromStr for Head {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let hex_digits = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
        let mut parts = text.trim().split(':');
        match (parts.next(), parts.next().and_then(|seq| seq.parse().ok()), parts.next(), parts.next()) {
            (Some(store), Some(seq), Some(hash), None) if hex_digits(store, 32) && hex_digits(hash, 64) && seq >= 1 => {
                Ok(Self { store_id: store.to_ascii_lowercase(), seq, hash: hash.to_ascii_lowercase() })
            }
            _ => Err(Error::invalid("this is no audit head: it has the form STORE:SEQ:HASH, as `head` printed it")),
        }
    }
}

/// An observer of audit events, called after the commit that wrote them, in order. What it does never changes a
/// result; the table is the record.
pub trait AuditSink: Send + Sync + 'static {
    /// One event that was committed. A panic in it is reported and otherwise ignored.
    fn on_event(&self, event: &AuditEvent);
}

/// Which audit rows a query returns: all conditions that are set hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    pub(crate) plan_token: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) caller: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) since_ms: Option<i64>,
    pub(crate) until_ms: Option<i64>,
    pub(crate) after_seq: Option<i64>,
    pub(crate) before_seq: Option<i64>,
    pub(crate) newest_first: bool,
    pub(crate) limit: Option<u32>,
}

impl AuditQuery {
    /// All rows, oldest first, at most 1,000 at a time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows of this plan.
    #[must_use]
    pub fn plan(mut self, token: impl AsRef<str>) -> Self {
        self.plan_token = Some(crate::plan::short(token.as_ref()));
        self
    }

    /// Rows about this tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<String>) -> Self {
        self.tool = Some(tool.into());
        self
    }

    /// Rows about this caller's plans.
    #[must_use]
    pub fn caller(mut self, caller: impl Into<String>) -> Self {
        self.caller = Some(caller.into());
        self
    }

    /// Rows with this event name.
    #[must_use]
    pub fn event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }

    /// Rows with this code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Rows at or after this time.
    #[must_use]
    pub fn since(mut self, at: chrono::DateTime<chrono::Utc>) -> Self {
        self.since_ms = Some(at.timestamp_millis());
        self
    }

    /// Rows before this time.
    #[must_use]
    pub fn until(mut self, at: chrono::DateTime<chrono::Utc>) -> Self {
        self.until_ms = Some(at.timestamp_millis());
        self
    }

    /// Rows after this number: for the next page, and to follow.
    #[must_use]
    pub fn after(mut self, seq: i64) -> Self {
        self.after_seq = Some(seq);
        self
    }

    /// Rows before this number: for the next page, newest first.
    #[must_use]
    pub fn before(mut self, seq: i64) -> Self {
        self.before_seq = Some(seq);
        self
    }

    /// Newest first.
    #[must_use]
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// At most this many rows; at most 10,000 at a time.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }
}
