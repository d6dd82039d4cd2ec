//! Strings as ECMAScript's `JSON.stringify` escapes them: `"`, `\` and the controls below U+0020, and nothing else.

/// Appends a string in quotes.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    out.extend(pieces(text));
    out.push('"');
}

/// The pieces that, one after the other, are the escaped text.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let clean = clean_prefix(rest.as_bytes());
        let (piece, used) = match rest.as_bytes().get(clean) {
            _ if clean > 0 => (&rest[..clean], clean),
            Some(&dirty) => (escape(dirty), 1),
            None => return None,
        };
        // A clean prefix ends before an ASCII character or at the end, so this is a character boundary.
        rest = &rest[used..];
        Some(piece)
    })
}

/// How many bytes at the start can stand in a JSON string as they are.
#[inline]
pub(super) fn clean_prefix(bytes: &[u8]) -> usize {
    let mut clean = 0;
    // Blocks without an early exit, which the compiler turns into vector instructions.
    while let Some(block) = bytes[clean..].first_chunk::<32>() {
        if block.iter().fold(false, |any, &byte| any | is_dirty(byte)) {
            break;
        }
        clean += block.len();
    }
    while let Some(&word) = bytes[clean..].first_chunk::<8>() {
        let dirty = dirty_bytes(u64::from_le_bytes(word));
        if dirty != 0 {
            return clean + (dirty.trailing_zeros() / 8) as usize;
        }
        clean += word.len();
    }
    // The rest is shorter than a word: look at the last word again instead, since what is before the rest is clean.
    let len = bytes.len();
    if let Some(&word) = bytes.last_chunk::<8>() {
        let dirty = dirty_bytes(u64::from_le_bytes(word));
        return if dirty == 0 { len } else { len - 8 + (dirty.trailing_zeros() / 8) as usize };
    }
    bytes.iter().position(|&byte| is_dirty(byte)).unwrap_or(len)
}

#[inline]
fn is_dirty(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// [`is_dirty`] for eight bytes at once. The lowest bit that is set is the top bit of the first dirty byte; bits above
/// it mean nothing, because a subtraction below borrows from the bytes above it.
#[inline]
fn dirty_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    let zero_in = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = zero_in(word ^ (ONES * u64::from(b'"')));
    let backslash = zero_in(word ^ (ONES * u64::from(b'\\')));
    (control | quote | backslash) & TOPS
}

fn escape(byte: u8) -> &'static str {
    const CONTROLS: [&str; 32] = [
        "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b", "\\t", "\\n",
        "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012", "\\u0013", "\\u0014",
        "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a", "\\u001b", "\\u001c", "\\u001d", "\\u001e",
        "\\u001f",
    ];
    match byte {
        b'"' => "\\\"",
        b'\\' => "\\\\",
        control => CONTROLS[usize::from(control)],
    }
}

/// The UTF-8 bytes of a text that [`pieces`] escaped.
pub(super) struct Unescaped<'t>(pub(super) &'t [u8]);

impl Iterator for Unescaped<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, used) = match *self.0 {
            [] => return None,
            [b'\\', b'u', _, _, high, low, ..] => (hex_value(high) << 4 | hex_value(low), 6),
            [b'\\', short, ..] => {
                let byte = match short {
                    b'b' => 0x08,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'f' => 0x0C,
                    b'r' => b'\r',
                    itself => itself,
                };
                (byte, 2)
            }
            [byte, ..] => (byte, 1),
        };
        self.0 = &self.0[used..];
        Some(byte)
    }
}

fn hex_value(digit: u8) -> u8 {
    if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_is_escaped_as_json_stringify_does() {
        for c in '\0'..=char::MAX {
            let mut escaped = String::new();
            push_string(&mut escaped, c.encode_utf8(&mut [0; 4]));
            let expected = match c {
                '"' => r#""\"""#.to_owned(),
                '\\' => r#""\\""#.to_owned(),
                '\u{8}' => r#""\b""#.to_owned(),
                '\t' => r#""\t""#.to_owned(),
                '\n' => r#""\n""#.to_owned(),
                '\u{C}' => r#""\f""#.to_owned(),
                '\r' => r#""\r""#.to_owned(),
                '\0'..='\u{1F}' => format!("\"\\u{:04x}\"", u32::from(c)),
                _ => format!("\"{c}\""),
            };
            assert_eq!(escaped, expected);
            let inside = &escaped.as_bytes()[1..escaped.len() - 1];
            assert!(Unescaped(inside).eq(c.encode_utf8(&mut [0; 4]).bytes()));
        }
    }

    #[test]
    fn an_escape_is_found_wherever_it_stands() {
        for length in 0..70 {
            assert_eq!(clean_prefix("x".repeat(length).as_bytes()), length);
            for at in 0..length {
                let mut text = "x".repeat(length);
                text.replace_range(at..=at, "\"");
                assert_eq!(clean_prefix(text.as_bytes()), at);
                let mut escaped = String::new();
                push_string(&mut escaped, &text);
                assert_eq!(escaped, format!("\"{}\"", text.replace('"', "\\\"")));
            }
        }
    }
}
