//! What serde_json's features make of numbers and raw values.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::json;

use super::*;

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
    let numbers =
        ["1.0", "1E3", "9007199254740993", "-0", "100000000000000000000", "0.10"].map(|text| JsonText(NUMBER, text));
    assert_eq!(ok(&numbers), "[1,1000,9007199254740993,0,100000000000000000000,0.1]");
    assert!(matches!(of(&JsonText(NUMBER, "18446744073709551616")), Err(CanonicalError::IntegerOutOfRange { .. })));
    assert!(matches!(of(&JsonText(NUMBER, "1e400")), Err(CanonicalError::NotFinite { .. })));
    for text in ["", "NaN", "1,2", "\"1\"", " 1", "[1]"] {
        assert!(matches!(of(&JsonText(NUMBER, text)), Err(CanonicalError::Syntax { .. })), "{text:?}");
    }
}

#[test]
fn a_raw_value_is_read_strictly_and_made_canonical() {
    let raw = JsonText(RAW, " {\"b\": 1.0, \"a\" : [ \"\\u0061\" ] } ");
    assert_eq!(ok(&json!({"k": 1})), r#"{"k":1}"#);
    assert_eq!(ok(&BTreeMap::from([("k", raw)])), r#"{"k":{"a":["a"],"b":1}}"#);
    assert!(matches!(of(&JsonText(RAW, r#"{"a":1,"a":1}"#)), Err(CanonicalError::DuplicateKey { .. })));
    assert!(matches!(of(&[JsonText(RAW, "1,2")]), Err(CanonicalError::Syntax { .. })));
    let limits = Limits { max_bytes: 100, max_depth: 2 };
    assert!(canonicalize(&[JsonText(RAW, "[]")], limits).is_ok());
    assert_eq!(canonicalize(&[JsonText(RAW, "[[]]")], limits), Err(CanonicalError::TooDeep { limit: 2 }));
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
