//! What has to hold of a store after whatever was done to it.

use std::path::Path;

use countersign::{AuditQuery, Gate, State};

use super::ledger::Ledger;

/// A plan as plain SQL shows it.
pub(crate) struct Row {
    pub(crate) token: String,
    pub(crate) state: State,
    pub(crate) attempt: u32,
}

pub(crate) fn rows(path: &Path) -> Vec<Row> {
    let sql = rusqlite::Connection::open(path).unwrap();
    let mut plans = sql.prepare("SELECT plan_token, state, attempt FROM plans ORDER BY rowid").unwrap();
    let rows = plans.query_map([], |row| {
        Ok(Row { token: row.get(0)?, state: State::parse(&row.get::<_, String>(1)?).unwrap(), attempt: row.get(2)? })
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// One number that plain SQL answers.
pub(crate) fn number(path: &Path, sql: &str) -> i64 {
    rusqlite::Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The file is whole, and the audit is chained, replays to the plans that stand, and accounts for every row.
pub(crate) fn sound(gate: &Gate) {
    let report = gate.operator("auditor").unwrap().audit().verify(None).unwrap();
    assert_eq!(report.difference, None, "{:?}", gate.operator("auditor").unwrap().audit().query(&AuditQuery::new()));
    let check: String = rusqlite::Connection::open(gate.path())
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

/// No plan's effect happened twice; every one that is executed happened, and every one that may still run did not.
pub(crate) fn effects_match(path: &Path, ledger: &Ledger) {
    let mut happened = 0;
    for row in rows(path) {
        let count = ledger.count(&row.token);
        happened += count;
        let legal = match row.state {
            State::Executed => count == 1,
            State::Executing | State::Uncertain | State::Failed => count <= 1,
            _ => count == 0,
        };
        assert!(
            legal,
            "{} is {} at attempt {}, and its effect happened {count} times",
            row.token, row.state, row.attempt
        );
    }
    assert_eq!(happened, ledger.total(), "an effect happened without a plan");
}
