//! The one error of this crate, and the refusals that it can carry.
//!
//! A refusal is a normal answer of the gate: the request was understood and the answer is no. Everything else is a
//! failure: the caller's mistake, a busy or broken store, or a file that is not what it was. The two are never turned
//! into each other (design section 5).

use std::fmt;
use std::time::Duration;

use crate::canonical::CanonicalError;
use crate::escape::visible_cut;
pub use crate::refusal::{Refusal, RefusalCode, RefusedPlan};

/// The result of a gate's verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a verb did not do what it was asked to do.
///
/// Opaque: ask its stable [`code`](Error::code), its predicates (`is_*`), or [`refusal`](Error::refusal) for the
/// details of a refusal. `Display` gives the message, [`hint`](Error::hint) says what the caller can do next.
///
/// ```
/// use countersign::{Gate, Redeem};
///
/// let gate = Gate::ephemeral()?;
/// let error = gate.agent("pricing-agent")?.begin_execute(Redeem::stored("0".repeat(48), "update_prices")).unwrap_err();
/// assert!(error.is_refused());
/// assert_eq!(error.code(), "UNKNOWN_TOKEN");
/// # Ok::<(), countersign::Error>(())
/// ```
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{}", .0.message())]
    Refused(Refusal),
    #[error("{0}")]
    Invalid(String),
    #[error("the database stayed locked by other writers for {} ms", .waited.as_millis())]
    Busy { waited: Duration },
    #[error("the database or its disk is full: {0}")]
    Full(String),
    #[error("the storage failed: {0}")]
    Storage(String),
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    #[error("the database file was moved, deleted or replaced while it was open: {0}")]
    Moved(String),
    #[error("the database is older than what this gate has seen: {0}")]
    RolledBack(String),
    #[error("the clock is {behind_ms} ms behind a time that the plan already carries")]
    ClockWentBack { behind_ms: i64 },
    #[error("the gate was opened by process {opened_by} and is used by process {used_by}, a fork of it")]
    Forked { opened_by: u32, used_by: u32 },
    #[error("the gate is closed")]
    Closed,
    #[error("{0}")]
    Unsupported(String),
    #[error("the commit failed and may or may not have taken effect: {0}")]
    Ambiguous(String),
}

