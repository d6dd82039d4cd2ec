//! Which number a JSON number text is, and how it is printed.
//!
//! A text without fraction or exponent is an integer and stays exact; every other text is a double. An integer that
//! fits neither `i64` nor `u64` is refused, because as a double it would share its fingerprint with its neighbours;
//! the one exception is the text that ECMAScript prints for a double, which names that double and no other integer.
//! The exception is what makes canonical text a fixed point: the double 1e20 prints as `100000000000000000000`.
//!
//! A double of integral value prints without a fraction, so it may print like an integer (1.0 and 1, or 2^60 as a
//! double and the integer 1152921504606847000). Two integers never print alike, nor do two doubles other than 0 and
//! -0.

use super::error::{CanonicalError, Result};

/// Longest number text looked at, in bytes. The exact decimal expansion of any double is shorter. The bound also keeps
/// exponents far below the point where the standard library's parser stops counting their digits.
pub(super) const MAX_NUMBER_BYTES: usize = 4096;

/// A number that has a canonical text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// Printed exactly.
    Signed(i64),
    /// Printed exactly.
    Unsigned(u64),
    /// Finite; printed as ECMAScript prints it.
    Double(f64),
}

/// The extent of a number text at the start of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) len: usize,
    /// No fraction and no exponent.
    pub(super) integer: bool,
}

/// Where and why bytes are not a JSON number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) what: &'static str,
}

/// The longest RFC 8259 number at the start of `bytes`.
pub(super) fn scan(bytes: &[u8]) -> std::result::Result<Extent, Fault> {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let fault = |offset, what| Err(Fault { offset, what });

    let mut at = usize::from(bytes.first() == Some(&b'-'));
    match bytes.get(at) {
        Some(b'0') if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
            return fault(at, "a number starts with a zero that means nothing");
        }
        Some(b'0'..=b'9') => at += digits(at),
        _ => return fault(at, "a digit is missing"),
    }
    let mut integer = true;
    if bytes.get(at) == Some(&b'.') {
        integer = false;
        let count = digits(at + 1);
        if count == 0 {
            return fault(at + 1, "a digit is missing after the decimal point");
        }
        at += 1 + count;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        integer = false;
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        let count = digits(at);
        if count == 0 {
            return fault(at, "a digit is missing in the exponent");
        }
        at += count;
    }
    Ok(Extent { len: at, integer })
}

/// The number that a scanned text is.
pub(super) fn from_scanned(text: &str, integer: bool) -> Result<Number> {
    if text.len() > MAX_NUMBER_BYTES {
        return Err(Box::new(CanonicalError::NumberTooLong { limit: MAX_NUMBER_BYTES }));
    }
    if integer {
        if let Ok(value) = text.parse::<i64>() {
            return Ok(Number::Signed(value));
        }
        if let Ok(value) = text.parse::<u64>() {
            return Ok(Number::Unsigned(value));
        }
    }
    // The standard library accepts every JSON number and rounds correctly.
    let value = text.parse::<f64>().map_err(|_| CanonicalError::syntax(text, 0, "a number is missing"))?;
    match (integer, value.is_finite()) {
        (false, true) => Ok(Number::Double(value)),
        (false, false) => Err(CanonicalError::not_finite(text)),
        (true, true) if ryu_js::Buffer::new().format_finite(value) == text => Ok(Number::Double(value)),
        (true, _) => Err(CanonicalError::integer_out_of_range(text)),
    }
}

/// The number that a whole text is: nothing may stand before or after it.
pub(super) fn from_text(text: &str) -> Result<Number> {
    let extent = scan(text.as_bytes()).map_err(|fault| CanonicalError::syntax(text, fault.offset, fault.what))?;
    if extent.len != text.len() {
        return Err(CanonicalError::syntax(text, extent.len, "something follows the number"));
    }
    from_scanned(text, extent.integer)
}

/// A double that must be finite.
pub(super) fn from_f64(value: f64) -> Result<Number> {
    if value.is_finite() { Ok(Number::Double(value)) } else { Err(CanonicalError::not_finite(&value.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_fraction_or_exponent_is_an_exact_integer() {
        assert_eq!(from_text("9007199254740993"), Ok(Number::Signed(9_007_199_254_740_993)));
        assert_eq!(from_text("-9223372036854775808"), Ok(Number::Signed(i64::MIN)));
        assert_eq!(from_text("18446744073709551615"), Ok(Number::Unsigned(u64::MAX)));
        assert_eq!(from_text("-0"), Ok(Number::Signed(0)));
        assert_eq!(from_text("5e0"), Ok(Number::Double(5.0)));
        assert_eq!(from_text("5.0"), Ok(Number::Double(5.0)));
    }

    #[test]
    fn an_integer_past_64_bits_is_refused_unless_it_is_the_print_of_a_double() {
        for text in ["18446744073709551616", "-9223372036854775809", "100000000000000000001", &"9".repeat(400)] {
            assert!(matches!(*from_text(text).unwrap_err(), CanonicalError::IntegerOutOfRange { .. }), "{text}");
        }
        assert_eq!(from_text("100000000000000000000"), Ok(Number::Double(1e20)));
        assert_eq!(from_text("18446744073709552000"), Ok(Number::Double(18_446_744_073_709_551_616.0)));
        // ECMAScript prints 1e21 with an exponent, so this text is not its print.
        assert!(from_text("1000000000000000000000").is_err());
    }

    #[test]
    fn an_overflow_to_infinity_is_refused_and_an_underflow_is_zero() {
        assert!(matches!(*from_text("1e400").unwrap_err(), CanonicalError::NotFinite { .. }));
        assert!(matches!(*from_text("-1e99999999999999999999").unwrap_err(), CanonicalError::NotFinite { .. }));
        assert_eq!(from_text("1e-400"), Ok(Number::Double(0.0)));
        assert_eq!(from_text("0e99999999999999999999"), Ok(Number::Double(0.0)));
    }

    #[test]
    fn a_number_text_has_a_bounded_length() {
        let longest = format!("0.{}", "1".repeat(MAX_NUMBER_BYTES - 2));
        assert!(from_text(&longest).is_ok());
        let longer = format!("{longest}1");
        assert_eq!(*from_text(&longer).unwrap_err(), CanonicalError::NumberTooLong { limit: MAX_NUMBER_BYTES });
    }

    #[test]
    fn only_the_number_grammar_is_accepted() {
        for text in
            ["", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1_000", "0x10", "NaN", "Infinity", "1 ", " 1"]
        {
            assert!(matches!(*from_text(text).unwrap_err(), CanonicalError::Syntax { .. }), "{text:?}");
        }
    }
}
