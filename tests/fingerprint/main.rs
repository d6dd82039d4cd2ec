//! The fingerprint against the conformance vectors, and the properties that every caller relies on.
//!
//! These hold whatever features of serde_json a host switches on; run them also with
//! `--features serde_json/arbitrary_precision,serde_json/preserve_order,serde_json/raw_value`.

mod grammar;
mod strategies;

use std::collections::{BTreeSet, HashSet};

use countersign::{Fingerprint, canonical_json, canonical_json_from_text, fingerprint};
use proptest::prelude::*;
use serde_json::Value;

use strategies::{double, json, spell, string};

fn text_fingerprint(json: &str) -> Fingerprint {
    canonical_json_from_text(json).unwrap_or_else(|error| panic!("{json}: {error}")).fingerprint()
}

fn canonical(json: &str) -> String {
    canonical_json_from_text(json).unwrap_or_else(|error| panic!("{json}: {error}")).into_string()
}

#[test]
fn the_conformance_vectors_hold_for_text_and_for_values() {
    let vectors = include_str!("../conformance/fingerprint.jsonl");
    let mut count = 0;
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let (json, sha256) = (vector["json"].as_str().unwrap(), vector["sha256"].as_str().unwrap());
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(text_fingerprint(json).to_string(), sha256, "text {json}");
        assert_eq!(fingerprint(&value).unwrap().to_string(), sha256, "value {json}");
        assert_eq!(canonical(&canonical(json)), canonical(json), "fixed point {json}");
        count += 1;
    }
    assert_eq!(count, 392);
}

#[test]
fn doubles_next_to_each_other_and_at_the_edges_never_share() {
    let mut doubles = vec![f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e20, 1e21, 1e22, 1e23, 1e-6, 1e-7, 0.1, 1.0 / 3.0];
    doubles.extend((0..=1023).map(|exponent| 2_f64.powi(exponent)));
    doubles.extend((1..=1074).map(|exponent| 2_f64.powi(-exponent)));
    let mut bits = BTreeSet::new();
    for double in doubles {
        for near in [double.next_down().next_down(), double.next_down(), double, double.next_up()] {
            if near.is_finite() && near != 0.0 {
                bits.insert(near.to_bits());
                bits.insert((-near).to_bits());
            }
        }
    }
    let texts: HashSet<String> =
        bits.iter().map(|&bits| canonical_json(&f64::from_bits(bits)).unwrap().into_string()).collect();
    assert_eq!(texts.len(), bits.len());
    for text in texts {
        assert_eq!(canonical(&text), text);
    }
}

