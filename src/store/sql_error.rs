//! The one place where an error of SQLite becomes an error of this crate. The mapping is total and by result code, never
//! by message text; no type of rusqlite leaves it.

use std::time::Instant;

use rusqlite::ffi;

use crate::error::Error;
use crate::escape::visible_cut;

/// The error of a statement, a BEGIN or an open that began to wait at `started`.
///
/// After it the change did not happen. A COMMIT is different: [`commit_error`].
pub(crate) fn sql_error(error: rusqlite::Error, started: Instant) -> Error {
    use rusqlite::Error as E;
    match error {
        E::SqliteFailure(code, message) => {
            let text = message.unwrap_or_else(|| ffi::code_to_str(code.extended_code).to_owned());
            by_code(code.extended_code, &text, started)
        }
        // Values that the schema does not allow: somebody else wrote them.
        E::FromSqlConversionFailure(column, ..) | E::IntegralValueOutOfRange(column, _) | E::Utf8Error(column, _) => {
            Error::corrupt(format!("column {column} of a row holds a value that does not belong there"))
        }
        E::InvalidColumnType(_, name, kind) => Error::corrupt(format!("column {} holds {kind}", shown(&name))),
        E::InvalidColumnName(name) => Error::corrupt(format!("a column is missing: {}", shown(&name))),
        E::InvalidColumnIndex(index) => Error::corrupt(format!("a column is missing: number {index}")),
        E::QueryReturnedNoRows => Error::corrupt("a row that has to be there is missing"),
        E::QueryReturnedMoreThanOneRow => Error::corrupt("there are several rows where one can be"),
        E::InvalidPath(_) | E::NulError(_) => Error::invalid("a text or path holds a NUL character"),
        // rusqlite reports a statement that does not compile in a variant that depends on its features.
        other => match other.sqlite_error() {
            Some(code) => by_code(code.extended_code, &other.to_string(), started),
            None => Error::storage(format!("a statement was used wrongly: {}", shown(&other.to_string()))),
        },
    }
}

/// The error of a COMMIT that began to wait at `started`.
///
/// An I/O error there is no rollback: the frames may be on the disk and the next process that opens the file may see
/// them. Only the row, read again through another connection, can tell.
pub(crate) fn commit_error(error: rusqlite::Error, started: Instant) -> Error {
    match error.sqlite_error() {
        Some(code) if primary(code.extended_code) == ffi::SQLITE_IOERR => Error::ambiguous(shown(&error.to_string())),
        _ => sql_error(error, started),
    }
}

/// True where trying again can help.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|code| busy_code(code.extended_code))
}

/// PROTOCOL is what SQLite answers after it lost the race for the WAL's read marks too many times.
fn busy_code(extended: i32) -> bool {
    matches!(primary(extended), ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL)
}

fn by_code(extended: i32, text: &str, started: Instant) -> Error {
    if busy_code(extended) {
        return Error::busy(started.elapsed());
    }
    let text = shown(text);
    match (primary(extended), extended) {
        (_, ffi::SQLITE_READONLY_DBMOVED) => Error::moved(text),
        (_, ffi::SQLITE_IOERR_CORRUPTFS | ffi::SQLITE_IOERR_DATA) => Error::corrupt(text),
        (ffi::SQLITE_FULL, _) => Error::full(text),
        // It has to grow before anybody can read. SQLite does not say why it could not.
        (_, ffi::SQLITE_IOERR_SHMSIZE) => Error::storage(format!(
            "the -shm file beside the database cannot grow, as on a full disk: {text} (result code {extended})"
        )),
        (ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB, _) => Error::corrupt(text),
        (ffi::SQLITE_READONLY, _) => Error::storage(format!("the database cannot be written: {text}")),
        (ffi::SQLITE_CANTOPEN | ffi::SQLITE_PERM, _) => {
            Error::storage(format!("the database, or a file that SQLite keeps beside it, cannot be opened: {text}"))
        }
        (ffi::SQLITE_IOERR, _) => Error::storage(format!("{text} (result code {extended})")),
        (ffi::SQLITE_CONSTRAINT, _) => Error::storage(format!("a trigger or constraint refused: {text}")),
        (ffi::SQLITE_NOMEM, _) => Error::storage("out of memory"),
        (ffi::SQLITE_TOOBIG, _) => Error::storage(format!("a value is too long for the database: {text}")),
        (ffi::SQLITE_MISMATCH, _) => Error::corrupt(text),
        _ => Error::storage(format!("{text} (result code {extended})")),
    }
}

