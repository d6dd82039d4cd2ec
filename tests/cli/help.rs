//! What the program says about itself.

use std::process::Stdio;

use super::host::Host;
use super::run::{command, directory, lengthen, ran};

fn help(args: &[&str]) -> String {
    let mut all = args.to_vec();
    all.push("--help");
    ran(command(None, &all)).done()
}

#[test]
fn the_help_of_every_command_is_as_agreed() {
    for args in [
        &[][..],
        &["pending"],
        &["show"],
        &["approve"],
        &["reject"],
        &["lift-rejection"],
        &["executing"],
        &["recover"],
        &["settle"],
        &["mark-interrupted"],
        &["accept-restore"],
        &["audit"],
        &["audit", "tail"],
        &["audit", "search"],
        &["audit", "verify"],
        &["audit", "head"],
        &["audit", "export"],
        &["audit", "index"],
        &["sweep"],
        &["purge"],
        &["stats"],
        &["doctor"],
        &["backup"],
        &["serve"],
        &["completions"],
    ] {
        let name = if args.is_empty() { "help".to_owned() } else { format!("help_{}", args.join("_")) };
        insta::assert_snapshot!(name, help(args));
    }
}

#[test]
fn the_help_says_who_can_approve_and_how_to_keep_an_agent_from_it() {
    let help = help(&[]).split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "Whoever can write the database file can approve.",
        "run the agent as another user than the file's owner",
        "Exit codes: 0 done; 1 refused (the code says why); 2 wrong usage; 3 storage",
    ] {
        assert!(help.contains(said), "{said}\n{help}");
    }
    let readme = include_str!("../../README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "**Whoever can write the database file can approve.**",
        "run it as another user than the owner of the file",
        "give it no shell, and no tool that runs commands",
    ] {
        assert!(readme.contains(said), "{said}");
    }
}

#[test]
fn completions_are_made_for_every_shell_and_need_no_database() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ran(command(None, &["completions", shell])).done();
        assert!(script.contains("mark-interrupted") && script.contains("older-than"), "{shell}");
    }
}

#[test]
fn a_pipe_that_closes_early_is_no_panic() {
    for args in [&["completions", "bash"][..], &["--help"], &["audit", "search", "--help"]] {
        let mut child =
            command(None, args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Nobody reads: the first write finds the pipe closed.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn what_cannot_be_written_is_said_and_shows_in_the_exit_code() {
    for args in [&["completions", "bash"][..], &["--help"], &["--version"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(None, args).stdin(Stdio::null()).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("OUTPUT"), "{args:?}: {said}");
    }
}

#[test]
fn a_pipe_that_closes_in_the_middle_of_an_export_is_no_panic() {
    use std::io::{BufRead as _, BufReader};
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    // More than any pipe holds.
    lengthen(&db, 5_000);
    for args in [
        &["audit", "export", "--format", "jsonl"][..],
        &["audit", "export", "--format", "csv"],
        &["audit", "search", "--limit", "5000"],
        &["audit", "search", "--limit", "5000", "--json"],
        &["audit", "tail", "-n", "5000"],
    ] {
        let mut child = command(Some(&db), args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = BufReader::with_capacity(16, child.stdout.take().unwrap());
        // As `head -c 1` would.
        assert!(!reader.fill_buf().unwrap().is_empty());
        drop(reader);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}
