//! `Serialize` values.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::*;

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

    let shapes = [Shape::Unit, Shape::Newtype(1), Shape::Tuple(1, None), Shape::Struct { z: 1, a: () }];
    assert_eq!(ok(&shapes), r#"["Unit",{"Newtype":1},{"Tuple":[1,null]},{"Struct":{"a":null,"z":1}}]"#);
    assert_eq!(ok(&(Unit, Wrapped("w"), Pair('c', true), Some(1))), r#"[null,"w",["c",true],1]"#);
    let bytes = by_hand!(|serializer| serializer.serialize_bytes(&[0, 255]));
    assert_eq!(ok(&bytes), "[0,255]");
    assert_eq!(ok(&(Vec::<u8>::new(), BTreeMap::<String, u8>::new())), "[[],{}]");
}

#[test]
fn integers_are_exact_and_128_bit_ones_must_fit_64() {
    assert_eq!(ok(&(i64::MIN, u64::MAX)), "[-9223372036854775808,18446744073709551615]");
    assert_eq!(ok(&(i128::from(i64::MIN), u128::from(u64::MAX))), "[-9223372036854775808,18446744073709551615]");
    assert_eq!(ok(&i128::from(u64::MAX)), "18446744073709551615");
    for refused in [of(&(u128::from(u64::MAX) + 1)), of(&(i128::from(i64::MIN) - 1)), of(&(1_i128 << 64))] {
        assert!(matches!(refused, Err(CanonicalError::IntegerOutOfRange { .. })));
    }
}

#[test]
fn doubles_print_as_ecmascript_prints_them() {
    let values = [1.0, -0.0, 9_007_199_254_740_993.0, 1e20, 1e21, 1e-6, 1e-7, 0.1 + 0.2, 5e-324, f64::MAX];
    assert_eq!(
        ok(&values),
        "[1,0,9007199254740992,100000000000000000000,1e+21,0.000001,1e-7,0.30000000000000004,5e-324,\
         1.7976931348623157e+308]"
    );
    assert_eq!(ok(&(1_u64 << 60)), "1152921504606846976");
    assert_eq!(ok(&((1_u64 << 60) as f64)), "1152921504606847000");
    assert_eq!(of_text("1152921504606846976.0").unwrap(), "1152921504606847000");
    assert_eq!(of_text("1152921504606847000").unwrap(), "1152921504606847000");
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
fn a_key_that_comes_twice_is_refused_in_a_serialize_value() {
    #[derive(Serialize)]
    struct Flat {
        id: u8,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, u8>,
    }
    let flat = |key| Flat { id: 1, rest: BTreeMap::from([(key, 2), ("z", 3)]) };
    assert_eq!(ok(&flat("a")), r#"{"a":2,"id":1,"z":3}"#);
    assert_eq!(of(&flat("id")), Err(CanonicalError::DuplicateKey { key: "id".to_owned() }));

    let twice = by_hand!(|serializer| {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("b", &1)?;
        map.serialize_entry("a", &1)?;
        map.serialize_entry("b", &1)?;
        map.end()
    });
    assert!(matches!(of(&twice), Err(CanonicalError::DuplicateKey { .. })));
}

#[test]
fn only_strings_are_keys() {
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Name(String);
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Side {
        Left,
    }
    assert_eq!(ok(&BTreeMap::from([(Name("n".to_owned()), 1)])), r#"{"n":1}"#);
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
fn an_error_that_a_serialize_swallows_is_still_an_error() {
    let swallowed_element = by_hand!(|serializer| {
        let mut seq = serializer.serialize_seq(None)?;
        let _ = seq.serialize_element(&f64::NAN);
        seq.serialize_element(&1)?;
        seq.end()
    });
    assert!(matches!(of(&swallowed_element), Err(CanonicalError::NotFinite { .. })));
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
    assert!(matches!(of(&swallowed_field), Err(CanonicalError::DuplicateKey { .. })));
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

#[test]
fn a_type_and_its_to_value_have_one_text() {
    #[derive(Serialize)]
    struct Row {
        sku: String,
        price: f64,
        stock: i64,
        tags: Vec<Option<String>>,
    }
    let row = Row { sku: "a\u{7F}\u{2028}".to_owned(), price: 20.0, stock: -3, tags: vec![None, Some(String::new())] };
    let value = serde_json::to_value(&row).unwrap();
    assert_eq!(ok(&row), ok(&value));
    assert_eq!(ok(&row), of_text(&serde_json::to_string(&row).unwrap()).unwrap());
}
