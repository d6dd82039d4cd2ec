//! Makes text from elsewhere safe to look at.
//!
//! What an agent, a caller or a file wrote is data, and a person decides by what they see of it. [`visible`] replaces
//! every character that is invisible, that moves other characters, or that looks like a plain space without being one
//! by a marker such as `\u{202E}`; line feed, carriage return and tab become `\n`, `\r` and `\t`. What is left is one
//! line in which every character shows.
//!
//! # What is not done
//!
//! Letters that look like other letters are left alone, and so are combining marks. Emoji made of several characters
//! show the joiners and variation selectors between them as markers. The result is not HTML, CSV or a shell word: quote
//! it for where it goes.
//!
//! # Backslashes
//!
//! A backslash that would read as the start of a marker (before `n`, `r`, `t` or `u{`) is written as `\u{5C}`, every
//! other backslash stays. So the result says exactly what the text was: two different texts never look alike. The price
//! is that escaping twice differs from escaping once. Text that was escaped when it was stored is passed through
//! [`still_visible`], which leaves backslashes alone and gives back unchanged what [`visible`] gave.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Why a character does not show as itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HiddenKind {
    /// Steers a terminal or a printer instead of being text: C0, DEL and C1 controls, line feed and tab among them.
    Control,
    /// Changes the direction in which the characters around it are shown.
    Bidirectional,
    /// Takes no room, and joins or separates the characters around it.
    ZeroWidth,
    /// Any other character that programs are told to show as nothing: soft hyphens, fillers, variation selectors, tags.
    Ignorable,
    /// Instructs the layout of an annotation or a hieroglyph.
    Format,
    /// Ends a line or a paragraph.
    LineSeparator,
    /// Looks like a space and is another character.
    Space,
    /// A sign whose picture is empty.
    Blank,
    /// Has no meaning of its own: each font and program may show something else.
    PrivateUse,
    /// Is promised never to be a character.
    Noncharacter,
}

impl HiddenKind {
    /// A name of a few words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control character",
            Self::Bidirectional => "direction control",
            Self::ZeroWidth => "zero-width character",
            Self::Ignorable => "ignorable character",
            Self::Format => "format control",
            Self::LineSeparator => "line separator",
            Self::Space => "unusual space",
            Self::Blank => "blank sign",
            Self::PrivateUse => "private-use character",
            Self::Noncharacter => "noncharacter",
        }
    }

    /// A sentence for a person who wonders what a marker stands for.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Control => {
                "It steers a terminal or a printer (such as a new line or an erase) instead of being text."
            }
            Self::Bidirectional => "It can make the characters around it appear in another order than they are in.",
            Self::ZeroWidth => "It takes no room, so two texts that look the same can differ by it.",
            Self::Ignorable => "Programs show it as nothing, so it can hide text or make two texts look the same.",
            Self::Format => "It instructs a layout that few programs know, and shows as nothing.",
            Self::LineSeparator => "Some programs start a new line or a new paragraph here.",
            Self::Space => {
                "It looks like a space but is another character, so two texts that look the same can differ."
            }
            Self::Blank => "Its picture is empty, so it looks like a space or like nothing.",
            Self::PrivateUse => "It has no meaning of its own; each font may show something else for it.",
            Self::Noncharacter => "It is not a character, and programs treat it in different ways.",
        }
    }
}

