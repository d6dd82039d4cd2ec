//! Which schema a file has, how it gets the newest one, and what a file must hold to be this gate's.
//!
//! Locking: the version is read again after the write lock is taken, so of several processes that open a new file at
//! once exactly one creates the schema. Crash: all of it is one transaction, a kill leaves the file as it was.
//! Compatibility: a file of another application or of a newer version is never touched.

use std::sync::OnceLock;
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior};

use super::sql_error::{commit_error, sql_error};
use crate::error::{Error, Result};
use crate::escape::visible_cut;

/// "CSGN". It stands in the file's header, where `file(1)` and every SQLite shell find it.
pub(crate) const APPLICATION_ID: i32 = 0x4353_474E;

/// "CSGB": the same number in a copy that `backup` made, until an operator accepts it. The mark stands in the header and
/// not in a table, so that a version which does not know it refuses the copy as another application's: it fails closed,
/// and the copy's audit chain is the original's to the last byte.
pub(crate) const BACKUP_ID: i32 = 0x4353_4742;

/// Number n of this list leads to `user_version` n. Never edited after a release.
const MIGRATIONS: &[&str] = &[include_str!("../../migrations/0001_init.sql")];

/// Runs beside the creation of the schema, in its transaction.
pub(crate) type Created<'a> = &'a dyn Fn(&Connection) -> Result<()>;

/// What the header of a file, and its schema table, say about whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    application_id: i32,
    user_version: i32,
    empty: bool,
}

/// What a file is to this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds nothing, and belongs to nobody.
    Fresh,
    /// So many migrations ran already.
    Behind(usize),
    Current,
}

impl Identity {
    fn standing(self) -> Result<Standing> {
        let known = MIGRATIONS.len();
        match (self.application_id, usize::try_from(self.user_version)) {
            (0, Ok(0)) if self.empty => Ok(Standing::Fresh),
            (APPLICATION_ID | BACKUP_ID, Ok(version)) if version == known => Ok(Standing::Current),
            (APPLICATION_ID | BACKUP_ID, Ok(version)) if version > known => Err(Error::unsupported(format!(
                "the database has schema {version}, and this version knows up to {known}; update countersign"
            ))),
            (APPLICATION_ID | BACKUP_ID, Ok(version)) if version > 0 => Ok(Standing::Behind(version)),
            (APPLICATION_ID | BACKUP_ID, _) => {
                Err(Error::corrupt(format!("its schema version is {}, which no release wrote", self.user_version)))
            }
            (other, _) => Err(Error::unsupported(format!(
                "the database belongs to another application (application_id {other:#010x}, user_version {}); nothing \
                 in it was changed",
                self.user_version
            ))),
        }
    }
}

/// Whose file this is, without any lock that a writer would notice. An answer of another process's half: it is asked
/// again under the write lock before anything is written.
pub(super) fn standing(connection: &mut Connection, started: Instant) -> Result<Standing> {
    let snapshot = connection.transaction().map_err(|e| sql_error(e, started))?;
    identity(&snapshot, started)?.standing()
}

fn identity(snapshot: &Connection, started: Instant) -> Result<Identity> {
    let read = || -> rusqlite::Result<Identity> {
        Ok(Identity {
            application_id: snapshot.query_row("PRAGMA application_id", [], |row| row.get(0))?,
            user_version: snapshot.query_row("PRAGMA user_version", [], |row| row.get(0))?,
            empty: snapshot.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?,
        })
    };
    read().map_err(|e| sql_error(e, started))
}

/// Brings the file to the newest schema. A file that has it is only read: an open does not queue behind writers.
pub(super) fn migrate(connection: &mut Connection, started: Instant, created: Created<'_>) -> Result<()> {
    if standing(connection, started)? == Standing::Current {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| sql_error(e, started))?;
    let done = match identity(&transaction, started)?.standing()? {
        Standing::Current => return Ok(()),
        Standing::Fresh => 0,
        Standing::Behind(done) => done,
    };
    run(&transaction, done).map_err(|e| sql_error(e, started))?;
    if done == 0 {
        created(&transaction)?;
    }
    transaction.commit().map_err(|e| commit_error(e, started))
}

/// The migrations after the first `done`, and the two numbers that say so. A backup that is migrated stays marked.
fn run(connection: &Connection, done: usize) -> rusqlite::Result<()> {
    for migration in &MIGRATIONS[done..] {
        connection.execute_batch(migration)?;
    }
    if done == 0 {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    let version = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    connection.pragma_update(None, "user_version", version)
}

/// One row of sqlite_schema. Objects that SQLite makes by itself (the indexes of primary keys) have no text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    kind: String,
    name: String,
    table: String,
    sql: Option<String>,
}

fn objects(connection: &Connection) -> rusqlite::Result<Vec<Object>> {
    connection
        .prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?
        .query_map([], |row| Ok(Object { kind: row.get(0)?, name: row.get(1)?, table: row.get(2)?, sql: row.get(3)? }))?
        .collect()
}

/// What the migrations make of an empty file.
fn expected() -> rusqlite::Result<&'static [Object]> {
    static EXPECTED: OnceLock<Vec<Object>> = OnceLock::new();
    if let Some(known) = EXPECTED.get() {
        return Ok(known);
    }
    let model = Connection::open_in_memory()?;
    run(&model, 0)?;
    let made = objects(&model)?;
    Ok(EXPECTED.get_or_init(|| made))
}

/// Every object of ours is there, word for word, and nobody hung a trigger on one: a trigger could undo or forge what a
/// transition writes. Tables, views and indexes that a host adds are none of our business.
pub(super) fn verify(connection: &Connection, started: Instant) -> Result<()> {
    let expected = expected().map_err(|e| sql_error(e, started))?;
    let found = objects(connection).map_err(|e| sql_error(e, started))?;
    for ours in expected.iter().filter(|object| object.sql.is_some()) {
        match found.iter().find(|object| object.kind == ours.kind && object.name == ours.name) {
            Some(same) if same == ours => {}
            Some(_) => return Err(Error::corrupt(format!("its {} {} was changed", ours.kind, ours.name))),
            None => return Err(Error::corrupt(format!("its {} {} is missing", ours.kind, ours.name))),
        }
    }
    // A trigger keeps the table's name as it was typed, and SQLite's names have no case.
    let on_ours = |trigger: &Object| {
        expected
            .iter()
            .any(|ours| matches!(&*ours.kind, "table" | "view") && ours.name.eq_ignore_ascii_case(&trigger.table))
    };
    let planted = |object: &&Object| object.kind == "trigger" && on_ours(object) && !expected.contains(object);
    match found.iter().find(planted) {
        None => Ok(()),
        Some(trigger) => Err(Error::unsupported(format!(
            "a trigger that is not countersign's stands on its table {}: {}; drop it, or find out who planted it",
            visible_cut(&trigger.table, 128),
            visible_cut(&trigger.name, 128)
        ))),
    }
}

#[cfg(test)]
mod tests;
