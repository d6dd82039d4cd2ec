//! The one buffer that canonical text is written into.
//!
//! Both ways in (`Serialize` values and JSON text) write through this type, so there is one place for the size and
//! depth limits, for escaping, for number printing, and for sorting keys and finding duplicates.
//!
//! An object is written in the order in which its keys arrive while the place of each key is remembered; when it ends
//! and its keys did not arrive sorted, its entries are moved into order within the buffer.

use std::cmp::Ordering;

use super::Limits;
use super::error::{CanonicalError, Result};
use super::number::Number;
use super::string::{Unescaped, clean_prefix, pieces};

pub(super) struct Writer {
    out: String,
    /// Keys of the objects that are still open, those of the innermost last.
    keys: Vec<Key>,
    scratch: String,
    depth: usize,
    limits: Limits,
    /// The first error, kept so that a `Serialize` that swallows an error cannot turn a half-written value into a
    /// result.
    failed: Option<Box<CanonicalError>>,
}

/// An object that is being written.
pub(super) struct ObjectFrame {
    start: usize,
    first_key: usize,
    sorted: bool,
}

/// A key in the buffer, with the value that follows it.
struct Key {
    /// The first eight bytes in the order of keys, padded with zeros: it decides most comparisons. A tie decides
    /// nothing, since a zero may also be a character of the key.
    rank: u64,
    /// Offset of the opening quote.
    start: usize,
    /// Offset after the last character of the key, before the closing quote.
    end: usize,
    /// Offset after the value; known when the object ends.
    value_end: usize,
}

impl Writer {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            out: String::with_capacity(128.min(limits.max_bytes)),
            keys: Vec::new(),
            scratch: String::new(),
            depth: 0,
            limits,
            failed: None,
        }
    }

    pub(super) fn finish(self) -> Result<String> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        debug_assert_eq!(self.depth, 0, "every container that was opened is closed, or an error was recorded");
        // Punctuation is written unchecked between checked writes.
        if self.out.len() > self.limits.max_bytes { Err(self.too_big()) } else { Ok(self.out) }
    }

    /// Records an error and passes it on.
    #[cold]
    pub(super) fn fail(&mut self, error: Box<CanonicalError>) -> Box<CanonicalError> {
        self.failed.get_or_insert_with(|| error.clone());
        error
    }

    pub(super) fn literal(&mut self, text: &'static str) -> Result<()> {
        self.raw(text)
    }

    pub(super) fn number(&mut self, number: Number) -> Result<()> {
        match number {
            Number::Signed(value) => self.raw(itoa::Buffer::new().format(value)),
            Number::Unsigned(value) => self.raw(itoa::Buffer::new().format(value)),
            Number::Double(value) => self.raw(ryu_js::Buffer::new().format_finite(value)),
        }
    }

    #[inline]
    pub(super) fn string(&mut self, text: &str) -> Result<()> {
        self.out.push('"');
        self.escape(text)?;
        self.out.push('"');
        Ok(())
    }

    /// An opening quote; the parser writes the pieces of a string between this and `close_string`.
    pub(super) fn open_string(&mut self) {
        self.out.push('"');
    }

    pub(super) fn close_string(&mut self) {
        self.out.push('"');
    }

    /// A piece of a string that is known to need no escaping (see [`clean_prefix`](super::string::clean_prefix)).
    pub(super) fn clean_piece(&mut self, text: &str) -> Result<()> {
        self.raw(text)
    }

    /// One decoded character of a string.
    pub(super) fn character(&mut self, character: char) -> Result<()> {
        self.escape(character.encode_utf8(&mut [0; 4])).map(drop)
    }

    pub(super) fn separator(&mut self) {
        self.out.push(',');
    }

    pub(super) fn open_array(&mut self) -> Result<()> {
        self.descend()?;
        self.raw("[")
    }

    pub(super) fn close_array(&mut self) {
        self.depth -= 1;
        self.out.push(']');
    }

    pub(super) fn open_object(&mut self) -> Result<ObjectFrame> {
        self.descend()?;
        self.raw("{")?;
        Ok(ObjectFrame { start: self.out.len(), first_key: self.keys.len(), sorted: true })
    }

    pub(super) fn key(&mut self, frame: &mut ObjectFrame, text: &str) -> Result<()> {
        let start = self.open_key(frame);
        let escaped = self.escape(text)?;
        self.close_key(frame, start, if escaped { None } else { Some(text) })
    }

    /// Writes what precedes a key's characters; returns the offset that `close_key` wants.
    #[inline]
    pub(super) fn open_key(&mut self, frame: &ObjectFrame) -> usize {
        if self.keys.len() > frame.first_key {
            self.out.push(',');
        }
        let start = self.out.len();
        self.out.push('"');
        start
    }

    /// Ends a key whose characters are written. `clean` is the key if nothing in it needed escaping; it is wanted
    /// because reading back what was written a moment ago is slow.
    #[inline]
    pub(super) fn close_key(&mut self, frame: &mut ObjectFrame, start: usize, clean: Option<&str>) -> Result<()> {
        let end = self.out.len();
        let rank = match clean {
            Some(text) => rank(text.as_bytes()),
            None => rank_escaped(&self.out.as_bytes()[start + 1..end]),
        };
        self.out.push_str("\":");
        if frame.sorted
            && let Some(last) = self.keys[frame.first_key..].last()
        {
            let order =
                last.rank.cmp(&rank).then_with(|| order(last.bytes(&self.out), &self.out.as_bytes()[start + 1..end]));
            match order {
                Ordering::Less => {}
                Ordering::Equal => return Err(last.duplicate(&self.out)),
                Ordering::Greater => frame.sorted = false,
            }
        }
        // Built in place: a copy from the stack right after its fields are written would wait for them.
        self.keys.push(Key { rank, start, end, value_end: 0 });
        Ok(())
    }

    pub(super) fn close_object(&mut self, frame: ObjectFrame) -> Result<()> {
        if !frame.sorted {
            self.sort(&frame)?;
        }
        self.keys.truncate(frame.first_key);
        self.depth -= 1;
        self.out.push('}');
        Ok(())
    }

    fn sort(&mut self, frame: &ObjectFrame) -> Result<()> {
        let keys = &mut self.keys[frame.first_key..];
        let mut value_end = self.out.len();
        for key in keys.iter_mut().rev() {
            key.value_end = value_end;
            // A comma stands between this key and the value before it.
            value_end = key.start.saturating_sub(1);
        }
        let out = &mut self.out;
        keys.sort_unstable_by(|a, b| a.order(b, out));
        if let Some(pair) = keys.windows(2).find(|pair| pair[0].order(&pair[1], out) == Ordering::Equal) {
            return Err(pair[0].duplicate(out));
        }
        self.scratch.clear();
        for (index, key) in keys.iter().enumerate() {
            if index > 0 {
                self.scratch.push(',');
            }
            self.scratch.push_str(&out[key.start..key.value_end]);
        }
        out.truncate(frame.start);
        out.push_str(&self.scratch);
        Ok(())
    }

    fn descend(&mut self) -> Result<()> {
        if self.depth == self.limits.max_depth {
            return Err(Box::new(CanonicalError::TooDeep { limit: self.limits.max_depth }));
        }
        self.depth += 1;
        Ok(())
    }

    /// Writes the inside of a string; true if anything needed escaping.
    #[inline]
    fn escape(&mut self, text: &str) -> Result<bool> {
        if clean_prefix(text.as_bytes()) == text.len() {
            return self.raw(text).map(|()| false);
        }
        for piece in pieces(text) {
            self.raw(piece)?;
        }
        Ok(true)
    }

    #[inline]
    fn raw(&mut self, text: &str) -> Result<()> {
        if text.len() > self.limits.max_bytes.saturating_sub(self.out.len()) {
            return Err(self.too_big());
        }
        self.out.push_str(text);
        Ok(())
    }

    #[cold]
    fn too_big(&self) -> Box<CanonicalError> {
        Box::new(CanonicalError::TooBig { limit: self.limits.max_bytes })
    }
}

