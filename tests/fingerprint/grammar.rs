//! The reader of JSON text and serde_json agree on what JSON is, apart from the listed refusals.

use std::collections::HashSet;
use std::fmt;

use countersign::{canonical_json, canonical_json_from_text};
use proptest::prelude::*;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::strategies::{json, string};

/// What of a JSON text is on the list of refusals although it is JSON.
#[derive(Default)]
struct Faults {
    duplicate_key: bool,
    depth: usize,
}

impl Faults {
    fn of(json: &str) -> Self {
        let mut faults = Self::default();
        let mut deserializer = serde_json::Deserializer::from_str(json);
        de::DeserializeSeed::deserialize(Look { faults: &mut faults, depth: 0 }, &mut deserializer).unwrap();
        faults
    }
}

struct Look<'f> {
    faults: &'f mut Faults,
    depth: usize,
}

impl Look<'_> {
    fn inside(&mut self) -> Look<'_> {
        Look { faults: &mut *self.faults, depth: self.depth + 1 }
    }

    fn enter(&mut self) {
        self.faults.depth = self.faults.depth.max(self.depth + 1);
    }
}

impl<'de> de::DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.enter();
        while seq.next_element_seed(self.inside())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.enter();
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            self.faults.duplicate_key |= !keys.insert(key);
            map.next_value_seed(self.inside())?;
        }
        Ok(())
    }
}

/// Whether some run of number characters overflows or is an integer past 64 bits.
fn has_a_number_out_of_range(json: &str) -> bool {
    json.split(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')).any(|run| {
        let integer = run.strip_prefix('-').unwrap_or(run);
        let past_64_bits = !integer.is_empty()
            && integer.bytes().all(|byte| byte.is_ascii_digit())
            && run.parse::<i64>().is_err()
            && run.parse::<u64>().is_err();
        past_64_bits || run.parse::<f64>().is_ok_and(f64::is_infinite)
    })
}

/// The parser and serde_json must agree on what JSON is.
fn check_against_serde_json(json: &str) -> Result<(), TestCaseError> {
    // serde_json stops at a depth of its own; the texts of these tests stay below it.
    let theirs = serde_json::from_str::<Value>(json);
    match (canonical_json_from_text(json), theirs) {
        (Ok(ours), Ok(value)) => {
            let faults = Faults::of(json);
            prop_assert!(!faults.duplicate_key, "a duplicate key passed: {}", json);
            prop_assert!(faults.depth <= 100, "depth {} passed: {}", faults.depth, json);
            prop_assert_eq!(ours, canonical_json(&value).unwrap(), "{}", json);
        }
        (Ok(_), Err(error)) => prop_assert!(false, "only serde_json refuses {}: {}", json, error),
        (Err(error), Ok(_)) => {
            let faults = Faults::of(json);
            let listed = faults.duplicate_key || faults.depth > 100 || has_a_number_out_of_range(json);
            prop_assert!(listed, "refused without a listed reason: {}: {}", json, error);
        }
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

/// Pieces that JSON texts are made of, put together at random.
fn token_soup() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"",
        "\\",
        "1",
        "0",
        "-",
        "01",
        "1.5",
        "1e5",
        "1e400",
        "-0",
        "18446744073709551616",
        ".",
        "e",
        "true",
        "false",
        "null",
        "nul",
        " ",
        "\n",
        "\u{A0}",
        "\u{FEFF}",
        "//",
        "NaN",
        "{\"a\":1,",
        "[1,",
        "\"a\":[",
        "\"b\":{",
    ]);
    prop::collection::vec(token, 0..10).prop_map(|tokens| tokens.concat())
}

#[test]
fn what_is_json_and_listed_is_refused() {
    let deep = "[".repeat(101) + &"]".repeat(101);
    let big = format!("\"{}\"", "x".repeat(1024 * 1024));
    for json in [
        "18446744073709551616",
        "-9223372036854775809",
        "[100000000000000000001]",
        "1e400",
        r#"{"a":1,"\u0061":2}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#""\ud800""#,
        &deep,
        &big,
    ] {
        assert!(canonical_json_from_text(json).is_err(), "{json}");
    }
    for json in ["18446744073709551615", "-9223372036854775808", "100000000000000000000", &deep[1..201]] {
        assert_eq!(canonical_json_from_text(json).unwrap().as_str(), json);
    }
}

proptest! {
    #[test]
    fn a_key_that_comes_twice_is_refused_wherever_it_stands(
        keys in prop::collection::hash_set(string(), 1..12),
        twice in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
    ) {
        let mut keys: Vec<String> = keys.into_iter().collect();
        let write = |keys: &[String]| {
            let entries: Vec<String> = keys.iter().map(|key| format!("{}:0", Value::from(key.as_str()))).collect();
            format!("{{{}}}", entries.join(","))
        };
        prop_assert!(canonical_json_from_text(&write(&keys)).is_ok());
        let again = twice.get(&keys).clone();
        keys.insert(place.index(keys.len() + 1), again);
        prop_assert!(canonical_json_from_text(&write(&keys)).is_err(), "{}", write(&keys));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_parser_and_serde_json_agree_on_token_soup(json in token_soup()) {
        check_against_serde_json(&json)?;
    }

    #[test]
    fn the_parser_and_serde_json_agree_on_mutated_json(
        value in json(),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<prop::sample::Index>()), 1..4),
    ) {
        // Bytes that mean something in JSON; others are among the strings of the value.
        const BYTES: &[u8] = b"{}[]:,\"\\u0e.-+ \n\x00\x7F\xC3";
        let mut bytes = serde_json::to_vec(&value).unwrap();
        for (at, kind, byte) in mutations {
            let at = at.index(bytes.len() + 1);
            let byte = BYTES[byte.index(BYTES.len())];
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        if let Ok(json) = String::from_utf8(bytes) {
            check_against_serde_json(&json)?;
        }
    }
}
