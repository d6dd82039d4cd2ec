//! What auditing costs: the verify walk beside a bare loop over the same bytes, how long other writers wait for a purge,
//! and questions about millions of rows.
//!
//! `cargo bench --bench audit -- --quick --check` prints every figure beside its target and exits non-zero where one is
//! missed. Without `--quick` the file of the questions has 1,000,000 plans and 5,000,000 audit rows (some 5 GB in the
//! temporary directory, and some minutes).
#![allow(clippy::disallowed_methods, reason = "no gate of this process has these files open at that moment")]

#[path = "../lifecycle/figures.rs"]
mod figures;
mod purge;
mod questions;
mod verify;

use figures::Figures;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let quick = flag("--quick");
    // A single part, for whoever works on it.
    let only = |name: &str| !["verify", "purge", "questions"].iter().any(|part| flag(part)) || flag(name);
    let mut figures = Figures::default();
    if only("verify") {
        verify::run(if quick { 1_500 } else { 20_000 }, &mut figures);
    }
    if only("purge") {
        purge::run(100_000, &mut figures);
    }
    if only("questions") {
        questions::run(if quick { 50_000 } else { 1_000_000 }, &mut figures);
    }
    figures.print();
    if let Some(at) = arguments.iter().position(|argument| argument == "--json") {
        let path = arguments.get(at + 1).expect("--json names a file");
        std::fs::write(path, figures.json()).expect("the figures' file can be written");
    }
    if flag("--check") && figures.missed() > 0 {
        std::process::exit(1);
    }
}
