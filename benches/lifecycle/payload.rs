//! Canonical JSON and fingerprint against `serde_json::to_vec` and SHA-256 of the same value.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::Options;
use crate::figures::{Figures, median};

/// A value whose JSON has about this many bytes.
pub(crate) fn of_size(bytes: usize) -> Value {
    let row = |number: usize| {
        json!({
            "sku": format!("TEA-{number:06}"), "name": "Assam, second flush", "price_cents": 1290 + number,
            "weight": 0.25 * (number % 7) as f64, "tags": ["tea", "black"], "active": number.is_multiple_of(3),
        })
    };
    let each = row(9_999).to_string().len() + 1;
    json!({"category": "tea", "rows": (0..(bytes / each).max(1)).map(row).collect::<Vec<_>>()})
}

pub(crate) fn run(options: &Options, figures: &mut Figures) {
    for (name, bytes) in [("1 KiB", 1 << 10), ("100 KiB", 100 << 10), ("1 MiB", (1 << 20) - 64)] {
        let value = of_size(bytes);
        let rounds = (if options.quick { 20 << 20 } else { 100 << 20 } / bytes).clamp(20, 20_000);
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            let text = serde_json::to_vec(black_box(&value)).expect("JSON");
            black_box(Sha256::digest(&text));
            plain.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            black_box(countersign::canonical_json(black_box(&value)).expect("canonical").fingerprint());
            ours.push(start.elapsed().as_secs_f64());
        }
        figures.at_least(
            format!("fingerprint of {name}, of to_vec and sha2"),
            median(&mut plain) / median(&mut ours),
            0.6,
        );
    }
}
