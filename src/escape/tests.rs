//! Every character is walked, and the result is read back.

use proptest::prelude::*;

use super::*;

/// Reads markers back. Written from the module's description, not from the code above.
fn unescape(escaped: &str) -> String {
    let mut text = String::new();
    let mut rest = escaped;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            text.push(c);
        } else if let Some(after) = rest.strip_prefix('n') {
            text.push('\n');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('r') {
            text.push('\r');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('t') {
            text.push('\t');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("u{") {
            let (digits, after) = after.split_once('}').unwrap();
            text.push(char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap());
            rest = after;
        } else {
            text.push('\\');
        }
    }
    text
}

#[test]
fn the_table_is_sorted_and_its_ranges_do_not_touch_each_other() {
    for pair in HIDDEN.windows(2) {
        assert!(pair[0].1 < pair[1].0, "{:X} {:X}", pair[0].1, pair[1].0);
    }
    assert!(HIDDEN.iter().all(|&(first, last, _)| first <= last));
}

#[test]
fn every_control_and_every_white_space_but_the_plain_space_is_hidden() {
    for c in '\0'..=char::MAX {
        if c.is_control() {
            assert_eq!(classify(c), Some(HiddenKind::Control), "{:X}", u32::from(c));
        } else if c.is_whitespace() && c != ' ' {
            let expected =
                if matches!(c, '\u{2028}' | '\u{2029}') { HiddenKind::LineSeparator } else { HiddenKind::Space };
            assert_eq!(classify(c), Some(expected), "{:X}", u32::from(c));
        } else {
            let kind = classify(c);
            assert!(!matches!(kind, Some(HiddenKind::Control | HiddenKind::Space)), "{:X}", u32::from(c));
            assert!(kind.is_none() || !c.is_alphanumeric() || is_default_ignorable(c), "{:X}", u32::from(c));
        }
    }
}

/// DerivedCoreProperties.txt, `Default_Ignorable_Code_Point`.
const DEFAULT_IGNORABLE: &[(u32, u32)] = &[
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
];

fn is_default_ignorable(c: char) -> bool {
    DEFAULT_IGNORABLE.iter().any(|&(first, last)| (first..=last).contains(&u32::from(c)))
}

#[test]
fn every_default_ignorable_character_is_hidden_and_ignorable_means_nothing_else() {
    for c in '\0'..=char::MAX {
        if is_default_ignorable(c) {
            let kind = classify(c).unwrap_or_else(|| panic!("{:X} is not hidden", u32::from(c)));
            assert!(
                matches!(kind, HiddenKind::Ignorable | HiddenKind::ZeroWidth | HiddenKind::Bidirectional),
                "{:X} {kind:?}",
                u32::from(c)
            );
        } else {
            let kind = classify(c);
            assert!(
                !matches!(kind, Some(HiddenKind::Ignorable | HiddenKind::ZeroWidth | HiddenKind::Bidirectional)),
                "{:X} {kind:?}",
                u32::from(c)
            );
        }
    }
}

#[test]
fn the_twelve_direction_controls_are_named_so() {
    let direction: Vec<char> = ('\0'..=char::MAX).filter(|&c| classify(c) == Some(HiddenKind::Bidirectional)).collect();
    let expected: Vec<char> = ['\u{61C}', '\u{200E}', '\u{200F}']
        .into_iter()
        .chain('\u{202A}'..='\u{202E}')
        .chain('\u{2066}'..='\u{2069}')
        .collect();
    assert_eq!(direction, expected);
}

#[test]
fn the_66_noncharacters_and_137468_private_use_characters_are_hidden() {
    let count = |kind| ('\0'..=char::MAX).filter(|&c| classify(c) == Some(kind)).count();
    assert_eq!(count(HiddenKind::Noncharacter), 66);
    assert_eq!(count(HiddenKind::PrivateUse), 137_468);
}

#[test]
fn printable_ascii_is_never_hidden_and_is_borrowed() {
    let printable: String = (' '..='~').filter(|&c| c != '\\').collect();
    assert!(matches!(visible(&printable), Cow::Borrowed(text) if text == printable));
    assert!(matches!(visible("naïve 日本語 😀 C:\\dir"), Cow::Borrowed(_)));
}

#[test]
fn each_hidden_character_becomes_its_marker() {
    assert_eq!(visible("a\u{202E}b\u{200B}c\u{A0}d"), r"a\u{202E}b\u{200B}c\u{A0}d");
    assert_eq!(visible("\n\r\t\0\u{1B}[2J\u{7F}\u{85}"), r"\n\r\t\u{0}\u{1B}[2J\u{7F}\u{85}");
    assert_eq!(visible("\u{E0041}\u{FFFF}\u{10FFFF}\u{E000}"), r"\u{E0041}\u{FFFF}\u{10FFFF}\u{E000}");
    assert_eq!(visible("\u{2800}\u{FFF9}\u{2028}"), r"\u{2800}\u{FFF9}\u{2028}");
}

#[test]
fn only_a_backslash_that_reads_as_a_marker_is_escaped() {
    assert_eq!(visible(r"C:\dir\"), r"C:\dir\");
    assert_eq!(visible(r"C:\new\u{202E}\u0041"), r"C:\u{5C}new\u{5C}u{202E}\u0041");
    assert_eq!(visible("\\\n"), r"\\n");
    assert_eq!(visible(r"\\n"), r"\\u{5C}n");
}

#[test]
fn long_text_is_cut_at_a_character_and_says_so() {
    assert_eq!(visible_cut("日本語", 3), "日本語");
    assert_eq!(visible_cut("日本語の", 3), "日本語… (1 more characters)");
    assert_eq!(visible_cut("a\nb\u{202E}", 2), r"a\n… (2 more characters)");
    assert_eq!(visible_cut("", 0), "");
}

fn text() -> impl Strategy<Value = String> {
    let tricky = prop::sample::select(vec!['\\', 'n', 'r', 't', 'u', '{', '}', '0', 'A', '\n', '\u{202E}', '\\']);
    prop::collection::vec(prop_oneof![3 => tricky, 1 => any::<char>()], 0..24)
        .prop_map(|characters| characters.into_iter().collect())
}

proptest! {
    #[test]
    fn nothing_hidden_is_left(text in text()) {
        prop_assert!(visible(&text).chars().all(|c| classify(c).is_none()));
        prop_assert!(still_visible(&text).chars().all(|c| classify(c).is_none()));
    }

    #[test]
    fn the_text_can_be_read_back_so_two_texts_never_look_alike(text in text()) {
        prop_assert_eq!(unescape(&visible(&text)), text);
    }

    #[test]
    fn escaped_text_is_still_visible(text in text()) {
        let once = visible(&text);
        prop_assert_eq!(still_visible(&once), once.clone());
        // Escaping again is right for a text that happens to look like an escaped one, so it is not the identity.
        prop_assert_eq!(unescape(&visible(&once)), once);
    }
}

#[test]
fn no_csv_cell_starts_a_formula_however_the_sign_is_hidden() {
    use super::{defuse_csv, defuse_stored_csv};
    for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "  =1", "\t=1", "\r\n=1", "\n \t@x", "\u{FF1D}1", "\u{FF0B}1"] {
        assert!(defuse_csv(formula).starts_with('\''), "{formula:?}");
        assert!(defuse_stored_csv(&visible(formula)).starts_with('\''), "{formula:?} stored");
    }
    for plain in ["", "a=1", "1-1", "'=1", "\\=1", "price"] {
        assert_eq!(defuse_csv(plain), plain);
    }
    // What a spreadsheet would take for a blank is a marker by then: the cell starts with a backslash.
    assert_eq!(defuse_csv("\u{A0}=1"), "\\u{A0}=1");
}
