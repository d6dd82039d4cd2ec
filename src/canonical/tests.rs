//! One test per refusal, and what a `Serialize` value becomes.

use std::collections::{BTreeMap, HashMap};

use serde::ser::{Error as _, SerializeMap, SerializeSeq, SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;

fn of<T: Serialize + ?Sized>(value: &T) -> Result<String, CanonicalError> {
    canonicalize(value, Limits::DEFAULT).map(CanonicalJson::into_string)
}

fn of_text(text: &str) -> Result<String, CanonicalError> {
    canonicalize_text(text, Limits::DEFAULT).map(CanonicalJson::into_string)
}

fn ok<T: Serialize + ?Sized>(value: &T) -> String {
    of(value).unwrap()
}

/// A `Serialize` written by hand.
macro_rules! by_hand {
    (|$serializer:ident| $body:expr) => {{
        struct Hand;
        impl Serialize for Hand {
            fn serialize<S: Serializer>(&self, $serializer: S) -> Result<S::Ok, S::Error> {
                $body
            }
        }
        Hand
    }};
}

#[test]
fn enums_options_and_bytes_look_as_serde_json_has_them() {
    #[derive(Serialize)]
    enum Shape {
        Unit,
        Newtype(u8),
        Tuple(u8, Option<u8>),
        Struct { z: u8, a: () },
    }
    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize)]
    struct Wrapped(&'static str);
    #[derive(Serialize)]
    struct Pair(char, bool);

    let shapes = [
        Shape::Unit,
        Shape::Newtype(1),
        Shape::Tuple(1, None),
        Shape::Struct { z: 1, a: () },
    ];
    assert_eq!(
        ok(&shapes),
        r#"["Unit",{"Newtype":1},{"Tuple":[1,null]},{"Struct":{"a":null,"z":1}}]"#
    );
    assert_eq!(
        ok(&(Unit, Wrapped("w"), Pair('c', true), Some(1))),
        r#"[null,"w",["c",true],1]"#
    );
    let bytes = by_hand!(|serializer| serializer.serialize_bytes(&[0, 255]));
    assert_eq!(ok(&bytes), "[0,255]");
    assert_eq!(
        ok(&(Vec::<u8>::new(), BTreeMap::<String, u8>::new())),
        "[[],{}]"
    );
}

#[test]
fn integers_are_exact_and_128_bit_ones_must_fit_64() {
    assert_eq!(
        ok(&(i64::MIN, u64::MAX)),
        "[-9223372036854775808,18446744073709551615]"
    );
    assert_eq!(
        ok(&(i128::from(i64::MIN), u128::from(u64::MAX))),
        "[-9223372036854775808,18446744073709551615]"
    );
    assert_eq!(ok(&i128::from(u64::MAX)), "18446744073709551615");
    for refused in [
        of(&(u128::from(u64::MAX) + 1)),
        of(&(i128::from(i64::MIN) - 1)),
        of(&(1_i128 << 64)),
    ] {
        assert!(matches!(
            refused,
            Err(CanonicalError::IntegerOutOfRange { .. })
        ));
    }
}

#[test]
fn doubles_print_as_ecmascript_prints_them() {
    let values = [
        1.0,
        -0.0,
        9_007_199_254_740_993.0,
        1e20,
        1e21,
        1e-6,
        1e-7,
        0.1 + 0.2,
        5e-324,
        f64::MAX,
    ];
    assert_eq!(
        ok(&values),
        "[1,0,9007199254740992,100000000000000000000,1e+21,0.000001,1e-7,0.30000000000000004,5e-324,\
         1.7976931348623157e+308]"
    );
    assert_eq!(ok(&(1_u64 << 60)), "1152921504606846976");
    assert_eq!(ok(&((1_u64 << 60) as f64)), "1152921504606847000");
    assert_eq!(
        of_text("1152921504606846976.0").unwrap(),
        "1152921504606847000"
    );
    assert_eq!(
        of_text("1152921504606847000").unwrap(),
        "1152921504606847000"
    );
    assert_eq!(of_text("-0").unwrap(), "0");
}

