//! What takes long shows how far it is, to a person and to nobody else.

use std::path::Path;
use std::process::Stdio;

use super::host::Host;
use super::run::{Terminal, directory, lengthen, on_terminal, run};

/// How a line of progress begins: it overwrites itself.
const OVER: &str = "\r\u{1b}[K";

/// Settled plans, written past the gate.
fn settled(db: &Path, plans: u32) {
    let connection = rusqlite::Connection::open(db).unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at,
                                expires_at, payload)
               WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {plans})
               SELECT printf('%048x', i), 'update_prices', 'agent', 'previewed', 0, 1, printf('%064x', i),
                      printf('%064x', i), 1, 2, '{{}}' FROM n;
             UPDATE plans SET state = 'expired', settled_at = expires_at WHERE state = 'previewed';
             COMMIT"
        ))
        .unwrap();
}

#[test]
fn a_verify_that_takes_long_shows_how_far_it_is_on_a_terminal_and_nowhere_else() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    // What takes long depends on the machine.
    let (mut rows, mut seen) = (20_000, String::new());
    while rows < 2_000_000 && !seen.contains(OVER) {
        lengthen(&db, rows);
        let code;
        (code, seen) = on_terminal(&db, &["audit", "verify"]);
        assert_eq!(code, 0, "{seen}");
        rows *= 3;
    }
    let mut lines = seen.split(OVER);
    assert_eq!(lines.next(), Some(""), "{seen:?}");
    let first = lines.next().unwrap();
    let parts: Vec<_> = first.split(' ').collect();
    let ["verify:", done, "of", total, "rows", share, "%)"] = parts[..] else { panic!("{first:?}") };
    let (done, total): (u64, u64) = (done.parse().unwrap(), total.parse().unwrap());
    assert!(done > 0 && done < total, "{first:?}");
    assert_eq!(share, format!("({}", done * 100 / total));
    // It is gone when the answer comes.
    assert!(lines.last().unwrap().contains("intact"), "{seen:?}");

    let piped = run(&db, &["audit", "verify"]);
    assert_eq!(piped.stderr, "");
    assert!(!piped.done().contains('\r'));
    let (code, json) = on_terminal(&db, &["audit", "verify", "--json"]);
    assert!(code == 0 && json.starts_with('{') && json.lines().count() == 1, "{json:?}");
    let (code, beside) = Terminal::start_with(&db, &["audit", "verify"], Some(Stdio::null())).finish();
    assert_eq!((code, beside.as_str()), (0, ""), "its output is for a program");
    // The doctor walks the same rows.
    let (_, doctor) = on_terminal(&db, &["doctor"]);
    assert!(doctor.contains(&format!("{OVER}audit chain: ")), "{doctor:?}");
    assert_eq!(run(&db, &["doctor"]).stderr, "");
}

#[test]
fn a_purge_that_takes_long_shows_how_far_it_is_on_a_terminal_and_nowhere_else() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    let purge = ["purge", "--older-than", "1d"];
    // It rests between its transactions: so many take longer than a moment everywhere.
    settled(&db, 20_000);
    let (code, seen) = on_terminal(&db, &purge);
    assert_eq!(code, 0, "{seen:?}");
    let lines: Vec<_> = seen.split(OVER).collect();
    assert!(lines.len() > 2 && lines[0].is_empty(), "{seen:?}");
    assert!(lines[1].starts_with("purge: ") && lines[1].contains(" plans purged, "), "{seen:?}");
    assert_eq!(lines.last(), Some(&"20000 settled plans purged; their tombstones and audit rows stay.\n"));

    settled(&db, 20_000);
    let piped = run(&db, &purge);
    assert_eq!(piped.stderr, "");
    assert_eq!(piped.done(), "20000 settled plans purged; their tombstones and audit rows stay.\n");
    settled(&db, 20_000);
    let mut json = purge.to_vec();
    json.push("--json");
    assert_eq!(on_terminal(&db, &json), (0, "{\"purged\":20000}\n".to_owned()));
}
