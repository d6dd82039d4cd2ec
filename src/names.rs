//! Names, tokens and keys: checked once, where they enter.

use std::fmt;

use crate::error::{Error, Result};
use crate::escape::visible_cut;

/// The longest name, in characters (design section 1).
const NAME_MAX: usize = 128;
/// The longest idempotency key, in characters.
const KEY_MAX: usize = 256;

/// Checks a name: 1 to 128 characters of `A-Za-z0-9._@:/+-`.
pub(crate) fn check_name(what: &str, name: &str) -> Result<String> {
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_name_byte) {
        return Err(Error::invalid(format!(
            "{what} {:?} is not a name: use 1 to {NAME_MAX} characters of A-Z a-z 0-9 . _ @ : / + -",
            Quoted(name)
        )));
    }
    Ok(name.to_owned())
}

/// Checks the name of a person who decides or recovers: `unknown` is nobody.
pub(crate) fn check_person(what: &str, name: &str) -> Result<String> {
    let name = check_name(what, name)?;
    if name.eq_ignore_ascii_case("unknown") {
        return Err(Error::invalid(format!("{what} \"unknown\" is nobody: give the person's own name")));
    }
    Ok(name)
}

/// Checks an idempotency key: 1 to 256 printable ASCII characters, not all of them blanks.
pub(crate) fn check_key(key: &str) -> Result<()> {
    if key.trim_ascii().is_empty() || key.len() > KEY_MAX || !key.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return Err(Error::invalid(format!(
            "the idempotency key {:?} is not usable: use 1 to {KEY_MAX} printable ASCII characters, not blanks alone",
            Quoted(key)
        )));
    }
    Ok(())
}

/// Checks that a text fits its limit.
pub(crate) fn check_text(what: &str, text: &str, max_bytes: usize) -> Result<()> {
    if text.len() > max_bytes {
        return Err(Error::invalid(format!("{what} has {} bytes; at most {max_bytes} are kept", text.len())));
    }
    Ok(())
}

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"._@:/+-".contains(&b)
}

/// A given text in an error message: short, with every hidden character visible.
struct Quoted<'a>(&'a str);

impl fmt::Debug for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", visible_cut(self.0, 60))
    }
}

/// `bytes` random bytes of the operating system in lower-case hex.
pub(crate) fn random_hex<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0_u8; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::storage(format!("the operating system gave no random bytes: {e}")))?;
    Ok(hex(&bytes))
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)] as char);
        out.push(DIGITS[usize::from(byte & 15)] as char);
    }
    out
}

/// True when the text is what [`hex`] makes of these bytes.
pub(crate) fn is_hex_of(text: &str, bytes: &[u8]) -> bool {
    let digits = text.as_bytes();
    let pairs = digits.chunks_exact(2).zip(bytes);
    digits.len() == bytes.len() * 2
        && pairs.fold(true, |same, (pair, byte)| {
            same & (pair[0] == DIGITS[usize::from(byte >> 4)]) & (pair[1] == DIGITS[usize::from(byte & 15)])
        })
}

fn is_lower_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A plan token: 24 random bytes in lower-case hex. It names a plan, redeems it once, and is the idempotency key for
/// the side effect.
///
/// `Debug` shows its first eight digits, so that a log line does not hand it on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanToken(String);

impl PlanToken {
    /// A new random token.
    pub(crate) fn generate() -> Result<Self> {
        random_hex::<24>().map(Self)
    }

    /// The token, when the text has the shape of one: 48 lower-case hex digits.
    ///
    /// ```
    /// use countersign::PlanToken;
    /// assert!(PlanToken::parse(&"0a".repeat(24)).is_some());
    /// assert!(PlanToken::parse(&"0A".repeat(24)).is_none());
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_lower_hex(text, 48).then(|| Self(text.to_owned()))
    }

    /// A token read back from the store; the schema keeps its shape.
    pub(crate) fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The token's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for PlanToken {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlanToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for PlanToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanToken({}…)", self.0.get(..8).unwrap_or(""))
    }
}

impl serde::Serialize for PlanToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Where a decision or an operation came in: a name that stands in the audit, such as `library`, `http` or `cli`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel(String);

impl Channel {
    /// The default: a call of this library by the host's own code.
    #[must_use]
    pub fn library() -> Self {
        Self("library".to_owned())
    }

    /// A channel of that name: 1 to 128 characters of `A-Za-z0-9._@:/+-`.
    ///
    /// # Errors
    /// Invalid input, for another name.
    pub fn new(name: &str) -> Result<Self> {
        check_name("the channel", name).map(Self)
    }

    /// The channel's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who acts, and through what.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) name: String,
    pub(crate) channel: Channel,
}
