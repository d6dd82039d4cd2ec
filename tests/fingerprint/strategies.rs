//! JSON values to test with, and the many ways to write one as text.

use proptest::prelude::*;
use serde_json::Value;

/// Finite doubles, with every exponent as likely as any other, and short decimals.
pub(crate) fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |double| double.is_finite()),
        (-100_000_i32..100_000, -30..30_i32)
            .prop_map(|(digits, exponent)| format!("{digits}e{exponent}").parse().unwrap()),
        any::<i64>().prop_map(|integer| integer as f64),
    ]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![any::<i64>().prop_map(Value::from), any::<u64>().prop_map(Value::from), double().prop_map(Value::from)]
}

pub(crate) fn string() -> impl Strategy<Value = String> {
    let tricky = prop::sample::select(vec![
        'a', 'b', '"', '\\', '\n', '\0', '\u{1F}', '\u{7F}', 'é', '\u{E000}', '\u{FFFF}', '😀',
    ]);
    prop_oneof![prop::collection::vec(tricky, 0..4).prop_map(String::from_iter), "[a-z]{0,40}", any::<String>(),]
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number(),
        string().prop_map(Value::String),
    ];
    scalar.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((string(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// One of the ways to write a value as JSON text, chosen by `choices`.
pub(crate) fn spell(value: &Value, choices: &mut dyn Iterator<Item = u8>, out: &mut String) {
    let mut choose = |of: u8| choices.next().unwrap_or(0) % of;
    let space = [" ", "", "\n", "\t\r"][usize::from(choose(4))];
    out.push_str(space);
    match value {
        Value::String(text) => spell_string(text, choices, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                spell(item, choices, out);
            }
            out.push_str(space);
            out.push(']');
        }
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            let turn = usize::from(choose(8)) % entries.len().max(1);
            entries.rotate_left(turn);
            if choose(2) == 1 {
                entries.reverse();
            }
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(space);
                spell_string(key, choices, out);
                out.push_str(space);
                out.push(':');
                spell(item, choices, out);
            }
            out.push_str(space);
            out.push('}');
        }
        Value::Number(number) => match number.as_f64() {
            Some(double) if !number.is_i64() && !number.is_u64() => {
                out.push_str(&match choose(4) {
                    0 => format!("{double:e}"),
                    1 => format!("{double:E}").replace("E", "E+").replace("+-", "-"),
                    // The shortest digits without an exponent, and one zero more.
                    2 if double.fract() != 0.0 => format!("{double}0"),
                    _ => format!("{double:?}"),
                })
            }
            _ => out.push_str(&number.to_string()),
        },
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
    out.push_str(space);
}

fn spell_string(text: &str, choices: &mut dyn Iterator<Item = u8>, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match choices.next().unwrap_or(0) % 3 {
            0 => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04X}"))),
            1 if c == '/' => out.push_str("\\/"),
            _ => {
                let quoted = serde_json::to_string(&c).unwrap();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }
    out.push('"');
}