/// Ranges of hidden characters, both ends included, sorted. Noncharacters past U+FFFF are found by rule instead.
///
/// Together they hold the Unicode property `Default_Ignorable_Code_Point`, the controls, all white space but U+0020,
/// and private use.
const HIDDEN: &[(u32, u32, HiddenKind)] = &[
    (0x0000, 0x001F, HiddenKind::Control),       // C0
    (0x007F, 0x009F, HiddenKind::Control),       // delete, C1
    (0x00A0, 0x00A0, HiddenKind::Space),         // no-break space
    (0x00AD, 0x00AD, HiddenKind::Ignorable),     // soft hyphen
    (0x034F, 0x034F, HiddenKind::Ignorable),     // combining grapheme joiner
    (0x061C, 0x061C, HiddenKind::Bidirectional), // Arabic letter mark
    (0x115F, 0x1160, HiddenKind::Ignorable),     // Hangul fillers
    (0x1680, 0x1680, HiddenKind::Space),         // ogham space mark
    (0x17B4, 0x17B5, HiddenKind::Ignorable),     // Khmer inherent vowels
    (0x180B, 0x180F, HiddenKind::Ignorable),     // Mongolian variation selectors and vowel separator
    (0x2000, 0x200A, HiddenKind::Space),         // en quad to hair space
    (0x200B, 0x200D, HiddenKind::ZeroWidth),     // zero-width space, non-joiner, joiner
    (0x200E, 0x200F, HiddenKind::Bidirectional), // left-to-right and right-to-left marks
    (0x2028, 0x2029, HiddenKind::LineSeparator), // line and paragraph separators
    (0x202A, 0x202E, HiddenKind::Bidirectional), // embeddings and overrides
    (0x202F, 0x202F, HiddenKind::Space),         // narrow no-break space
    (0x205F, 0x205F, HiddenKind::Space),         // medium mathematical space
    (0x2060, 0x2060, HiddenKind::ZeroWidth),     // word joiner
    (0x2061, 0x2065, HiddenKind::Ignorable),     // invisible mathematical operators, one reserved
    (0x2066, 0x2069, HiddenKind::Bidirectional), // isolates
    (0x206A, 0x206F, HiddenKind::Ignorable),     // deprecated shaping controls
    (0x2800, 0x2800, HiddenKind::Blank),         // braille pattern without a dot
    (0x3000, 0x3000, HiddenKind::Space),         // ideographic space
    (0x3164, 0x3164, HiddenKind::Ignorable),     // Hangul filler
    (0xE000, 0xF8FF, HiddenKind::PrivateUse),
    (0xFDD0, 0xFDEF, HiddenKind::Noncharacter),
    (0xFE00, 0xFE0F, HiddenKind::Ignorable), // variation selectors
    (0xFEFF, 0xFEFF, HiddenKind::ZeroWidth), // zero-width no-break space, the byte order mark
    (0xFFA0, 0xFFA0, HiddenKind::Ignorable), // halfwidth Hangul filler
    (0xFFF0, 0xFFF8, HiddenKind::Ignorable), // reserved
    (0xFFF9, 0xFFFB, HiddenKind::Format),    // interlinear annotation
    (0xFFFE, 0xFFFF, HiddenKind::Noncharacter),
    (0x13430, 0x1343F, HiddenKind::Format), // Egyptian hieroglyph joiners and markers
    (0x16FE4, 0x16FE4, HiddenKind::Blank),  // Khitan small script filler
    (0x1BCA0, 0x1BCA3, HiddenKind::Ignorable), // shorthand format controls
    (0x1D159, 0x1D159, HiddenKind::Blank),  // musical symbol null notehead
    (0x1D173, 0x1D17A, HiddenKind::Ignorable), // musical beams, ties, slurs and phrases
    (0xE0000, 0xE0FFF, HiddenKind::Ignorable), // tags, variation selectors supplement, reserved
    (0xF0000, 0xFFFFD, HiddenKind::PrivateUse),
    (0x10_0000, 0x10_FFFD, HiddenKind::PrivateUse),
];

/// What kind of hidden character this is, or `None` if it shows as itself.
///
/// ```
/// use countersign::escape::{HiddenKind, classify};
///
/// assert_eq!(classify('\u{202E}'), Some(HiddenKind::Bidirectional));
/// assert_eq!(classify('é'), None);
/// ```
#[must_use]
pub fn classify(c: char) -> Option<HiddenKind> {
    if matches!(c, ' '..='~') {
        return None;
    }
    let code = u32::from(c);
    // The last two code points of each plane; those of the first one are in the table as well.
    if code & 0xFFFE == 0xFFFE {
        return Some(HiddenKind::Noncharacter);
    }
    let at = HIDDEN.partition_point(|&(_, last, _)| last < code);
    HIDDEN.get(at).filter(|&&(first, _, _)| first <= code).map(|&(_, _, kind)| kind)
}

/// The ranges of hidden characters, for a page that explains markers: first, last, kind.
#[cfg(feature = "approval-server")]
pub(crate) fn ranges() -> impl Iterator<Item = (u32, u32, HiddenKind)> {
    let past_the_first_plane = (1..=16_u32).map(|plane| plane << 16 | 0xFFFE);
    HIDDEN.iter().copied().chain(past_the_first_plane.map(|at| (at, at + 1, HiddenKind::Noncharacter)))
}

