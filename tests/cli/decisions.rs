//! What waits, the whole card, and the decisions.

use serde_json::Value;

use super::host::Host;
use super::run::{Terminal, command, directory, on_terminal, os_user, ran, run, stable};

fn seal(db: &std::path::Path, token: &str) -> String {
    run(db, &["show", token, "--json"]).json()["plan"]["seal"].as_str().unwrap().to_owned()
}

fn audit(db: &std::path::Path, event: &str) -> Vec<Value> {
    run(db, &["audit", "search", "--event", event, "--json"]).json()["events"].as_array().unwrap().clone()
}

#[test]
fn a_yes_at_a_terminal_approves_beside_a_living_host_and_the_audit_names_the_os_user() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("gated shoes");
    assert!(host.tell(&format!("run {token}")).starts_with("AWAITING_APPROVAL"));
    let mut terminal = Terminal::start(&db, &["approve", &token, "--as", "ada"]);
    terminal.wait_for("[yes/no] ");
    terminal.send("yes\n");
    let (code, seen) = terminal.finish();
    assert_eq!(code, 0, "{seen}");
    stable(|| insta::assert_snapshot!(seen));
    assert_eq!(host.tell(&format!("run {token}")), "executed");
    let approved = &audit(&db, "approved")[0];
    assert_eq!(approved["actor"], "ada");
    assert_eq!(approved["channel"], format!("cli:{}", os_user()));
}

#[test]
fn anything_but_a_yes_changes_nothing() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let token = Host::start(&db).tell("gated shoes");
    for answer in ["no\n", "\n", "y\n", "\u{4}"] {
        let mut terminal = Terminal::start(&db, &["reject", &token, "--as", "ada"]);
        terminal.wait_for("[yes/no] ");
        terminal.send(answer);
        let (code, seen) = terminal.finish();
        assert_eq!(code, 1, "{seen}");
        assert!(seen.contains("NOT_CONFIRMED") && seen.contains("nothing was changed"), "{seen}");
    }
    let shown = run(&db, &["show", &token, "--json"]).json();
    assert_eq!(shown["plan"]["state"], "awaiting_approval");
    assert_eq!(shown["timeline"].as_array().unwrap().len(), 1);
}

#[test]
fn without_a_terminal_only_the_full_seal_decides_and_the_card_is_shown_all_the_same() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let token = Host::start(&db).tell("gated shoes");
    let refused = run(&db, &["approve", &token, "--as", "ada"]);
    assert!(refused.stdout.contains("\"category\": \"shoes\""), "{}", refused.stdout);
    insta::assert_snapshot!(refused.failed(2));
    let short = run(&db, &["approve", &token, "--as", "ada", "--seal", "abc123"]).failed(2);
    assert!(short.contains("give the seal in full"), "{short}");
    let wrong = run(&db, &["approve", &token, "--as", "ada", "--seal", &"0".repeat(64)]);
    assert!(wrong.failed(1).contains("APPROVAL_MISMATCH"));

    let seal = seal(&db, &token);
    let approved = run(&db, &["approve", &token, "--as", "ada", "--seal", &seal, "--json"]);
    // Standard output is for the program, the card goes to standard error.
    assert!(approved.stderr.contains("\"category\": \"shoes\"") && approved.stderr.contains(&seal));
    let decision = approved.json();
    assert_eq!(decision["state"], "approved");
    assert_eq!(decision["already"], false);
    assert_eq!(decision["reviewer"], "ada");
    let again = run(&db, &["approve", &token, "--as", "ADA", "--seal", &seal]).done();
    assert!(again.contains("Nothing changed: it is approved already."), "{again}");
}

#[test]
fn a_rejection_tells_the_agent_why_shows_on_the_next_card_and_can_be_lifted() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let first = host.tell("plan shoes");
    let first_seal = seal(&db, &first);
    run(&db, &["reject", &first, "--as", "ada", "--reason", "wrong table", "--seal", &first_seal]).done();
    let said = host.tell(&format!("run {first}"));
    assert!(said.starts_with("PLAN_REJECTED") && said.contains("wrong table"), "{said}");
    let second = host.tell("plan shoes");
    let (_, shown) = on_terminal(&db, &["show", &second]);
    assert!(shown.contains("REJECTED BEFORE") && shown.contains("wrong table"), "{shown}");

    let lift = ["lift-rejection", &first, "--as", "ada", "--reason", "my mistake"];
    assert!(run(&db, &lift).failed(2).contains("NEEDS_TERMINAL"));
    let mut terminal = Terminal::start(&db, &lift);
    terminal.wait_for("[yes/no] ");
    terminal.send("yes\n");
    let (code, seen) = terminal.finish();
    assert!(code == 0 && seen.contains("Lifted"), "{seen}");
    assert_eq!(audit(&db, "rejection_lifted")[0]["reason"], "my mistake");
    let third = host.tell("plan shoes");
    assert_eq!(run(&db, &["show", &third, "--json"]).json()["plan"]["state"], "previewed");
    let (code, seen) = {
        let mut terminal = Terminal::start(&db, &lift);
        terminal.wait_for("[yes/no] ");
        terminal.send("yes\n");
        terminal.finish()
    };
    assert!(code == 0 && seen.contains("Nothing changed"), "{seen}");
}

