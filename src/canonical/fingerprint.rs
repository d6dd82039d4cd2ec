//! The SHA-256 of canonical text.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::error::CanonicalError;
use crate::Error;

/// The SHA-256 of a value's canonical JSON: equal for equal values whatever their spelling, different otherwise.
///
/// Shown, serialized and parsed as 64 hexadecimal digits in lower case.
///
/// ```
/// let a = countersign::fingerprint(&serde_json::json!({"price": 10, "id": "p1"}))?;
/// let b = countersign::canonical_json_from_text(r#"{ "id": "p\u0031", "price": 1e1 }"#)?.fingerprint();
/// assert_eq!(a, b);
/// assert_eq!(a, a.to_string().parse()?);
/// # Ok::<(), countersign::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The 32 bytes of the hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 0x0F)]));
        }
        formatter.pad(&text)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    /// Reads 64 hexadecimal digits in lower case.
    ///
    /// # Errors
    ///
    /// Any other text, upper case and surrounding space included.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse_hex(text).map(Self).ok_or_else(|| Error::from_canonical(CanonicalError::not_a_fingerprint(text)))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_value(pair[0])? << 4 | hex_value(pair[1])?;
    }
    Some(bytes)
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_text_is_64_lower_case_digits_and_nothing_else() {
        let fingerprint = Fingerprint::of("null");
        let text = fingerprint.to_string();
        assert_eq!(text, "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b");
        assert_eq!(text.parse::<Fingerprint>().unwrap(), fingerprint);
        assert_eq!(serde_json::to_string(&fingerprint).unwrap(), format!("\"{text}\""));
        for wrong in
            ["", &text[1..], &format!("{text}0"), &text.to_uppercase(), &format!(" {}", &text[1..]), &"é".repeat(32)]
        {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong:?}");
        }
    }
}
