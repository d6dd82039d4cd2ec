//! Why a value has no canonical text.

use crate::escape::visible_cut;

/// How much of a foreign text an error message shows, in characters.
const SHOWN_CHARS: usize = 60;

/// A value that cannot be fingerprinted. Texts inside are already cut and escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CanonicalError {
    /// The canonical text would be longer than the limit.
    #[error(
        "the value is longer than {limit} bytes as canonical JSON: send less at once, or refer to the bulk of it \
         instead of including it"
    )]
    TooBig {
        /// Largest canonical text, in bytes.
        limit: usize,
    },

    /// More arrays and objects inside one another than the limit.
    #[error("the value nests arrays and objects more than {limit} deep: flatten it")]
    TooDeep {
        /// Deepest nesting allowed.
        limit: usize,
    },

    /// NaN, an infinity, or a number text that overflows to one.
    #[error("{text} is not a finite number, and JSON has no other kind: send null or a text if that is what is meant")]
    NotFinite {
        /// The number as given.
        text: String,
    },

    /// An integer that fits neither `i64` nor `u64`.
    #[error(
        "the integer {text} fits neither 64-bit integer type and would lose digits as a double: send it as a string"
    )]
    IntegerOutOfRange {
        /// The integer as given.
        text: String,
    },

    /// A number text longer than any number needs.
    #[error("a number is written with more than {limit} characters: round it, or send it as a string")]
    NumberTooLong {
        /// Longest number text, in bytes.
        limit: usize,
    },

    /// One object names a key twice.
    #[error("the key \"{key}\" appears twice in one object: which of the two values counts is undefined; keep one")]
    DuplicateKey {
        /// The key, unescaped from JSON.
        key: String,
    },

    /// A map key that does not serialize as a string.
    #[error("a map has a key that is not a string: convert the keys to strings first, so that their spelling is yours")]
    KeyNotString,

    /// Half of a surrogate pair in a string's escapes.
    #[error("line {line}, column {column}: half of a surrogate pair stands alone, which is no character: remove it")]
    LoneSurrogate {
        /// Line of the escape, from 1.
        line: usize,
        /// Column of the escape in characters, from 1.
        column: usize,
    },

    /// The text is not JSON (RFC 8259).
    #[error("line {line}, column {column}: not JSON: {what}")]
    Syntax {
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault in characters, from 1.
        column: usize,
        /// What was found or missed.
        what: &'static str,
    },

    /// A fingerprint text of another form than 64 lower-case hexadecimal digits.
    #[error("\"{text}\" is not a fingerprint: a fingerprint is 64 hexadecimal digits in lower case")]
    NotAFingerprint {
        /// The text as given.
        text: String,
    },

    /// The type's own `Serialize` failed.
    #[error("the value could not be serialized: {0}")]
    Serialize(String),
}

/// Boxed, so that the success path of each small write moves one word.
pub(super) type Result<T> = std::result::Result<T, Box<CanonicalError>>;

impl CanonicalError {
    pub(super) fn not_finite(text: &str) -> Box<Self> {
        Box::new(Self::NotFinite { text: shown(text) })
    }

    pub(super) fn integer_out_of_range(text: &str) -> Box<Self> {
        Box::new(Self::IntegerOutOfRange { text: shown(text) })
    }

    pub(super) fn duplicate_key(key: &str) -> Box<Self> {
        Box::new(Self::DuplicateKey { key: shown(key) })
    }

    pub(super) fn not_a_fingerprint(text: &str) -> Self {
        Self::NotAFingerprint { text: shown(text) }
    }

    pub(super) fn serialize(message: &str) -> Box<Self> {
        Box::new(Self::Serialize(shown(message)))
    }

    pub(super) fn syntax(text: &str, offset: usize, what: &'static str) -> Box<Self> {
        let (line, column) = position(text, offset);
        Box::new(Self::Syntax { line, column, what })
    }

    pub(super) fn lone_surrogate(text: &str, offset: usize) -> Box<Self> {
        let (line, column) = position(text, offset);
        Box::new(Self::LoneSurrogate { line, column })
    }
}

impl serde::ser::Error for Box<CanonicalError> {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        CanonicalError::serialize(&message.to_string())
    }
}

fn shown(text: &str) -> String {
    visible_cut(text, SHOWN_CHARS)
}

/// Line and column (in characters), both from 1, of a byte offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    // Every byte but a UTF-8 continuation starts a character.
    let column = before[line_start..].iter().filter(|&&byte| byte & 0xC0 != 0x80).count() + 1;
    (line, column)
}