#[test]
fn the_os_user_is_never_the_one_that_the_environment_claims() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let token = Host::start(&db).tell("gated shoes");
    let mut command = command(Some(&db), &["approve", &token, "--as", "ada", "--seal", &seal(&db, &token)]);
    for name in ["USER", "LOGNAME", "USERNAME", "SUDO_USER"] {
        command.env(name, "mallory");
    }
    ran(command).done();
    assert_eq!(audit(&db, "approved")[0]["channel"], format!("cli:{}", os_user()));
}

#[test]
fn a_quorum_counts_different_people_only() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("quorum shoes");
    let seal = seal(&db, &token);
    let approve = |name| run(&db, &["approve", &token, "--as", name, "--seal", &seal]);
    assert!(approve("ada").done().contains("1 of 2 approvals; it is awaiting_approval"));
    assert!(approve("Ada").done().contains("Nothing changed"));
    assert!(approve("pricing-agent").failed(1).contains("SELF_APPROVAL"));
    assert!(approve("bob").done().contains("It is approved now."));
    assert_eq!(host.tell(&format!("run {token}")), "executed");
    assert!(approve("eve").failed(1).contains("PLAN_USED"));
}

#[test]
fn no_control_byte_of_an_agent_reaches_a_terminal_a_pipe_or_json() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let token = Host::start(&db).tell("hostile");
    for args in [
        &["pending"][..],
        &["show", &token],
        &["approve", &token, "--as", "ada"],
        &["audit", "tail"],
        &["audit", "search"],
        &["audit", "export", "--format", "csv"],
        &["audit", "export", "--format", "jsonl"],
        &["audit", "verify"],
        &["executing"],
        &["stats"],
        &["doctor"],
    ] {
        let mut json = args.to_vec();
        json.push("--json");
        for args in [args, &json] {
            let piped = run(&db, args);
            // The line ends and tabs are the program's own: none of them is inside a cell.
            let piped = (piped.stdout + &piped.stderr).replace(['\n', '\t'], "");
            assert!(!piped.is_empty() && piped.chars().all(shows), "{args:?} {piped:?}");
            let mut terminal = Terminal::start(&db, args);
            if args.contains(&"approve") {
                terminal.wait_for("[yes/no] ");
                terminal.send("no\n");
            }
            let (_, seen) = terminal.finish();
            let own = ["\u{1b}[1m", "\u{1b}[0m", "\u{1b}[33m", "\u{1b}[31m", "\u{1b}[32m"];
            let rest = own.iter().fold(seen.replace(['\n', '\r'], ""), |seen, own| seen.replace(own, ""));
            assert!(rest.chars().all(shows), "{args:?} {rest:?}");
        }
    }
    // JSON holds the exact text.
    let shown = run(&db, &["show", &token, "--json"]).json();
    assert_eq!(shown["plan"]["payload"]["say"], super::host::HOSTILE);
    assert_eq!(shown["plan"]["reason"], super::host::HOSTILE);
    // No cell of the CSV starts a formula.
    let csv = run(&db, &["audit", "export", "--format", "csv"]).done();
    assert!(csv.contains("\"'=cmd|'/c calc'!A1 \\u{1B}[2J") || csv.contains(",'=cmd|'/c calc'!A1 \\u{1B}[2J"), "{csv}");
}

fn shows(character: char) -> bool {
    countersign::escape::classify(character).is_none()
}

#[test]
fn listings_are_tables_on_a_terminal_lines_in_a_pipe_and_stable_json() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let (_, empty) = on_terminal(&db_of_nobody(dir.path()), &["pending"]);
    assert!(empty.contains("Nothing waits for a decision."), "{empty}");
    let mut host = Host::start(&db);
    host.tell("gated shoes");
    host.tell("gated hats");
    let (code, table) = on_terminal(&db, &["pending", "--limit", "1"]);
    assert_eq!(code, 0, "{table}");
    stable(|| insta::assert_snapshot!("pending_table", table));
    stable(|| insta::assert_snapshot!("pending_piped", run(&db, &["pending"]).done()));
    let json = run(&db, &["pending", "--json"]).json();
    assert_eq!(json["total"], 2);
    let mut names: Vec<_> = json["plans"][0].as_object().unwrap().keys().cloned().collect();
    names.sort();
    insta::assert_snapshot!("pending_json_names", names.join(" "));
}

#[test]
fn a_token_stands_in_one_piece_on_a_narrow_terminal_too() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    host.tell("gated shoes");
    let json = run(&db, &["pending", "--json"]).json();
    let token = json["plans"][0]["plan_token"].as_str().unwrap();
    for columns in [40, 80, 100, 120] {
        let (code, shown) = Terminal::of_width(command(Some(&db), &["pending"]), None, columns).finish();
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains(token), "{columns} columns:\n{shown}");
    }
}

/// A file that a host made and left.
fn db_of_nobody(dir: &std::path::Path) -> std::path::PathBuf {
    let db = dir.join("empty.db");
    drop(Host::start(&db));
    db
}
