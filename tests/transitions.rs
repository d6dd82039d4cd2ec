//! The transition table, pair by pair, against a table written by hand; and SQL's own lists against it.
#![allow(clippy::disallowed_methods, reason = "no database is opened this way")]

use std::collections::BTreeSet;

use countersign::lifecycle::{Event, Retry, State, first, next};
use countersign::{Gate, RefusalCode};
use rusqlite::Connection;

/// Every pair that is legal, as the design lists them: state, event, state. Nothing else is.
const LEGAL: &[(&str, &str, &str)] = &[
    ("previewed", "executing", "executing"),
    ("previewed", "rejected", "rejected"),
    ("previewed", "regated", "awaiting_approval"),
    ("previewed", "expired", "expired"),
    ("awaiting_approval", "approved", "approved"),
    ("awaiting_approval", "approval_recorded", "awaiting_approval"),
    ("awaiting_approval", "rejected", "rejected"),
    ("awaiting_approval", "regated", "awaiting_approval"),
    ("awaiting_approval", "expired", "expired"),
    ("approved", "executing", "executing"),
    ("approved", "rejected", "rejected"),
    ("approved", "regated", "awaiting_approval"),
    ("approved", "expired", "expired"),
    ("executing", "regated", "executing"),
    ("executing", "executed", "executed"),
    ("executing", "failed EXECUTION_FAILED, not gated", "previewed"),
    ("executing", "failed EXECUTION_FAILED, quorum complete", "approved"),
    ("executing", "failed EXECUTION_FAILED, to be approved", "awaiting_approval"),
    ("executing", "failed SETTLED_FAILED", "failed"),
    ("executing", "uncertain", "uncertain"),
    ("executing", "adopted", "executing"),
    ("uncertain", "regated", "uncertain"),
    ("uncertain", "executed", "executed"),
    ("uncertain", "failed EXECUTION_FAILED, not gated", "previewed"),
    ("uncertain", "failed EXECUTION_FAILED, quorum complete", "approved"),
    ("uncertain", "failed EXECUTION_FAILED, to be approved", "awaiting_approval"),
    ("uncertain", "failed SETTLED_FAILED", "failed"),
    // Beyond the design's table: whoever holds the claim token may confirm an uncertain plan, so may take it over.
    ("uncertain", "adopted", "uncertain"),
];

const STATES: [&str; 9] = [
    "previewed",
    "awaiting_approval",
    "approved",
    "executing",
    "uncertain",
    "executed",
    "failed",
    "rejected",
    "expired",
];

const TERMINAL: [&str; 4] = ["executed", "failed", "rejected", "expired"];