#[test]
fn integers_next_to_each_other_and_at_the_edges_never_share() {
    let mut integers = BTreeSet::new();
    for exponent in 0..64 {
        for near in -2..=2_i128 {
            integers.insert((1_i128 << exponent) + near);
            integers.insert(-(1_i128 << exponent) + near);
        }
    }
    integers.extend([i128::from(u64::MAX), i128::from(u64::MAX) - 1, i128::from(i64::MIN)]);
    integers.retain(|&integer| i64::try_from(integer).is_ok() || u64::try_from(integer).is_ok());
    let prints: HashSet<Fingerprint> = integers.iter().map(|integer| fingerprint(integer).unwrap()).collect();
    assert_eq!(prints.len(), integers.len());
    for integer in integers {
        assert_eq!(canonical(&integer.to_string()), integer.to_string());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn integers_share_only_with_themselves(a in any::<i64>(), b in any::<u64>(), c in any::<i64>(), step in 1..4_i64) {
        prop_assert_eq!(fingerprint(&a).unwrap() == fingerprint(&c).unwrap(), a == c);
        prop_assert_ne!(fingerprint(&a).unwrap(), fingerprint(&a.wrapping_add(step)).unwrap());
        prop_assert_ne!(fingerprint(&b).unwrap(), fingerprint(&b.wrapping_add(1)).unwrap());
        prop_assert_eq!(fingerprint(&a).unwrap() == fingerprint(&b).unwrap(), u64::try_from(a) == Ok(b));
    }

    #[test]
    fn doubles_share_only_with_themselves(a in double(), b in double()) {
        prop_assert_eq!(fingerprint(&a).unwrap() == fingerprint(&b).unwrap(), a == b);
        let next = a.next_up();
        prop_assert!(!next.is_finite() || next == a || fingerprint(&a).unwrap() != fingerprint(&next).unwrap());
    }

    #[test]
    fn a_double_is_read_back_from_its_text(a in double()) {
        let text = canonical_json(&a).unwrap().into_string();
        prop_assert_eq!(text.parse::<f64>().unwrap(), a);
        prop_assert_eq!(canonical(&text), text);
    }

    #[test]
    fn an_f32_is_the_double_of_its_value(a in any::<f32>()) {
        prop_assume!(a.is_finite());
        prop_assert_eq!(fingerprint(&a).unwrap(), fingerprint(&f64::from(a)).unwrap());
    }

    #[test]
    fn equal_text_means_equal_fingerprint_and_the_other_way_round(a in json(), b in json()) {
        let (a, b) = (canonical_json(&a).unwrap(), canonical_json(&b).unwrap());
        prop_assert_eq!(a == b, a.fingerprint() == b.fingerprint());
        prop_assert_eq!(a.fingerprint().to_string().parse::<Fingerprint>().unwrap(), a.fingerprint());
    }

    #[test]
    fn canonical_text_is_a_fixed_point_and_the_same_value(value in json()) {
        let text = canonical_json(&value).unwrap().into_string();
        prop_assert_eq!(canonical(&text), text.clone());
        let again: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(canonical_json(&again).unwrap().into_string(), text);
    }

    #[test]
    fn spelling_does_not_matter(value in json(), choices in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut spelled = String::new();
        spell(&value, &mut choices.into_iter(), &mut spelled);
        prop_assert_eq!(canonical(&spelled), canonical_json(&value).unwrap().into_string(), "{}", spelled);
    }

    #[test]
    fn a_number_may_be_written_in_many_ways(digits in -99_999_i64..99_999, zeros in 0..5_usize, shift in 0..5_i32) {
        let expected = canonical(&digits.to_string());
        let shifted = digits * 10_i64.pow(shift.unsigned_abs());
        for spelled in [
            format!("{digits}.0{}", "0".repeat(zeros)),
            format!("{digits}e0"),
            format!("{digits}E+00"),
            format!("{digits}.0e-0"),
            format!("{shifted}e-{shift}"),
            format!("{shifted}.{}E-{shift}", "0".repeat(zeros + 1)),
        ] {
            prop_assert_eq!(canonical(&spelled), expected.clone(), "{}", spelled);
        }
    }

    #[test]
    fn the_order_of_keys_does_not_matter_and_is_that_of_utf16(keys in prop::collection::btree_set(string(), 0..20)) {
        let forward: Vec<&String> = keys.iter().collect();
        let object = |keys: &[&String]| {
            let entries: Vec<String> = keys.iter().map(|key| format!("{}:0", serde_json::to_string(key).unwrap())).collect();
            format!("{{{}}}", entries.join(","))
        };
        let mut sorted = forward.clone();
        sorted.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
        let mut backward = forward.clone();
        backward.reverse();
        let expected = object(&sorted);
        for order in [&forward, &backward, &sorted] {
            prop_assert_eq!(canonical(&object(order)), expected.clone());
        }
    }

    #[test]
    fn text_and_value_agree(value in json()) {
        let text = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(canonical_json_from_text(&text).unwrap(), canonical_json(&value).unwrap());
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(canonical_json_from_text(&pretty).unwrap(), canonical_json(&value).unwrap());
    }
}

#[test]
fn text_and_fingerprint_show_themselves() {
    let text = canonical_json(&[1, 2]).unwrap();
    assert_eq!((text.as_str(), text.as_ref(), format!("{text:>7}")), ("[1,2]", "[1,2]", "  [1,2]".to_owned()));
    let print = canonical_json(&()).unwrap().fingerprint();
    assert_eq!(print.as_bytes()[..3], [0x74, 0x23, 0x4e]);
    assert_eq!(format!("{print:?}"), format!("Fingerprint({print})"));
    assert_eq!(serde_json::to_value(print).unwrap(), Value::from(print.to_string()));
    for wrong in [print.to_string().to_uppercase(), format!("{print} "), "74".to_owned()] {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
}