impl Key {
    fn bytes<'t>(&self, out: &'t str) -> &'t [u8] {
        &out.as_bytes()[self.start + 1..self.end]
    }

    #[inline]
    fn order(&self, other: &Self, out: &str) -> Ordering {
        self.rank.cmp(&other.rank).then_with(|| order(self.bytes(out), other.bytes(out)))
    }

    #[cold]
    fn duplicate(&self, out: &str) -> Box<CanonicalError> {
        let key: Vec<u8> = Unescaped(self.bytes(out)).collect();
        CanonicalError::duplicate_key(&String::from_utf8_lossy(&key))
    }
}

/// The order of two keys as they are in the buffer.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    // A backslash in the buffer is always the start of an escape.
    if a.contains(&b'\\') || b.contains(&b'\\') {
        return Unescaped(a).map(utf16_rank).cmp(Unescaped(b).map(utf16_rank));
    }
    match a.iter().zip(b).find(|(a, b)| a != b) {
        Some((&a, &b)) => utf16_rank(a).cmp(&utf16_rank(b)),
        None => a.len().cmp(&b.len()),
    }
}

/// The first eight bytes of a key as a number in the order of keys.
#[inline]
fn rank(key: &[u8]) -> u64 {
    let first = match key.first_chunk() {
        Some(&eight) => u64::from_be_bytes(eight),
        None => match (key.first_chunk(), key.last_chunk()) {
            // Four to seven bytes: the two halves overlap, and agree where they do.
            (Some(&head), Some(&tail)) => {
                let (head, tail) = (u64::from(u32::from_be_bytes(head)), u64::from(u32::from_be_bytes(tail)));
                head << 32 | tail << (8 * (8 - key.len()))
            }
            _ => key.iter().rev().fold(0, |first, &byte| first >> 8 | u64::from(byte) << 56),
        },
    };
    let first = first.to_be_bytes();
    u64::from_be_bytes(if first.is_ascii() { first } else { first.map(utf16_rank) })
}

#[cold]
fn rank_escaped(escaped_key: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.iter_mut().zip(Unescaped(escaped_key)).for_each(|(to, byte)| *to = byte);
    rank(&first)
}

/// Makes the byte order of UTF-8 the order of UTF-16 code units.
///
/// The two differ in one place: characters past U+FFFF (lead bytes F0 to F4) are surrogates in UTF-16, which sort
/// before U+E000 to U+FFFF (lead bytes EE and EF). Ranking EE and EF above F4 swaps the two groups; no continuation
/// byte is that large.
fn utf16_rank(byte: u8) -> u8 {
    if matches!(byte, 0xEE | 0xEF) { byte + 0x10 } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_start_of_the_key_padded_with_zeros() {
        let key = b"abcdefghij";
        for len in 0..=key.len() {
            let mut first = [0; 8];
            first[..len.min(8)].copy_from_slice(&key[..len.min(8)]);
            assert_eq!(rank(&key[..len]), u64::from_be_bytes(first), "{len}");
        }
        assert!(rank("\u{10000}".as_bytes()) < rank("\u{E000}".as_bytes()));
        assert_eq!(rank_escaped(br#"\"\u0001\n"#), rank(b"\"\x01\n"));
    }
}