fn described(event: Event) -> String {
    match event {
        Event::NotApplied(Retry::Previewed) => "failed EXECUTION_FAILED, not gated".to_owned(),
        Event::NotApplied(Retry::Approved) => "failed EXECUTION_FAILED, quorum complete".to_owned(),
        Event::NotApplied(Retry::AwaitingApproval) => "failed EXECUTION_FAILED, to be approved".to_owned(),
        other => match other.code() {
            Some(code) => format!("{} {code}", other.as_str()),
            None => other.as_str().to_owned(),
        },
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_pair_of_state_and_event_is_as_the_table_says() {
    let mut legal = 0;
    for state in State::ALL {
        for event in Event::ALL {
            let pair = (state.as_str(), described(event));
            let expected =
                LEGAL.iter().find(|(from, with, _)| (*from, (*with).to_owned()) == pair).map(|found| found.2);
            match next(state, event) {
                Ok(to) => {
                    assert_eq!(Some(to.as_str()), expected, "{pair:?}");
                    legal += 1;
                }
                Err(illegal) => {
                    assert_eq!(expected, None, "{pair:?}");
                    assert_eq!((illegal.state, illegal.event), (state, event));
                    let said = illegal.to_string();
                    assert!(said.contains(state.as_str()) && said.contains(event.as_str()), "{said}");
                }
            }
        }
    }
    assert_eq!(legal, LEGAL.len());
    assert_eq!(State::ALL.len() * Event::ALL.len(), 9 * 13);
}

#[test]
fn a_plan_begins_by_its_gate_and_a_retry_goes_where_its_approvals_lead() {
    assert_eq!((first(false), first(true)), (State::Previewed, State::AwaitingApproval));
    assert_eq!(Retry::of(false, false), Retry::Previewed);
    assert_eq!(Retry::of(false, true), Retry::Previewed);
    assert_eq!(Retry::of(true, true), Retry::Approved);
    assert_eq!(Retry::of(true, false), Retry::AwaitingApproval);
}

#[test]
fn names_are_stable_distinct_and_read_back() {
    assert_eq!(State::ALL.map(State::as_str), STATES);
    for state in State::ALL {
        assert_eq!(State::parse(state.as_str()), Some(state));
        assert_eq!(state.to_string(), state.as_str());
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        assert_eq!(state.is_terminal(), TERMINAL.contains(&state.as_str()));
        assert_eq!(state.is_open(), matches!(state.as_str(), "previewed" | "awaiting_approval" | "approved"));
        assert_eq!(state.is_stuck(), !state.is_terminal() && !state.is_open());
    }
    for wrong in ["", "Previewed", "EXECUTED", "executed ", "unknown", "settled"] {
        assert_eq!(State::parse(wrong), None);
    }
    for event in Event::ALL {
        for state in State::ALL {
            if let Ok(to) = next(state, event) {
                assert_eq!(Event::parse(event.as_str(), event.code(), to), Some(event));
            }
        }
    }
    assert_eq!(Event::parse("failed", None, State::Failed), None);
    assert_eq!(Event::parse("executed", Some("X"), State::Executed), None);
    let codes: BTreeSet<_> = RefusalCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(codes.len(), RefusalCode::ALL.len());
}

#[test]
fn no_transition_leaves_a_terminal_state() {
    for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
        for event in Event::ALL {
            assert!(next(state, event).is_err(), "{state} {event:?}");
        }
    }
}

/// A file that a gate made and closed.
fn file() -> (tempfile::TempDir, Connection) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gate.db");
    drop(Gate::open(&path).unwrap());
    let sql = Connection::open(&path).unwrap();
    (directory, sql)
}

fn schema_of(sql: &Connection, name: &str) -> String {
    sql.query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [name], |row| row.get(0)).unwrap()
}

/// Puts a plan into a state, around the trigger that guards how plans begin.
fn plant(sql: &Connection, token: &str, state: &str, gated: bool) {
    let guard = schema_of(sql, "plans_first_state");
    sql.execute_batch("DROP TRIGGER plans_first_state").unwrap();
    let settled = TERMINAL.contains(&state).then_some(2);
    let claimed = matches!(state, "executing" | "uncertain").then_some("x");
    sql.execute(
        "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, \
         expires_at, payload, settled_at, attempt, claim_token, instance_id, executing_since) \
         VALUES (?1, 'write', 'agent', ?2, ?3, 1, ?4, ?4, 1, 2, '1', ?5, 1, ?6, ?6, ?7)",
        rusqlite::params![token, state, gated, "0".repeat(64), settled, claimed, claimed.map(|_| 1)],
    )
    .unwrap();
    sql.execute_batch(&guard).unwrap();
}