fn primary(extended: i32) -> i32 {
    extended & 0xff
}

/// SQLite's messages repeat names and texts out of the file.
fn shown(text: &str) -> String {
    visible_cut(text, 400)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mapped(code: i32) -> Error {
        sql_error(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None), Instant::now())
    }

    #[test]
    fn every_result_code_has_its_kind() {
        let expected = [
            (ffi::SQLITE_BUSY, "BUSY"),
            (ffi::SQLITE_BUSY_SNAPSHOT, "BUSY"),
            (ffi::SQLITE_BUSY_RECOVERY, "BUSY"),
            (ffi::SQLITE_LOCKED, "BUSY"),
            (ffi::SQLITE_LOCKED_SHAREDCACHE, "BUSY"),
            (ffi::SQLITE_PROTOCOL, "BUSY"),
            (ffi::SQLITE_FULL, "STORAGE_FULL"),
            (ffi::SQLITE_IOERR_SHMSIZE, "STORAGE"),
            (ffi::SQLITE_IOERR, "STORAGE"),
            (ffi::SQLITE_IOERR_FSYNC, "STORAGE"),
            (ffi::SQLITE_IOERR_CORRUPTFS, "CORRUPT"),
            (ffi::SQLITE_CORRUPT, "CORRUPT"),
            (ffi::SQLITE_CORRUPT_INDEX, "CORRUPT"),
            (ffi::SQLITE_NOTADB, "CORRUPT"),
            (ffi::SQLITE_READONLY, "STORAGE"),
            (ffi::SQLITE_READONLY_DBMOVED, "MOVED"),
            (ffi::SQLITE_CANTOPEN, "STORAGE"),
            (ffi::SQLITE_PERM, "STORAGE"),
            (ffi::SQLITE_AUTH, "STORAGE"),
            (ffi::SQLITE_NOMEM, "STORAGE"),
            (ffi::SQLITE_CONSTRAINT_TRIGGER, "STORAGE"),
            (ffi::SQLITE_CONSTRAINT_CHECK, "STORAGE"),
            (ffi::SQLITE_TOOBIG, "STORAGE"),
            (ffi::SQLITE_ERROR, "STORAGE"),
            (ffi::SQLITE_MISUSE, "STORAGE"),
        ];
        for (code, kind) in expected {
            assert_eq!(mapped(code).code(), kind, "result code {code}");
        }
    }

    #[test]
    fn a_commit_that_fails_on_io_is_ambiguous_and_nothing_else_is() {
        let commit =
            |code| commit_error(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None), Instant::now()).code();
        assert_eq!(commit(ffi::SQLITE_IOERR_FSYNC), "AMBIGUOUS_COMMIT");
        assert_eq!(commit(ffi::SQLITE_IOERR_WRITE), "AMBIGUOUS_COMMIT");
        assert_eq!(commit(ffi::SQLITE_FULL), "STORAGE_FULL");
        assert_eq!(commit(ffi::SQLITE_BUSY), "BUSY");
    }

    #[test]
    fn busy_says_how_long_it_waited() {
        let started = Instant::now().checked_sub(Duration::from_millis(70)).expect("the clock began earlier");
        let error = sql_error(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None), started);
        assert!(error.waited().is_some_and(|waited| waited >= Duration::from_millis(70)));
    }

    #[test]
    fn a_stored_value_of_the_wrong_type_is_corruption() {
        let connection = rusqlite::Connection::open_in_memory().expect("in memory");
        let wrong = connection.query_row("SELECT 'text'", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert!(sql_error(wrong, Instant::now()).is_corrupt());
        let missing = connection.query_row("SELECT 1 WHERE 0", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert!(sql_error(missing, Instant::now()).is_corrupt());
        let syntax = connection.prepare("SELEC").map(drop).unwrap_err();
        assert!(sql_error(syntax, Instant::now()).is_storage());
    }
}