/// The text with every hidden character as a marker: see the [module](self) for what that covers.
///
/// ```
/// use countersign::escape::visible;
///
/// assert_eq!(visible("invoice\u{202E}fdp.exe\n"), r"invoice\u{202E}fdp.exe\n");
/// assert_eq!(visible("plain text, naïve or not"), "plain text, naïve or not");
/// assert_eq!(visible(r"a written \n"), r"a written \u{5C}n");
/// ```
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, Backslash::Distinct)
}

/// For text that [`visible`] escaped before, such as a column of the audit log: unchanged, unless somebody put hidden
/// characters into it since, which become markers.
///
/// ```
/// use countersign::escape::{still_visible, visible};
///
/// let stored = visible("two\nlines").into_owned();
/// assert_eq!(still_visible(&stored), r"two\nlines");
/// ```
#[must_use]
pub fn still_visible(escaped: &str) -> Cow<'_, str> {
    escape(escaped, Backslash::AsIs)
}

/// A cell of a CSV file, after [`visible`]: one that a spreadsheet would take for a formula (it starts with `=`, `+`, `-`
/// or `@`, blanks before it aside) gets an apostrophe in front, which spreadsheets read as "this is text".
///
/// Quoting cells for the CSV itself is the writer's work.
///
/// ```
/// use countersign::escape::defuse_csv;
///
/// assert_eq!(defuse_csv("=HYPERLINK(\"http://x\")"), "'=HYPERLINK(\"http://x\")");
/// assert_eq!(defuse_csv("a = b"), "a = b");
/// ```
#[must_use]
pub fn defuse_csv(text: &str) -> Cow<'_, str> {
    defuse(visible(text))
}

/// [`defuse_csv`] for text that was escaped when it was stored: see [`still_visible`].
#[must_use]
pub fn defuse_stored_csv(escaped: &str) -> Cow<'_, str> {
    defuse(still_visible(escaped))
}

fn defuse(shown: Cow<'_, str>) -> Cow<'_, str> {
    // An escaped tab or line end stands for a character that a spreadsheet would skip before the sign.
    let mut start = shown.as_ref();
    while let Some(rest) = [" ", "\\t", "\\n", "\\r"].iter().find_map(|blank| start.strip_prefix(blank)) {
        start = rest;
    }
    // The full-width forms are read as the plain signs by spreadsheets with a Japanese or Chinese input method.
    if start.starts_with(['=', '+', '-', '@', '\u{FF1D}', '\u{FF0B}', '\u{FF0D}', '\u{FF20}']) {
        return Cow::Owned(format!("'{shown}"));
    }
    shown
}

/// The start of the text, made [`visible`]; if anything is cut off, the result says how many characters.
pub(crate) fn visible_cut(text: &str, max_chars: usize) -> String {
    let Some((cut, _)) = text.char_indices().nth(max_chars) else {
        return visible(text).into_owned();
    };
    let (start, rest) = text.split_at(cut);
    format!("{}… ({} more characters)", visible(start), rest.chars().count())
}

#[derive(Clone, Copy, PartialEq)]
enum Backslash {
    /// A backslash that would read as a marker's becomes a marker itself.
    Distinct,
    AsIs,
}

fn escape(text: &str, backslash: Backslash) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\') {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    // Start of what is not copied yet.
    let mut pending = 0;
    for (at, character) in text.char_indices() {
        let ambiguous = backslash == Backslash::Distinct && character == '\\' && reads_as_marker(&text[at..]);
        if !ambiguous && classify(character).is_none() {
            continue;
        }
        escaped.push_str(&text[pending..at]);
        pending = at + character.len_utf8();
        push_marker(&mut escaped, character);
    }
    if pending == 0 {
        return Cow::Borrowed(text);
    }
    escaped.push_str(&text[pending..]);
    Cow::Owned(escaped)
}

fn reads_as_marker(from_backslash: &str) -> bool {
    matches!(from_backslash.as_bytes(), [_, b'n' | b'r' | b't', ..] | [_, b'u', b'{', ..])
}

fn push_marker(out: &mut String, character: char) {
    match character {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Invariant: `fmt::Write` of a String has no error.
        _ => write!(out, "\\u{{{:X}}}", u32::from(character)).expect("writing to a String never fails"),
    }
}

#[cfg(test)]
mod tests;
