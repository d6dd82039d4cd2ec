//! JSON text, and what holds for both ways in.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::{Error as _, Serializer};
use serde_json::Value;

use super::*;

#[test]
fn numbers_that_are_not_finite_are_refused_wherever_they_are() {
    #[derive(Serialize)]
    struct Price {
        price: f64,
    }
    assert!(matches!(of(&f64::NAN), Err(CanonicalError::NotFinite { .. })));
    assert!(matches!(of(&f32::INFINITY), Err(CanonicalError::NotFinite { .. })));
    assert!(matches!(of(&[Price { price: f64::NEG_INFINITY }]), Err(CanonicalError::NotFinite { .. })));
    assert!(matches!(of_text("[1e400]"), Err(CanonicalError::NotFinite { .. })));
    for text in ["NaN", "Infinity", "-Infinity", "nan"] {
        assert!(matches!(of_text(text), Err(CanonicalError::Syntax { .. })), "{text}");
    }
}

#[test]
fn a_key_that_comes_twice_is_refused_in_text_however_it_is_written() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":1}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{"\n":1,"a":2,"\u000A":3}"#,
        r#"{"😀":1,"z":0,"\ud83d\ude00":3}"#,
        r#"[{"x":{"k":{"k":1},"k":2}}]"#,
    ] {
        assert!(matches!(of_text(text), Err(CanonicalError::DuplicateKey { .. })), "{text}");
    }
    assert_eq!(of_text(r#"{"b":1,"":2,"b":3}"#), Err(CanonicalError::DuplicateKey { key: "b".to_owned() }));
    assert_eq!(of_text(r#"{"\"\n":1,"\"\n":3}"#), Err(CanonicalError::DuplicateKey { key: "\"\\n".to_owned() }));
    assert!(of_text(r#"{"a":{"a":{"a":1}},"A":{"a":1}}"#).is_ok());
}

#[test]
fn keys_are_sorted_by_utf16_code_units() {
    let keys =
        ["\u{10000}", "\u{FFFF}", "\u{E000}", "\u{D7FF}", "é", "z", "\"", "\\", "\n", "", "a", "aa", "A", "10", "9"];
    let mut sorted = keys;
    sorted.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
    let map: HashMap<&str, u8> = keys.iter().map(|key| (*key, 0)).collect();
    let expected: Vec<String> = sorted.iter().map(|key| format!("{}:0", serde_json::to_string(key).unwrap())).collect();
    assert_eq!(ok(&map), format!("{{{}}}", expected.join(",")));
}

#[test]
fn entries_move_with_their_values() {
    let text = r#"{"z":{"y":[{"b":1,"a":"}"},2],"x":"{"},"m":{},"a":[[],"\""]}"#;
    assert_eq!(of_text(text).unwrap(), r#"{"a":[[],"\""],"m":{},"z":{"x":"{","y":[{"a":"}","b":1},2]}}"#);
}

#[test]
fn lone_surrogates_are_refused() {
    for text in
        [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""\ud800x""#, r#""\udc00\ud800""#, r#"{"\udfff":1}"#]
    {
        assert!(matches!(of_text(text), Err(CanonicalError::LoneSurrogate { .. })), "{text}");
    }
    assert_eq!(of_text(" [\n \"é\\ud800\"]"), Err(CanonicalError::LoneSurrogate { line: 2, column: 4 }));
    assert_eq!(of_text(r#""\ud83d\ude00""#).unwrap(), "\"😀\"");
}

#[test]
fn depth_is_limited_in_both_ways_in() {
    let limits = Limits { max_bytes: 1000, max_depth: 3 };
    let refused = Err(CanonicalError::TooDeep { limit: 3 });
    for (text, fits) in [("[[[]]]", true), ("[[[[]]]]", false), (r#"{"a":[{}]}"#, true), (r#"{"a":[{"b":[]}]}"#, false)]
    {
        let value: Value = serde_json::from_str(text).unwrap();
        let results = [canonicalize_text(text, limits), canonicalize(&value, limits)];
        for result in results {
            if fits { assert_eq!(result.unwrap().as_str(), text) } else { assert_eq!(result, refused) }
        }
    }
    assert_eq!(canonicalize_text("1", Limits { max_bytes: 1, max_depth: 0 }).unwrap().as_str(), "1");
    assert!(canonicalize_text("[]", Limits { max_bytes: 9, max_depth: 0 }).is_err());
    // Text of any depth needs no call stack.
    let deep = "[".repeat(1_000_000);
    assert!(matches!(of_text(&deep), Err(CanonicalError::TooDeep { .. })));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        canonicalize_text(&deep, Limits { max_bytes: usize::MAX, max_depth: usize::MAX }).unwrap().as_str(),
        deep
    );
}

#[test]
fn size_is_limited_on_the_canonical_text() {
    for text in ["null", "[1,2,3]", r#"{"a":[],"b":"\u0001é"}"#, "1e+21", "[[[]]]", r#""\"\"""#] {
        let value: Value = serde_json::from_str(text).unwrap();
        let spaced = format!("  {text}  ");
        let fits = Limits { max_bytes: text.len(), max_depth: 9 };
        assert_eq!(canonicalize_text(&spaced, fits).unwrap().as_str(), text);
        assert_eq!(canonicalize(&value, fits).unwrap().as_str(), text);
        for max_bytes in 0..text.len() {
            let limits = Limits { max_bytes, max_depth: 9 };
            let refused = Err(CanonicalError::TooBig { limit: max_bytes });
            assert_eq!(canonicalize_text(&spaced, limits), refused, "{text} {max_bytes}");
            assert_eq!(canonicalize(&value, limits), refused, "{text} {max_bytes}");
        }
    }
}

#[test]
fn text_that_is_not_json_is_refused_with_its_place() {
    for text in [
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12",
        "\"\n\"",
        "\"\u{1f}\"",
        "1 2",
        "1,",
        "]",
        "}",
        "[}",
        "{]",
        "// c\n1",
        "/* c */1",
        "1 // c",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "0x1",
        "\u{FEFF}1",
        "1\u{FEFF}",
        "\u{A0}1",
        "\u{B}1",
        "\u{C}1",
        "\0",
        "1\0",
        "undefined",
        "\"\\\n\"",
        "--1",
        "- 1",
        "\"\\ud83d\\u\"",
    ] {
        assert!(matches!(of_text(text), Err(CanonicalError::Syntax { .. })), "{text:?} {:?}", of_text(text));
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text:?}");
    }
    let what = "a value should be here";
    assert_eq!(of_text("[1,\n  \"é\", x]"), Err(CanonicalError::Syntax { line: 2, column: 8, what }));
    let error = of_text("\u{FEFF}1").unwrap_err();
    assert_eq!(error.to_string(), "line 1, column 1: not JSON: a byte order mark is not part of JSON text");
}

#[test]
fn foreign_text_in_a_message_is_cut_and_escaped() {
    let key = format!("\u{202E}{}", "k".repeat(100));
    let error = of_text(&format!("{{\"{key}\":1,\"{key}\":1}}")).unwrap_err().to_string();
    assert!(error.contains(r"\u{202E}kkk") && error.contains("… (41 more characters)"), "{error}");
    let failing = by_hand!(|_serializer| Err(S::Error::custom("no\n\u{1B}[2J")));
    assert_eq!(of(&failing).unwrap_err().to_string(), r"the value could not be serialized: no\n\u{1B}[2J");
}
