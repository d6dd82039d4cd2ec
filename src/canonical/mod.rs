//! Canonical JSON and the fingerprint.
//!
//! # The form
//!
//! Object keys sorted by UTF-16 code units, no white space, strings escaped as ECMAScript's `JSON.stringify` escapes
//! them, no Unicode normalisation. A number without fraction or exponent that fits `i64` or `u64` is an integer and is
//! printed exactly; every other number is a double and is printed as ECMAScript prints it. Up to 2^53 the result is
//! `JSON.stringify` with sorted keys.
//!
//! # What holds
//!
//! - Equal canonical text if and only if equal fingerprint.
//! - Two different 64-bit integers never share a text, nor do two different doubles (0 and -0 count as one). An integer
//!   and a double share a text when the double prints as that integer: 1.0 and 1.
//! - Canonical text is a fixed point: read as JSON text it yields itself.
//! - The features `arbitrary_precision`, `preserve_order` and `raw_value` of serde_json, which a host may switch on,
//!   change no fingerprint.
//!
//! # What is refused
//!
//! NaN and infinities, number texts that overflow, integers that fit neither `i64` nor `u64` (unless the text is what
//! ECMAScript prints for a double, which it then is), keys that come twice, keys that are not strings, lone surrogates,
//! more depth or size than the limits, and any text that is not JSON by RFC 8259.
//!
//! A `serde_json::Value` parsed by the host has already lost some of this: of two equal keys it keeps the last, and
//! without `arbitrary_precision` an integer past 64 bits has become a double. Text that comes from outside is better
//! given as text.

mod error;
mod fingerprint;
mod number;
mod parse;
mod ser;
mod string;
mod text_only;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

pub(crate) use self::error::CanonicalError;
pub use self::fingerprint::Fingerprint;
pub(crate) use self::string::push_string;
use self::writer::Writer;
use crate::Error;

/// Bounds on a canonical text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Longest canonical text, in bytes.
    pub(crate) max_bytes: usize,
    /// How many arrays and objects may be inside one another.
    pub(crate) max_depth: usize,
}

impl Limits {
    /// 1 MiB, 100 deep.
    pub(crate) const DEFAULT: Self = Self { max_bytes: 1024 * 1024, max_depth: 100 };
}

/// A JSON text in canonical form.
///
/// ```
/// let canonical = countersign::canonical_json(&serde_json::json!({"b": 1.0, "a": [true, null]}))?;
/// assert_eq!(canonical.as_str(), r#"{"a":[true,null],"b":1}"#);
/// # Ok::<(), countersign::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalJson(String);

impl CanonicalJson {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, owned.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }

    /// The SHA-256 of the text.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }

    /// A text that this library stored. It is not checked: whoever reads it compares its fingerprint.
    pub(crate) fn from_stored(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for CanonicalJson {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl AsRef<str> for CanonicalJson {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The canonical JSON of a value, at most 1 MiB long and 100 arrays and objects deep.
///
/// An `f32` counts as the double of the same value, so its text may be longer than the one it was written with.
///
/// ```
/// use std::collections::BTreeMap;
///
/// let prices = BTreeMap::from([("p2", 9.99), ("p1", 20.0)]);
/// assert_eq!(countersign::canonical_json(&prices)?.as_str(), r#"{"p1":20,"p2":9.99}"#);
///
/// assert!(countersign::canonical_json(&f64::NAN).is_err());
/// # Ok::<(), countersign::Error>(())
/// ```
///
/// # Errors
///
/// A value that is not finite, an integer past 64 bits, a key that is not a string or comes twice in one object, a
/// value past the size or depth limit, and whatever the type's own `Serialize` reports.
pub fn canonical_json<T: Serialize + ?Sized>(value: &T) -> Result<CanonicalJson, Error> {
    canonicalize(value, Limits::DEFAULT).map_err(Error::from_canonical)
}

/// The canonical JSON of a JSON text, at most 1 MiB long and 100 arrays and objects deep.
///
/// The text is read strictly (RFC 8259), and nothing in it is lost on the way: integers of 64 bits stay exact, and a
/// key that comes twice is an error.
///
/// ```
/// let canonical = countersign::canonical_json_from_text(r#" { "id" : 9007199254740993 } "#)?;
/// assert_eq!(canonical.as_str(), r#"{"id":9007199254740993}"#);
///
/// assert!(countersign::canonical_json_from_text(r#"{"id": 1, "id": 2}"#).is_err());
/// # Ok::<(), countersign::Error>(())
/// ```
///
/// # Errors
///
/// Text that is not JSON, a number that overflows, an integer past 64 bits, a key that comes twice in one object, a
/// lone surrogate, and a value past the size or depth limit.
pub fn canonical_json_from_text(text: &str) -> Result<CanonicalJson, Error> {
    canonicalize_text(text, Limits::DEFAULT).map_err(Error::from_canonical)
}

/// The fingerprint of a value: the SHA-256 of its [`canonical_json`].
///
/// ```
/// let fingerprint = countersign::fingerprint(&serde_json::json!({"b": 1, "a": 2}))?;
/// assert_eq!(fingerprint.to_string(), "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772");
/// # Ok::<(), countersign::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`canonical_json`].
pub fn fingerprint<T: Serialize + ?Sized>(value: &T) -> Result<Fingerprint, Error> {
    canonical_json(value).map(|canonical| canonical.fingerprint())
}

pub(crate) fn canonicalize<T: Serialize + ?Sized>(value: &T, limits: Limits) -> Result<CanonicalJson, CanonicalError> {
    let mut writer = Writer::new(limits);
    ser::write_value(&mut writer, value).and_then(|()| writer.finish()).map(CanonicalJson).map_err(|error| *error)
}

pub(crate) fn canonicalize_text(json: &str, limits: Limits) -> Result<CanonicalJson, CanonicalError> {
    let mut writer = Writer::new(limits);
    parse::write_text(&mut writer, json).and_then(|()| writer.finish()).map(CanonicalJson).map_err(|error| *error)
}
