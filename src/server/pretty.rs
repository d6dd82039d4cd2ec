//! Canonical JSON laid out for reading. The result is the same JSON: numbers keep every digit, and characters that hide
//! or fool are written with JSON's own `\u` escapes, so that they show.

use std::fmt::Write as _;

use crate::escape::classify;

/// Arrays and objects that fit in so many bytes stay on one line.
const INLINE_MAX_BYTES: usize = 80;
/// Layout may make a text this much longer; past it the text stays as it is.
const GROWTH_MAX: usize = 4;

/// The text on one line, exactly as it is stored, but for hidden characters.
pub(super) fn exact(canonical: &str) -> String {
    let mut out = String::with_capacity(canonical.len());
    canonical.chars().for_each(|c| push(&mut out, c));
    out
}

/// The text with line breaks and indentation. `canonical` is what this library stored: valid, without white space.
pub(super) fn pretty(canonical: &str) -> String {
    let most = canonical.len().saturating_mul(GROWTH_MAX) + 1024;
    let mut layout = Layout { out: String::with_capacity(canonical.len() * 2), depth: 0, inline: 0 };
    let mut rest = canonical.char_indices();
    let mut in_string = false;
    while let Some((at, c)) = rest.next() {
        if in_string {
            layout.out.push_str(&hidden_as_escape(c));
            if c == '\\' {
                // What is escaped is one character here: after `\u` follow plain digits.
                if let Some((_, escaped)) = rest.next() {
                    layout.out.push(escaped);
                }
            }
            in_string = c != '"';
            continue;
        }
        match c {
            '{' | '[' => layout.open(c, &canonical[at..]),
            '}' | ']' => layout.close(c),
            ',' => layout.comma(),
            ':' => layout.out.push_str(": "),
            _ => {
                in_string = c == '"';
                layout.out.push(c);
            }
        }
        if layout.out.len() > most {
            return exact(canonical);
        }
    }
    layout.out
}

struct Layout {
    out: String,
    depth: usize,
    /// How many of the open brackets are on one line.
    inline: usize,
}

impl Layout {
    fn open(&mut self, bracket: char, from: &str) {
        self.out.push(bracket);
        if self.inline > 0 || fits(from) {
            self.inline += 1;
        } else {
            self.depth += 1;
            self.line();
        }
    }

    fn close(&mut self, bracket: char) {
        if self.inline > 0 {
            self.inline -= 1;
        } else {
            self.depth = self.depth.saturating_sub(1);
            self.line();
        }
        self.out.push(bracket);
    }

    fn comma(&mut self) {
        self.out.push(',');
        if self.inline > 0 { self.out.push(' ') } else { self.line() }
    }

    fn line(&mut self) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", self.depth));
    }
}

/// True when the array or object at the start of the text ends soon.
fn fits(from: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in from.bytes().take(INLINE_MAX_BYTES) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

fn push(out: &mut String, c: char) {
    if classify(c).is_none() { out.push(c) } else { out.push_str(&hidden_as_escape(c)) }
}

fn hidden_as_escape(c: char) -> String {
    let mut out = String::new();
    if classify(c).is_none() {
        out.push(c);
        return out;
    }
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing into a String does not fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{exact, pretty};

    #[test]
    fn the_layout_is_the_same_json_and_keeps_every_digit() {
        let canonical = crate::canonical_json_from_text(
            r#"{"big":9007199254740993,"empty":[],"rows":[{"id":1,"name":"tea, \"green\" [x] {y}"},{"id":2,"name":"a rather long name that does not fit on one line with the rest"}],"none":{}}"#,
        )
        .unwrap();
        let laid_out = pretty(canonical.as_str());
        assert!(laid_out.contains("\n  \"big\": 9007199254740993,\n"), "{laid_out}");
        assert!(laid_out.contains("\n    {\"id\": 1, \"name\": \"tea, \\\"green\\\" [x] {y}\"},\n"), "{laid_out}");
        assert_eq!(crate::canonical_json_from_text(&laid_out).unwrap(), canonical);
    }

    #[test]
    fn hidden_characters_show_as_json_escapes_and_mean_the_same() {
        let canonical = crate::canonical_json(&"a\u{202E}b\u{E0041}c\u{A0}\\u{202E}").unwrap();
        for shown in [exact(canonical.as_str()), pretty(canonical.as_str())] {
            assert_eq!(shown, r#""a\u202eb\udb40\udc41c\u00a0\\u{202E}""#);
            assert_eq!(crate::canonical_json_from_text(&shown).unwrap(), canonical);
        }
    }

    #[test]
    fn deep_nesting_does_not_blow_the_layout_up() {
        let canonical = format!("{}{}1{}", "[".repeat(90), "1,".repeat(50_000), "]".repeat(90));
        assert!(pretty(&canonical).len() < canonical.len() * 4 + 2048);
    }
}
