//! The field names of `--json`: scripts rely on them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::host::Host;
use super::run::{directory, run};

/// Every name in it, as a path; what an array holds stands under `[]`.
fn names(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names(value, &if at.is_empty() { name.clone() } else { format!("{at}.{name}") }, all);
            }
        }
        Value::Array(values) if values.iter().any(|value| value.is_object() || value.is_array()) => {
            values.iter().for_each(|value| names(value, &format!("{at}[]"), all));
        }
        _ => drop(all.insert(at.to_owned())),
    }
}

#[test]
fn the_field_names_of_every_command_are_as_agreed() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let (rejected, waiting, claimed) = (host.tell("plan shoes"), host.tell("gated hats"), host.tell("plan coats"));
    let seal = |token: &str| run(&db, &["show", token, "--json"]).json()["plan"]["seal"].as_str().unwrap().to_owned();
    host.tell(&format!("claim {claimed}"));
    host.tell(&format!("run {waiting}"));
    let rejecting =
        ["reject", &rejected, "--as", "ada", "--reason", "no", "--seal", &seal(&rejected)].map(str::to_owned);
    let copy = dir.path().join("copy.db").to_str().unwrap().to_owned();
    let mut said = String::new();
    let mut ask = |args: &[&str]| {
        let ran = run(&db, &[args, &["--json"]].concat());
        let mut all = BTreeSet::new();
        for document in ran.stdout.lines() {
            names(&serde_json::from_str(document).unwrap(), "", &mut all);
        }
        let shown = args.iter().map(|arg| if arg.len() > 40 { "…" } else { arg }).collect::<Vec<_>>().join(" ");
        said.push_str(&format!("{shown} [{}]\n", ran.code));
        all.iter().for_each(|name| said.push_str(&format!("  {name}\n")));
    };
    ask(&rejecting.each_ref().map(String::as_str));
    let again = host.tell("plan shoes");
    ask(&["pending"]);
    ask(&["show", &again]);
    ask(&["approve", &waiting, "--as", "ada", "--seal", &seal(&waiting)]);
    ask(&["lift-rejection", &rejected, "--as", "ada", "--reason", "x", "--seal", &seal(&rejected)]);
    ask(&["executing"]);
    host.kill();
    ask(&["mark-interrupted", &claimed, "--attempt", "1", "--as", "olga"]);
    ask(&["recover"]);
    ask(&["settle", &claimed, "--outcome", "not-done", "--as", "olga"]);
    ask(&["accept-restore", "--as", "olga", "--yes"]);
    ask(&["audit", "tail", "-n", "1"]);
    ask(&["audit", "search", "--limit", "1"]);
    ask(&["audit", "verify"]);
    ask(&["audit", "head"]);
    ask(&["audit", "export", "--format", "jsonl"]);
    ask(&["audit", "index", "on"]);
    ask(&["sweep"]);
    ask(&["purge", "--older-than", "90d"]);
    ask(&["stats"]);
    ask(&["doctor"]);
    ask(&["backup", &copy]);
    ask(&["show", "0a"]);
    insta::assert_snapshot!(said.replace(&copy, "…"));
}