#[test]
fn the_trigger_on_plans_lets_exactly_the_tables_pairs_through() {
    let (_directory, sql) = file();
    // A CHECK refuses some of these rows too, and before the trigger.
    sql.execute_batch("PRAGMA ignore_check_constraints = ON").unwrap();
    let legal: BTreeSet<(&str, &str)> = LEGAL.iter().map(|(from, _, to)| (*from, *to)).collect();
    for (n, from) in STATES.into_iter().enumerate() {
        for (m, to) in STATES.into_iter().enumerate() {
            // Whatever else a row has to have in its new state, it gets: the state pair alone decides.
            let gated = to != "previewed" || matches!(from, "awaiting_approval" | "approved");
            let gated_before = gated && from != "previewed";
            let token = format!("{:048x}", n * 16 + m);
            plant(&sql, &token, from, gated_before);
            let settled = TERMINAL.contains(&to).then_some(2);
            let answer = sql.execute(
                "UPDATE plans SET state = ?2, gated = ?3, settled_at = ?4, claim_token = 'x', instance_id = 'x', \
                 executing_since = 1 WHERE plan_token = ?1",
                rusqlite::params![token, to, gated, settled],
            );
            match answer {
                Ok(changed) => {
                    assert_eq!(changed, 1);
                    assert!(legal.contains(&(from, to)), "{from} > {to} went through");
                }
                Err(error) => {
                    assert!(!legal.contains(&(from, to)), "{from} > {to}: {error}");
                    assert!(
                        error.to_string().contains("this state does not follow that one"),
                        "{from} > {to}: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_plan_begins_previewed_or_awaiting_approval_in_sql_too() {
    let (_directory, sql) = file();
    let begins: BTreeSet<_> = [first(false), first(true)].iter().map(|state| state.as_str()).collect();
    for (n, state) in STATES.into_iter().enumerate() {
        let settled = TERMINAL.contains(&state).then_some(2);
        let answer = sql.execute(
            "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, \
             expires_at, payload, settled_at, attempt, claim_token, instance_id, executing_since) \
             VALUES (?1, 'write', 'agent', ?2, ?3, 1, ?4, ?4, 1, 2, '1', ?5, 1, 'x', 'x', 1)",
            rusqlite::params![format!("{n:048x}"), state, state != "previewed", "0".repeat(64), settled],
        );
        assert_eq!(answer.is_ok(), begins.contains(state), "{state}");
    }
}

#[test]
fn only_a_settled_plan_can_be_deleted() {
    let (_directory, sql) = file();
    for (n, state) in STATES.into_iter().enumerate() {
        let token = format!("{n:048x}");
        plant(&sql, &token, state, state != "previewed");
        let answer = sql.execute("DELETE FROM plans WHERE plan_token = ?1", [&token]);
        assert_eq!(answer.is_ok(), State::parse(state).unwrap().is_terminal(), "{state}");
    }
}

#[test]
fn an_immutable_column_never_changes_and_a_gate_never_opens() {
    let (_directory, sql) = file();
    let token = "a".repeat(48);
    plant(&sql, &token, "awaiting_approval", true);
    for change in [
        "plan_token = replace(plan_token, 'a', 'b')",
        "tool = 'other'",
        "caller = 'other'",
        "payload = '2'",
        "fingerprint = replace(fingerprint, '0', '1')",
        "seal = replace(seal, '0', '1')",
        "idempotency_key = 'k'",
        "reason = 'r'",
        "preview_count = 1",
        "data_digest = 'd'",
        "extra = '{}'",
        "approvals_needed = 2",
        "created_at = 0",
        "expires_at = 3",
    ] {
        let error = sql.execute(&format!("UPDATE plans SET {change}"), []).unwrap_err();
        assert!(error.to_string().contains("fixed at creation"), "{change}: {error}");
    }
    assert!(sql.execute("UPDATE plans SET gated = 0", []).unwrap_err().to_string().contains("stays gated"));
}

/// The quoted words between these two.
fn named(text: &str, after: &str, before: &str) -> BTreeSet<String> {
    let rest = &text[text.find(after).unwrap_or_else(|| panic!("{after} is not in {text}"))..];
    let part = &rest[..rest.find(before).unwrap_or_else(|| panic!("{before} does not follow {after}"))];
    part.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn sqls_lists_of_states_are_the_rust_sets() {
    let (_directory, sql) = file();
    let plans = schema_of(&sql, "plans");
    assert_eq!(named(&plans, "state_is_known", "gated "), set(&STATES));
    assert_eq!(named(&plans, "a_settled_plan_has_its_time", "= (settled_at"), set(&TERMINAL));
    assert_eq!(named(&schema_of(&sql, "plans_delete_settled"), "WHEN", "BEGIN"), set(&TERMINAL));
    assert_eq!(named(&schema_of(&sql, "tombstones"), "kind_is_terminal", "caller"), set(&TERMINAL));
    let first = set(&["previewed", "awaiting_approval"]);
    assert_eq!(named(&schema_of(&sql, "plans_first_state"), "WHEN", "BEGIN"), first);
    // What is live is what has not settled, and that is what the constraint ties to the states.
    assert!(schema_of(&sql, "plans_live").ends_with("WHERE settled_at IS NULL"));
}

#[test]
fn audit_rows_cannot_be_changed_or_deleted() {
    let (_directory, sql) = file();
    assert!(sql.execute("UPDATE audit_events SET actor = 'x'", []).unwrap_err().to_string().contains("never changed"));
    assert!(sql.execute("DELETE FROM audit_events", []).unwrap_err().to_string().contains("never deleted"));
}
