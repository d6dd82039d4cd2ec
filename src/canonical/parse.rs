//! A strict reader of JSON text (RFC 8259) that writes canonical text as it reads.
//!
//! It exists beside serde_json because a parsed `Value` has lost what must be looked at here: how a number was
//! written, and whether a key came twice. It keeps its own stack of open containers, so nesting costs no call stack.

use super::error::{CanonicalError, Result};
use super::number::{self, Number};
use super::string::clean_prefix;
use super::writer::{ObjectFrame, Writer};

/// Reads one JSON text, the whole of it, and writes it as one value.
pub(super) fn write_text(writer: &mut Writer, text: &str) -> Result<()> {
    Parser { text, at: 0, writer }.document()
}

struct Parser<'t, 'w> {
    text: &'t str,
    at: usize,
    writer: &'w mut Writer,
}

enum Open {
    Array,
    Object(ObjectFrame),
}

impl Parser<'_, '_> {
    fn document(mut self) -> Result<()> {
        let mut open = Vec::new();
        loop {
            if self.value(&mut open)? {
                // A container with something in it was opened: its first value comes next.
                continue;
            }
            if !self.after_value(&mut open)? {
                break;
            }
        }
        self.skip_space();
        if self.at < self.text.len() { Err(self.fault("something follows the value")) } else { Ok(()) }
    }

    /// Writes a scalar or an empty container, or opens a container and answers true.
    fn value(&mut self, open: &mut Vec<Open>) -> Result<bool> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                let mut frame = self.writer.open_object()?;
                self.skip_space();
                if self.peek() == Some(b'}') {
                    self.at += 1;
                    self.writer.close_object(frame)?;
                    return Ok(false);
                }
                self.key(&mut frame)?;
                open.push(Open::Object(frame));
                Ok(true)
            }
            Some(b'[') => {
                self.at += 1;
                self.writer.open_array()?;
                self.skip_space();
                if self.peek() == Some(b']') {
                    self.at += 1;
                    self.writer.close_array();
                    return Ok(false);
                }
                open.push(Open::Array);
                Ok(true)
            }
            Some(b'"') => {
                self.at += 1;
                self.writer.open_string();
                self.string_rest()?;
                self.writer.close_string();
                Ok(false)
            }
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                self.writer.number(number)?;
                Ok(false)
            }
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            None => Err(self.fault("the text ends where a value should be")),
            Some(_) if self.text[self.at..].starts_with('\u{FEFF}') => {
                Err(self.fault("a byte order mark is not part of JSON text"))
            }
            Some(_) => Err(self.fault("a value should be here")),
        }
    }

    /// Closes containers that end here; true if another value follows.
    fn after_value(&mut self, open: &mut Vec<Open>) -> Result<bool> {
        while let Some(innermost) = open.pop() {
            self.skip_space();
            match (self.peek(), innermost) {
                (Some(b','), Open::Array) => {
                    self.at += 1;
                    self.writer.separator();
                    open.push(Open::Array);
                    return Ok(true);
                }
                (Some(b','), Open::Object(mut frame)) => {
                    self.at += 1;
                    self.skip_space();
                    self.key(&mut frame)?;
                    open.push(Open::Object(frame));
                    return Ok(true);
                }
                (Some(b']'), Open::Array) => {
                    self.at += 1;
                    self.writer.close_array();
                }
                (Some(b'}'), Open::Object(frame)) => {
                    self.at += 1;
                    self.writer.close_object(frame)?;
                }
                (None, _) => return Err(self.fault("the text ends inside an array or object")),
                (_, Open::Array) => return Err(self.fault("a comma or ] should be here")),
                (_, Open::Object(_)) => return Err(self.fault("a comma or } should be here")),
            }
        }
        Ok(false)
    }

    /// A key and the colon after it.
    fn key(&mut self, frame: &mut ObjectFrame) -> Result<()> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("a key in double quotes should be here"));
        }
        self.at += 1;
        let start = self.writer.open_key(frame);
        let first = self.at;
        let escaped = self.string_rest()?;
        let clean = if escaped { None } else { Some(&self.text[first..self.at - 1]) };
        self.writer.close_key(frame, start, clean)?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.fault("a colon should be here"));
        }
        self.at += 1;
        Ok(())
    }

    /// The rest of a string, through its closing quote, written without quotes; true if it held an escape.
    fn string_rest(&mut self) -> Result<bool> {
        let text = self.text;
        let mut escaped = false;
        loop {
            let clean = clean_prefix(&text.as_bytes()[self.at..]);
            self.writer.clean_piece(&text[self.at..self.at + clean])?;
            self.at += clean;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    self.writer.character(character)?;
                    escaped = true;
                }
                Some(_) => {
                    return Err(self.fault("a control character in a string must be escaped"));
                }
                None => return Err(self.fault("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let start = self.at;
        self.at += 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape(start);
            }
            _ => return Err(self.fault("no such escape in a string")),
        };
        self.at += 1;
        Ok(character)
    }

    /// The hexadecimal digits of an escape, and of the second half of its pair if it is the first half of one.
    fn unicode_escape(&mut self, start: usize) -> Result<char> {
        let first = self.four_hex_digits()?;
        let units = if (0xD800..0xDC00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            [first, self.four_hex_digits()?]
        } else {
            [first, 0]
        };
        // Decoding stops at the first character; a lone half, or a half with a wrong partner, is an error there.
        match char::decode_utf16(units).next() {
            Some(Ok(character)) => Ok(character),
            _ => Err(CanonicalError::lone_surrogate(self.text, start)),
        }
    }

    fn four_hex_digits(&mut self) -> Result<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.fault("four hexadecimal digits should follow \\u"));
            };
            unit = unit << 4 | digit as u16;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<Number> {
        let rest = &self.text[self.at..];
        let extent = number::scan(rest.as_bytes())
            .map_err(|fault| CanonicalError::syntax(self.text, self.at + fault.offset, fault.what))?;
        self.at += extent.len;
        number::from_scanned(&rest[..extent.len], extent.integer)
    }

    fn literal(&mut self, literal: &'static str) -> Result<bool> {
        if !self.text[self.at..].starts_with(literal) {
            return Err(self.fault("a value should be here"));
        }
        self.at += literal.len();
        self.writer.literal(literal)?;
        Ok(false)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[cold]
    fn fault(&self, what: &'static str) -> Box<CanonicalError> {
        CanonicalError::syntax(self.text, self.at, what)
    }
}