#[test]
fn an_f32_is_the_double_of_its_value() {
    assert_eq!(ok(&1.1_f32), "1.100000023841858");
    assert_eq!(ok(&1.1_f32), ok(&f64::from(1.1_f32)));
    assert_ne!(ok(&1.1_f32), ok(&1.1_f64));
    assert_eq!(ok(&[0.5_f32, 16_777_216.0, -0.0]), "[0.5,16777216,0]");
}

#[test]
fn numbers_that_are_not_finite_are_refused_wherever_they_are() {
    #[derive(Serialize)]
    struct Price {
        price: f64,
    }
    assert!(matches!(
        of(&f64::NAN),
        Err(CanonicalError::NotFinite { .. })
    ));
    assert!(matches!(
        of(&f32::INFINITY),
        Err(CanonicalError::NotFinite { .. })
    ));
    assert!(matches!(
        of(&[Price {
            price: f64::NEG_INFINITY
        }]),
        Err(CanonicalError::NotFinite { .. })
    ));
    assert!(matches!(
        of_text("[1e400]"),
        Err(CanonicalError::NotFinite { .. })
    ));
    for text in ["NaN", "Infinity", "-Infinity", "nan"] {
        assert!(
            matches!(of_text(text), Err(CanonicalError::Syntax { .. })),
            "{text}"
        );
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
        assert!(
            matches!(of_text(text), Err(CanonicalError::DuplicateKey { .. })),
            "{text}"
        );
    }
    assert_eq!(
        of_text(r#"{"b":1,"":2,"b":3}"#),
        Err(CanonicalError::DuplicateKey {
            key: "b".to_owned()
        })
    );
    assert_eq!(
        of_text(r#"{"\"\n":1,"\"\n":3}"#),
        Err(CanonicalError::DuplicateKey {
            key: "\"\\n".to_owned()
        })
    );
    assert!(of_text(r#"{"a":{"a":{"a":1}},"A":{"a":1}}"#).is_ok());
}

#[test]
fn a_key_that_comes_twice_is_refused_in_a_serialize_value() {
    #[derive(Serialize)]
    struct Flat {
        id: u8,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, u8>,
    }
    let flat = |key| Flat {
        id: 1,
        rest: BTreeMap::from([(key, 2), ("z", 3)]),
    };
    assert_eq!(ok(&flat("a")), r#"{"a":2,"id":1,"z":3}"#);
    assert_eq!(
        of(&flat("id")),
        Err(CanonicalError::DuplicateKey {
            key: "id".to_owned()
        })
    );

    let twice = by_hand!(|serializer| {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("b", &1)?;
        map.serialize_entry("a", &1)?;
        map.serialize_entry("b", &1)?;
        map.end()
    });
    assert!(matches!(
        of(&twice),
        Err(CanonicalError::DuplicateKey { .. })
    ));
}

#[test]
fn only_strings_are_keys() {
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(String);
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Side {
        Left,
    }
    assert_eq!(
        ok(&BTreeMap::from([(Name("n".to_owned()), 1)])),
        r#"{"n":1}"#
    );
    assert_eq!(ok(&BTreeMap::from([(Side::Left, 1)])), r#"{"Left":1}"#);
    assert_eq!(ok(&BTreeMap::from([('"', 1)])), r#"{"\"":1}"#);
    assert_eq!(ok(&BTreeMap::from([(Some("s"), 1)])), r#"{"s":1}"#);
    for refused in [
        of(&BTreeMap::from([(1_u8, 1)])),
        of(&BTreeMap::from([(-1_i64, 1)])),
        of(&BTreeMap::from([(true, 1)])),
        of(&BTreeMap::from([(None::<String>, 1)])),
        of(&BTreeMap::from([((), 1)])),
        of(&BTreeMap::from([(["a"], 1)])),
        of(&BTreeMap::from([(BTreeMap::from([("a", 1)]), 1)])),
    ] {
        assert_eq!(refused, Err(CanonicalError::KeyNotString));
    }
}

#[test]
fn keys_are_sorted_by_utf16_code_units() {
    let keys = [
        "\u{10000}",
        "\u{FFFF}",
        "\u{E000}",
        "\u{D7FF}",
        "é",
        "z",
        "\"",
        "\\",
        "\n",
        "",
        "a",
        "aa",
        "A",
        "10",
        "9",
    ];
    let mut sorted = keys;
    sorted.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
    let map: HashMap<&str, u8> = keys.iter().map(|key| (*key, 0)).collect();
    let expected: Vec<String> = sorted
        .iter()
        .map(|key| format!("{}:0", serde_json::to_string(key).unwrap()))
        .collect();
    assert_eq!(ok(&map), format!("{{{}}}", expected.join(",")));
}

#[test]
fn entries_move_with_their_values() {
    let text = r#"{"z":{"y":[{"b":1,"a":"}"},2],"x":"{"},"m":{},"a":[[],"\""]}"#;
    assert_eq!(
        of_text(text).unwrap(),
        r#"{"a":[[],"\""],"m":{},"z":{"x":"{","y":[{"a":"}","b":1},2]}}"#
    );
}

#[test]
fn lone_surrogates_are_refused() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\ud800""#,
        r#""\ud800x""#,
        r#""\udc00\ud800""#,
        r#"{"\udfff":1}"#,
    ] {
        assert!(
            matches!(of_text(text), Err(CanonicalError::LoneSurrogate { .. })),
            "{text}"
        );
    }
    assert_eq!(
        of_text(" [\n \"é\\ud800\"]"),
        Err(CanonicalError::LoneSurrogate { line: 2, column: 4 })
    );
    assert_eq!(of_text(r#""\ud83d\ude00""#).unwrap(), "\"😀\"");
}

#[test]
fn depth_is_limited_in_both_ways_in() {
    let limits = Limits {
        max_bytes: 1000,
        max_depth: 3,
    };
    let refused = Err(CanonicalError::TooDeep { limit: 3 });
    for (text, fits) in [
        ("[[[]]]", true),
        ("[[[[]]]]", false),
        (r#"{"a":[{}]}"#, true),
        (r#"{"a":[{"b":[]}]}"#, false),
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        let results = [
            canonicalize_text(text, limits),
            canonicalize(&value, limits),
        ];
        for result in results {
            if fits {
                assert_eq!(result.unwrap().as_str(), text)
            } else {
                assert_eq!(result, refused)
            }
        }
    }
    assert_eq!(
        canonicalize_text(
            "1",
            Limits {
                max_bytes: 1,
                max_depth: 0
            }
        )
        .unwrap()
        .as_str(),
        "1"
    );
    assert!(
        canonicalize_text(
            "[]",
            Limits {
                max_bytes: 9,
                max_depth: 0
            }
        )
        .is_err()
    );
    // Text of any depth needs no call stack.
    let deep = "[".repeat(1_000_000);
    assert!(matches!(
        of_text(&deep),
        Err(CanonicalError::TooDeep { .. })
    ));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        canonicalize_text(
            &deep,
            Limits {
                max_bytes: usize::MAX,
                max_depth: usize::MAX
            }
        )
        .unwrap()
        .as_str(),
        deep
    );
}

#[test]
fn size_is_limited_on_the_canonical_text() {
    for text in [
        "null",
        "[1,2,3]",
        r#"{"a":[],"b":"\u0001é"}"#,
        "1e+21",
        "[[[]]]",
        r#""\"\"""#,
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        let spaced = format!("  {text}  ");
        let fits = Limits {
            max_bytes: text.len(),
            max_depth: 9,
        };
        assert_eq!(canonicalize_text(&spaced, fits).unwrap().as_str(), text);
        assert_eq!(canonicalize(&value, fits).unwrap().as_str(), text);
        for max_bytes in 0..text.len() {
            let limits = Limits {
                max_bytes,
                max_depth: 9,
            };
            let refused = Err(CanonicalError::TooBig { limit: max_bytes });
            assert_eq!(
                canonicalize_text(&spaced, limits),
                refused,
                "{text} {max_bytes}"
            );
            assert_eq!(canonicalize(&value, limits), refused, "{text} {max_bytes}");
        }
    }
}

#[test]
fn a_value_without_end_is_stopped_at_the_limit() {
    let endless = by_hand!(|serializer| {
        let mut seq = serializer.serialize_seq(None)?;
        loop {
            seq.serialize_element("more")?;
        }
    });
    assert!(matches!(of(&endless), Err(CanonicalError::TooBig { .. })));
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
        assert!(
            matches!(of_text(text), Err(CanonicalError::Syntax { .. })),
            "{text:?} {:?}",
            of_text(text)
        );
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text:?}");
    }
    let what = "a value should be here";
    assert_eq!(
        of_text("[1,\n  \"é\", x]"),
        Err(CanonicalError::Syntax {
            line: 2,
            column: 8,
            what
        })
    );
    let error = of_text("\u{FEFF}1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 1: not JSON: a byte order mark is not part of JSON text"
    );
}

#[test]
fn foreign_text_in_a_message_is_cut_and_escaped() {
    let key = format!("\u{202E}{}", "k".repeat(100));
    let error = of_text(&format!("{{\"{key}\":1,\"{key}\":1}}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(r"\u{202E}kkk") && error.contains("… (41 more characters)"),
        "{error}"
    );
    let failing = by_hand!(|_serializer| Err(S::Error::custom("no\n\u{1B}[2J")));
    assert_eq!(
        of(&failing).unwrap_err().to_string(),
        r"the value could not be serialized: no\n\u{1B}[2J"
    );
}

#[test]
fn an_error_that_a_serialize_swallows_is_still_an_error() {
    let swallowed_element = by_hand!(|serializer| {
        let mut seq = serializer.serialize_seq(None)?;
        let _ = seq.serialize_element(&f64::NAN);
        seq.serialize_element(&1)?;
        seq.end()
    });
    assert!(matches!(
        of(&swallowed_element),
        Err(CanonicalError::NotFinite { .. })
    ));
    let swallowed_key = by_hand!(|serializer| {
        let mut map = serializer.serialize_map(None)?;
        let _ = map.serialize_entry(&1, &1);
        map.end()
    });
    assert_eq!(of(&swallowed_key), Err(CanonicalError::KeyNotString));
    let swallowed_field = by_hand!(|serializer| {
        let mut fields = serializer.serialize_struct("S", 2)?;
        let _ = fields.serialize_field("a", &1);
        let _ = fields.serialize_field("a", &1);
        fields.end()
    });
    assert!(matches!(
        of(&swallowed_field),
        Err(CanonicalError::DuplicateKey { .. })
    ));
}

#[test]
fn keys_and_values_come_in_turn() {
    let two_keys = by_hand!(|serializer| {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_key("a")?;
        let _ = map.serialize_key("b");
        let _ = map.serialize_value(&1);
        map.end()
    });
    assert!(matches!(of(&two_keys), Err(CanonicalError::Serialize(_))));
    let no_key = by_hand!(|serializer| {
        let mut map = serializer.serialize_map(None)?;
        let _ = map.serialize_value(&1);
        map.end()
    });
    assert!(matches!(of(&no_key), Err(CanonicalError::Serialize(_))));
    let no_value = by_hand!(|serializer| {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_key("a")?;
        map.end()
    });
    assert!(matches!(of(&no_value), Err(CanonicalError::Serialize(_))));
}

/// What serde_json's `Number` and `RawValue` serialize as under its features, whatever features are on here.
struct JsonText(&'static str, &'static str);

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct(self.0, 1)?;
        fields.serialize_field(self.0, self.1)?;
        fields.end()
    }
}

const NUMBER: &str = "$serde_json::private::Number";
const RAW: &str = "$serde_json::private::RawValue";

#[test]
fn a_number_given_as_text_follows_the_rules_of_text() {
    let numbers = [
        "1.0",
        "1E3",
        "9007199254740993",
        "-0",
        "100000000000000000000",
        "0.10",
    ]
    .map(|text| JsonText(NUMBER, text));
    assert_eq!(
        ok(&numbers),
        "[1,1000,9007199254740993,0,100000000000000000000,0.1]"
    );
    assert!(matches!(
        of(&JsonText(NUMBER, "18446744073709551616")),
        Err(CanonicalError::IntegerOutOfRange { .. })
    ));
    assert!(matches!(
        of(&JsonText(NUMBER, "1e400")),
        Err(CanonicalError::NotFinite { .. })
    ));
    for text in ["", "NaN", "1,2", "\"1\"", " 1", "[1]"] {
        assert!(
            matches!(
                of(&JsonText(NUMBER, text)),
                Err(CanonicalError::Syntax { .. })
            ),
            "{text:?}"
        );
    }
}

#[test]
fn a_raw_value_is_read_strictly_and_made_canonical() {
    let raw = JsonText(RAW, " {\"b\": 1.0, \"a\" : [ \"\\u0061\" ] } ");
    assert_eq!(ok(&json!({"k": 1})), r#"{"k":1}"#);
    assert_eq!(
        ok(&BTreeMap::from([("k", raw)])),
        r#"{"k":{"a":["a"],"b":1}}"#
    );
    assert!(matches!(
        of(&JsonText(RAW, r#"{"a":1,"a":1}"#)),
        Err(CanonicalError::DuplicateKey { .. })
    ));
    assert!(matches!(
        of(&[JsonText(RAW, "1,2")]),
        Err(CanonicalError::Syntax { .. })
    ));
    let limits = Limits {
        max_bytes: 100,
        max_depth: 2,
    };
    assert!(canonicalize(&[JsonText(RAW, "[]")], limits).is_ok());
    assert_eq!(
        canonicalize(&[JsonText(RAW, "[[]]")], limits),
        Err(CanonicalError::TooDeep { limit: 2 })
    );
}

#[test]
fn serde_jsons_own_names_are_ordinary_keys() {
    for name in [NUMBER, RAW] {
        let expected = format!("{{\"{name}\":\"1\"}}");
        assert_eq!(of_text(&expected).unwrap(), expected);
        assert_eq!(ok(&BTreeMap::from([(name, "1")])), expected);
        let other_struct = by_hand!(|serializer| {
            let mut fields = serializer.serialize_struct("Other", 1)?;
            fields.serialize_field(NUMBER, "1")?;
            fields.end()
        });
        assert_eq!(ok(&other_struct), format!("{{\"{NUMBER}\":\"1\"}}"));
    }
    let empty = by_hand!(|serializer| serializer.serialize_struct(NUMBER, 0)?.end());
    assert!(matches!(of(&empty), Err(CanonicalError::Serialize(_))));
    let twice = by_hand!(|serializer| {
        let mut fields = serializer.serialize_struct(NUMBER, 2)?;
        fields.serialize_field(NUMBER, "1")?;
        let _ = fields.serialize_field(NUMBER, "1");
        fields.end()
    });
    assert!(matches!(of(&[twice]), Err(CanonicalError::Serialize(_))));
    let not_text = by_hand!(|serializer| {
        let mut fields = serializer.serialize_struct(NUMBER, 1)?;
        fields.serialize_field(NUMBER, &1)?;
        fields.end()
    });
    assert!(matches!(of(&not_text), Err(CanonicalError::Serialize(_))));
}

#[test]
fn a_type_and_its_to_value_have_one_text() {
    #[derive(Serialize, Deserialize)]
    struct Row {
        sku: String,
        price: f64,
        stock: i64,
        tags: Vec<Option<String>>,
    }
    let row = Row {
        sku: "a\u{7F}\u{2028}".to_owned(),
        price: 20.0,
        stock: -3,
        tags: vec![None, Some(String::new())],
    };
    let value = serde_json::to_value(&row).unwrap();
    assert_eq!(ok(&row), ok(&value));
    assert_eq!(
        ok(&row),
        of_text(&serde_json::to_string(&row).unwrap()).unwrap()
    );
}
