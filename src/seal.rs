//! The seal: what a reviewer countersigns (design section 1).

use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

use crate::canonical::{CanonicalJson, push_string};
use crate::names::hex;

/// Everything that a reviewer decides on. All of it is fixed when the plan is created.
///
/// The seal is the SHA-256 of the canonical JSON of these fields, with `v` = 1, absent values as null, times as integer
/// milliseconds and `extra` as the object itself. A host can recompute it:
///
/// ```
/// use countersign::{Approval, Gate, NewPlan};
///
/// let gate = Gate::ephemeral()?;
/// let agent = gate.agent("pricing-agent")?;
/// let created = agent.create(NewPlan::new("update_prices", &[1, 2], Approval::required()))?;
/// let plan = agent.plan(&created.plan_token)?;
/// assert_eq!(plan.seal_fields().seal(), created.seal);
/// # Ok::<(), countersign::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SealFields<'a> {
    /// The plan's token.
    pub plan_token: &'a str,
    /// The plan's tool.
    pub tool: &'a str,
    /// The agent that created it.
    pub caller: &'a str,
    /// The payload's fingerprint.
    pub fingerprint: &'a str,
    /// The host's digest of the data that the preview looked at.
    pub data_digest: Option<&'a str>,
    /// The agent's words, as they were given.
    pub reason: Option<&'a str>,
    /// The host's words: a JSON object in canonical form.
    pub extra: Option<&'a CanonicalJson>,
    /// How many things the write touches, as the host counted.
    pub preview_count: Option<i64>,
    /// How many reviewers have to approve.
    pub approvals_needed: u32,
    /// Creation, in milliseconds since 1970-01-01 UTC.
    pub created_at_ms: i64,
    /// Expiry, in milliseconds since 1970-01-01 UTC.
    pub expires_at_ms: i64,
}

impl SealFields<'_> {
    /// The canonical JSON that is hashed.
    #[must_use]
    pub fn canonical_json(&self) -> String {
        // The keys stand in UTF-16 order, as canonical JSON has them; a test compares this with the general serializer.
        let mut out = String::with_capacity(512);
        let number = |out: &mut String, key: &str, value: Option<i64>| match value {
            Some(value) => write!(out, "{key}{value}"),
            None => write!(out, "{key}null"),
        };
        let text = |out: &mut String, key: &str, value: Option<&str>| {
            out.push_str(key);
            match value {
                Some(value) => push_string(out, value),
                None => out.push_str("null"),
            }
        };
        // Writing into a String does not fail.
        let _ = number(&mut out, "{\"approvals_needed\":", Some(i64::from(self.approvals_needed)));
        text(&mut out, ",\"caller\":", Some(self.caller));
        let _ = number(&mut out, ",\"created_at\":", Some(self.created_at_ms));
        text(&mut out, ",\"data_digest\":", self.data_digest);
        let _ = number(&mut out, ",\"expires_at\":", Some(self.expires_at_ms));
        out.push_str(",\"extra\":");
        out.push_str(self.extra.map_or("null", CanonicalJson::as_str));
        text(&mut out, ",\"fingerprint\":", Some(self.fingerprint));
        text(&mut out, ",\"plan_token\":", Some(self.plan_token));
        let _ = number(&mut out, ",\"preview_count\":", self.preview_count);
        text(&mut out, ",\"reason\":", self.reason);
        text(&mut out, ",\"tool\":", Some(self.tool));
        out.push_str(",\"v\":1}");
        out
    }

    /// The seal.
    #[must_use]
    pub fn seal(&self) -> Seal {
        Seal(hex(&Sha256::digest(self.canonical_json().as_bytes())))
    }
}

/// The seal of a plan: 64 lower-case hex digits over everything that a reviewer decides on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seal(String);

impl Seal {
    pub(crate) fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The seal's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Seal {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl serde::Serialize for Seal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}
