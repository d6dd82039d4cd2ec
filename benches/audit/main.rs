//! What auditing costs: the verify walk beside a bare loop over the same bytes, how long other writers wait for a purge,
//! and questions about millions of rows.
//!
//! `cargo bench --bench audit -- --quick --check` prints every figure beside its target and exits non-zero where one is
//! missed. Without `--quick` there is a file of 1,000,000 plans and 5,000,000 audit rows as well, which is walked and
//! asked (some 7 GB in the temporary directory, and some minutes). `--file PATH` makes that file there, or takes the one
//! that an earlier run made, and leaves it.
#![allow(clippy::disallowed_methods, reason = "no gate of this process has these files open at that moment")]

#[path = "../lifecycle/figures.rs"]
mod figures;
mod fill;
mod purge;
mod questions;
mod verify;

use countersign::Gate;
use figures::Figures;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let quick = flag("--quick");
    // A single part, for whoever works on it.
    let only = |name: &str| !["verify", "purge", "questions"].iter().any(|part| flag(part)) || flag(name);
    let mut figures = Figures::default();
    let value_of = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        Some(arguments.get(at + 1).unwrap_or_else(|| panic!("{name} names a file")))
    };
    if only("verify") {
        verify::run(20_000, &mut figures);
    }
    if only("purge") {
        purge::run(100_000, &mut figures);
    }
    if only("questions") {
        let directory = tempfile::tempdir().expect("a directory");
        let path = value_of("--file").map_or_else(|| directory.path().join("gate.db"), std::path::PathBuf::from);
        let plans = if quick { 50_000 } else { 1_000_000 };
        if !path.exists() {
            drop(Gate::open(&path).expect("a gate"));
            fill::fill(&path, plans);
        }
        if !quick {
            verify::measure(&path, 2, &mut figures);
        }
        questions::run(&path, plans, &mut figures);
    }
    figures.print();
    if let Some(path) = value_of("--json") {
        std::fs::write(path, figures.json()).expect("the figures' file can be written");
    }
    if flag("--check") && figures.missed() > 0 {
        std::process::exit(1);
    }
}
