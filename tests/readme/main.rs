//! What the README claims is so: its queries, commands, script, diagram, tables and links. Its Rust blocks are doctests.
#![allow(clippy::disallowed_methods, reason = "no gate's database is opened as a plain file")]

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod queries;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use countersign::lifecycle::{Event, first, next};
use countersign::{RefusalCode, State};

pub(crate) const README: &str = include_str!("../../README.md");

pub(crate) fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The fenced blocks of a language.
pub(crate) fn blocks(language: &str) -> Vec<&'static str> {
    let open = format!("\n```{language}\n");
    let blocks = README.match_indices(&open).map(|(at, _)| {
        let body = &README[at + open.len()..];
        &body[..body.find("```").unwrap()]
    });
    blocks.collect()
}

/// A section, from its heading to the next one of any level.
fn section(heading: &str) -> &'static str {
    let (_, rest) = README.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// The first cells of a section's tables that are code, in their order.
fn first_cells(section: &str) -> Vec<&str> {
    section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn the_diagram_has_exactly_the_edges_of_the_transition_table() {
    let mut expected: BTreeSet<(String, String)> =
        [false, true].map(|gated| ("[*]".to_owned(), first(gated).to_string())).into();
    for from in State::ALL {
        let following = Event::ALL.into_iter().filter_map(|event| next(from, event).ok()).filter(|to| *to != from);
        expected.extend(following.map(|to| (from.to_string(), to.to_string())));
    }
    let drawn = blocks("mermaid")[0].lines().filter_map(|line| line.split_once(" --> ")).map(|(from, rest)| {
        let (to, label) = rest.split_once(": ").unwrap();
        assert!(!label.is_empty());
        (from.trim().to_owned(), to.to_owned())
    });
    let drawn: Vec<_> = drawn.collect();
    assert_eq!(drawn.len(), expected.len(), "an edge is drawn twice or missing");
    assert_eq!(drawn.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_table_of_states_names_every_state() {
    assert_eq!(first_cells(section("## A plan's life")), State::ALL.map(State::as_str));
}

#[test]
fn the_table_of_refusals_names_every_code() {
    assert_eq!(first_cells(section("### Every refusal")), RefusalCode::ALL.map(RefusalCode::as_str));
}

#[test]
fn the_failure_contract_names_every_code_of_an_error() {
    // `Error::code` documents the list; the contract covers it.
    let source = fs::read_to_string(repository().join("src/error.rs")).unwrap();
    let codes: BTreeSet<&str> = source
        .lines()
        .skip_while(|line| !line.contains("pub fn code(&self)"))
        .take_while(|line| !line.contains("pub fn hint(&self)"))
        .filter_map(|line| line.split_once("=> \"")?.1.split('"').next())
        .collect();
    assert!(codes.len() >= 12, "{codes:?}");
    let contract = section("## When things go wrong");
    for code in codes {
        assert!(contract.contains(&format!("`{code}`")), "{code}");
    }
    for code in ["NOT_APPLIED", "UNCERTAIN", "NOT_RECORDED"] {
        assert!(contract.contains(&format!("`{code}`")), "{code}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let anchors: BTreeSet<String> = README.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    let mut links = 0;
    for (at, _) in README.match_indices("](") {
        let target = README[at + 2..].split(')').next().unwrap();
        links += 1;
        match target.strip_prefix('#') {
            Some(name) => assert!(anchors.contains(name), "no heading for #{name}"),
            None => assert!(repository().join(target).exists(), "no file {target}"),
        }
    }
    assert!(links > 10);
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_path_in_the_text_exists() {
    for word in README.split('`').skip(1).step_by(2) {
        let is_path =
            word.contains('/') && ["examples/", "tests/", "src/", ".ci/"].iter().any(|at| word.starts_with(at));
        assert!(!is_path || Path::new(&repository().join(word)).exists(), "no {word}");
    }
}
