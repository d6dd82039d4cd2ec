//! What one transition costs, beside what SQLite itself costs, in one run and in turn: the disk's own rate swings from
//! minute to minute, so only ratios mean something.
//!
//! `cargo bench --bench lifecycle -- --quick --check` prints every figure beside its target and exits non-zero where one
//! is missed. Without `--quick` the runs are longer and the growth of the file is measured too. `--json FILE` writes the
//! figures; `--part transitions|payloads|threads|processes|growth` measures one part alone.
#![allow(clippy::disallowed_methods, reason = "the figures' file, never a database")]

mod figures;
mod floor;
mod growth;
mod library;
mod payload;
mod processes;

use std::path::PathBuf;

use figures::Figures;

/// How a run was asked for.
pub(crate) struct Options {
    pub(crate) quick: bool,
    check: bool,
    json: Option<PathBuf>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // A process of the part about processes is this program again.
    if let Some(at) = arguments.iter().position(|argument| argument == processes::CHILD) {
        return processes::child(&arguments[at + 1..]);
    }
    if let Some(at) = arguments.iter().position(|argument| argument == growth::CHILD) {
        return growth::child(&arguments[at + 1]);
    }
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let json = arguments.iter().position(|argument| argument == "--json").and_then(|at| arguments.get(at + 1));
    let options = Options { quick: flag("--quick"), check: flag("--check"), json: json.map(PathBuf::from) };

    let part = arguments.iter().position(|argument| argument == "--part").and_then(|at| arguments.get(at + 1));
    let wanted = |name: &str| part.is_none_or(|part| part == name);

    let mut figures = Figures::default();
    if wanted("transitions") {
        library::run(&options, &mut figures);
    }
    if wanted("payloads") {
        payload::run(&options, &mut figures);
    }
    if wanted("threads") {
        processes::threads(&options, &mut figures);
    }
    if wanted("processes") {
        processes::run(&options, &mut figures);
    }
    if wanted("growth") && !options.quick {
        growth::run(&mut figures);
    }
    figures.print();
    if let Some(path) = &options.json {
        std::fs::write(path, figures.json()).expect("the figures' file can be written");
    }
    if options.check && figures.missed() > 0 {
        std::process::exit(1);
    }
}
