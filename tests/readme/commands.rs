//! The README's commands and its script.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rusqlite::{Connection, OpenFlags};

use crate::common::populated::Populated;
use crate::{blocks, common, repository};

/// The lines that a reader types.
fn commands() -> Vec<&'static str> {
    blocks("console").into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("$ ")).collect()
}

/// Whether `.ci/run` runs this line.
fn in_ci(ci: &str, command: &str) -> bool {
    let example = command.strip_prefix("cargo run --example ");
    example.map_or_else(|| ci.contains(command), |name| ci.contains(&format!("\n  example {name} ")))
}

#[test]
fn every_command_is_run_here_or_by_ci() {
    let ci = fs::read_to_string(repository().join(".ci/run")).unwrap();
    let (cargo, here): (Vec<&str>, Vec<&str>) = commands().into_iter().partition(|line| line.starts_with("cargo "));
    assert!(cargo.len() >= 2);
    for command in cargo {
        assert!(in_ci(&ci, command), ".ci/run does not run: {command}");
    }
    assert!(!here.is_empty());
    let world = common::populated();
    let directory = world.gate.path().parent().unwrap();
    std::os::unix::fs::symlink(repository().join("examples"), directory.join("examples")).unwrap();
    for command in here {
        if !common::has(command.split(' ').next().unwrap()) {
            continue;
        }
        let run = Command::new("sh").args(["-c", command]).current_dir(directory).output().unwrap();
        let answer = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
        assert!(!answer.trim().is_empty(), "{command} answers nothing");
    }
}

fn script(arguments: &[&str]) -> Output {
    Command::new("python3").arg(repository().join("examples/verify_audit.py")).args(arguments).output().unwrap()
}

/// A copy of the file that no gate has open.
fn copy(world: &Populated) -> Connection {
    let file = common::directory().join("copy with 100% blanks?.db");
    let open = Connection::open_with_flags(world.gate.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    open.execute("VACUUM INTO ?1", [file.to_str().unwrap()]).unwrap();
    let copy = Connection::open(file).unwrap();
    copy.execute_batch("DROP TRIGGER audit_events_no_update; DROP TRIGGER audit_events_no_delete").unwrap();
    copy
}

fn broken(copy: &Connection, head: Option<&str>) -> String {
    let mut arguments = vec![copy.path().unwrap()];
    arguments.extend(head);
    let run = script(&arguments);
    assert!(!run.status.success(), "the script found nothing");
    String::from_utf8(run.stderr).unwrap()
}

#[test]
fn the_script_in_the_text_is_the_file() {
    let file = fs::read_to_string(repository().join("examples/verify_audit.py")).unwrap();
    assert_eq!(blocks("python"), [file]);
}

#[test]
fn the_script_recomputes_the_chain_of_an_open_gate() {
    if !common::has("python3") {
        return;
    }
    let world = common::populated();
    let head = world.gate.operator("operator").unwrap().audit().head().unwrap();
    let path = world.gate.path().to_str().unwrap();
    for run in [script(&[path]), script(&[path, &head.to_string()])] {
        let answer = String::from_utf8(run.stdout).unwrap();
        assert_eq!(answer, format!("intact: {} rows, head {head}\n", head.seq));
    }
}

#[test]
fn the_script_names_the_first_row_that_was_edited_inserted_or_removed() {
    if !common::has("python3") {
        return;
    }
    let world = common::populated();
    let edit = copy(&world);
    edit.execute("UPDATE audit_events SET actor = 'somebody' WHERE seq = 9", []).unwrap();
    assert_eq!(broken(&edit, None), "BROKEN at audit row 9\n");
    let removed = copy(&world);
    removed.execute("DELETE FROM audit_events WHERE seq = 12", []).unwrap();
    assert_eq!(broken(&removed, None), "BROKEN at audit row 12\n");
}

#[test]
fn the_script_finds_a_cut_tail_by_the_exported_head() {
    if !common::has("python3") {
        return;
    }
    let world = common::populated();
    let head = world.gate.operator("operator").unwrap().audit().head().unwrap().to_string();
    let cut = copy(&world);
    cut.execute("DELETE FROM audit_events WHERE seq = (SELECT max(seq) FROM audit_events)", []).unwrap();
    assert!(script(&[Path::new(cut.path().unwrap()).to_str().unwrap()]).status.success(), "nothing tells without it");
    assert_eq!(broken(&cut, Some(&head)), format!("BROKEN: the exported head {head} is not in this chain\n"));
}