impl Error {
    /// The stable code: a refusal's own ([`RefusalCode::as_str`]), or one of `INVALID_INPUT`, `BUSY`, `STORAGE_FULL`,
    /// `STORAGE`, `CORRUPT`, `MOVED`, `ROLLED_BACK`, `CLOCK_WENT_BACK`, `FORKED`, `CLOSED`, `UNSUPPORTED`,
    /// `AMBIGUOUS_COMMIT`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &*self.0 {
            Kind::Refused(refusal) => refusal.code().as_str(),
            Kind::Invalid(_) => "INVALID_INPUT",
            Kind::Busy { .. } => "BUSY",
            Kind::Full(_) => "STORAGE_FULL",
            Kind::Storage(_) => "STORAGE",
            Kind::Corrupt(_) => "CORRUPT",
            Kind::Moved(_) => "MOVED",
            Kind::RolledBack(_) => "ROLLED_BACK",
            Kind::ClockWentBack { .. } => "CLOCK_WENT_BACK",
            Kind::Forked { .. } => "FORKED",
            Kind::Closed => "CLOSED",
            Kind::Unsupported(_) => "UNSUPPORTED",
            Kind::Ambiguous(_) => "AMBIGUOUS_COMMIT",
        }
    }

    /// What the caller can do next, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &str {
        match &*self.0 {
            Kind::Refused(refusal) => refusal.hint(),
            Kind::Invalid(_) => "Correct the argument and call again; nothing was stored.",
            Kind::Busy { .. } => "Nothing was changed. Call again, or raise the busy deadline of the builder.",
            Kind::Full(_) => "Nothing was changed. Free disk space; the same gate works again then.",
            Kind::Storage(_) => "Nothing was changed. Check the disk and the permissions, then call again.",
            Kind::Corrupt(_) => {
                "Nothing was changed or run. Keep the file as evidence and compare it with a backup; never delete it to go on."
            }
            Kind::Moved(_) => "Nothing was run. Find out who replaced the file, then open the gate again.",
            Kind::RolledBack(_) => {
                "Nothing was run. If the restore was meant, an operator calls accept_restore; every other open gate is then reopened."
            }
            Kind::ClockWentBack { .. } => "Nothing was changed. Correct the clock of this machine, then call again.",
            Kind::Forked { .. } => "Start a new program (fork and exec), or fork before the gate is opened.",
            Kind::Closed => "Open the gate again.",
            Kind::Unsupported(_) => "Nothing was changed. The message says what is needed.",
            Kind::Ambiguous(_) => {
                "Do not run the side effect. Read the plan again: its row says whether the transition happened."
            }
        }
    }

    /// The refusal, when the gate understood the request and said no.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match &*self.0 {
            Kind::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// True for a refusal: a normal answer, recorded in the audit when the verb writes.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(&*self.0, Kind::Refused(_))
    }

    /// True for an argument that can never be accepted. Nothing was stored.
    #[must_use]
    pub fn is_invalid_input(&self) -> bool {
        matches!(&*self.0, Kind::Invalid(_))
    }

    /// True where other writers held the database past the deadline. Nothing was changed; the call can be repeated.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(&*self.0, Kind::Busy { .. })
    }

    /// How long a busy call waited.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        match &*self.0 {
            Kind::Busy { waited } => Some(*waited),
            _ => None,
        }
    }

    /// True where the disk (or the database's page limit) is full. Nothing was changed.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        matches!(&*self.0, Kind::Full(_))
    }

    /// True for an I/O error or another failure of the store.
    #[must_use]
    pub fn is_storage(&self) -> bool {
        matches!(&*self.0, Kind::Storage(_))
    }

    /// True where the file's content contradicts itself: it is not run, not repaired and not deleted.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(&*self.0, Kind::Corrupt(_))
    }

    /// True where the open file is no longer the file at its path.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        matches!(&*self.0, Kind::Moved(_))
    }

    /// True where the file was put back to an earlier state beneath the gate.
    #[must_use]
    pub fn is_rolled_back(&self) -> bool {
        matches!(&*self.0, Kind::RolledBack(_))
    }

    /// True where the clock is more than 2 s behind a time that the plan already carries.
    #[must_use]
    pub fn is_clock_went_back(&self) -> bool {
        matches!(&*self.0, Kind::ClockWentBack { .. })
    }

    /// True in a forked child of the process that opened the gate.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        matches!(&*self.0, Kind::Forked { .. })
    }

    /// True after [`Gate::close`](crate::Gate::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(&*self.0, Kind::Closed)
    }

    /// True for a SQLite version, file system, file or schema that this version cannot use safely.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(&*self.0, Kind::Unsupported(_))
    }

    /// True where a commit failed with an I/O error: it may have taken effect or not. After a `begin_execute` the side
    /// effect must not run (sqlite.md, "Commit and errors").
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(&*self.0, Kind::Ambiguous(_))
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self(Box::new(Kind::Refused(refusal)))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Invalid(message.into())))
    }

    pub(crate) fn busy(waited: Duration) -> Self {
        Self(Box::new(Kind::Busy { waited }))
    }

    pub(crate) fn full(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Full(message.into())))
    }

    pub(crate) fn storage(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Storage(message.into())))
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Corrupt(message.into())))
    }

    pub(crate) fn moved(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Moved(message.into())))
    }

    pub(crate) fn rolled_back(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::RolledBack(message.into())))
    }

    pub(crate) fn clock_went_back(behind_ms: i64) -> Self {
        Self(Box::new(Kind::ClockWentBack { behind_ms }))
    }

    pub(crate) fn forked(opened_by: u32, used_by: u32) -> Self {
        Self(Box::new(Kind::Forked { opened_by, used_by }))
    }

    pub(crate) fn closed() -> Self {
        Self(Box::new(Kind::Closed))
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Unsupported(message.into())))
    }

    pub(crate) fn ambiguous(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Ambiguous(message.into())))
    }

    pub(crate) fn from_canonical(error: CanonicalError) -> Self {
        Self::invalid(error.to_string())
    }

    pub(crate) fn from_io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        let message = format!("{what} {}: {error}", visible_cut(&path.to_string_lossy(), 400));
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::full(message),
            _ => Self::storage(message),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("code", &self.code()).field("message", &self.to_string()).finish()
    }
}

impl std::error::Error for Error {}

impl serde::Serialize for Error {
    /// `{code, message, hint}`, and `reason` for PLAN_REJECTED.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if let Some(refusal) = self.refusal() {
            return refusal.serialize(serializer);
        }
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("Error", 3)?;
        out.serialize_field("code", self.code())?;
        out.serialize_field("message", &self.to_string())?;
        out.serialize_field("hint", self.hint())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds that no host can make happen at will; `tests/messages.rs` has the others.
    #[test]
    fn the_kinds_of_broken_machines_have_their_words() {
        let said = |error: &Error| (error.code(), error.to_string(), error.hint().to_owned());
        let forked = Error::forked(7, 8);
        assert!(forked.is_forked() && !forked.is_refused());
        assert_eq!(
            said(&forked),
            (
                "FORKED",
                "the gate was opened by process 7 and is used by process 8, a fork of it".to_owned(),
                "Start a new program (fork and exec), or fork before the gate is opened.".to_owned()
            )
        );
        let ambiguous = Error::ambiguous("disk I/O error");
        assert!(ambiguous.is_ambiguous() && !ambiguous.is_storage());
        assert_eq!(
            said(&ambiguous),
            (
                "AMBIGUOUS_COMMIT",
                "the commit failed and may or may not have taken effect: disk I/O error".to_owned(),
                "Do not run the side effect. Read the plan again: its row says whether the transition happened."
                    .to_owned()
            )
        );
    }
}
