//! Plain SQL is an interface of this crate: its text stands in `tests/golden/schema.sql`, and each column has its
//! sentence in the README. A difference is a decision, and a migration; `UPDATE_GOLDEN=1` writes the first file.
#![allow(clippy::disallowed_methods)] // Nothing here has a gate's database open.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file that went through all migrations, in the order of their numbers.
fn migrated(dir: &Path) -> Connection {
    let mut migrations: Vec<_> =
        fs::read_dir(repository().join("migrations")).unwrap().map(|entry| entry.unwrap().path()).collect();
    migrations.sort();
    let connection = Connection::open(dir.join("migrated.db")).unwrap();
    for migration in migrations {
        connection.execute_batch(&fs::read_to_string(migration).unwrap()).unwrap();
    }
    connection
}

fn texts(connection: &Connection, sql: &str) -> Vec<String> {
    connection.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_schema_is_the_one_that_was_agreed() {
    let dir = tempfile::tempdir().unwrap();
    let connection = migrated(dir.path());
    let order = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY \
                 CASE type WHEN 'table' THEN 1 WHEN 'index' THEN 2 WHEN 'trigger' THEN 3 ELSE 4 END, name";
    let found = texts(&connection, order).join(";\n\n") + ";\n";
    let golden = repository().join("tests/golden/schema.sql");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &found).unwrap();
    }
    assert_eq!(fs::read_to_string(golden).unwrap(), found);
}

#[test]
fn every_column_has_its_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let connection = migrated(dir.path());
    let mut found = BTreeSet::new();
    for object in texts(&connection, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')") {
        for column in texts(&connection, &format!("SELECT name FROM pragma_table_xinfo('{object}')")) {
            found.insert(format!("{object}.{column}"));
        }
    }
    assert_eq!(documented(&fs::read_to_string(repository().join("README.md")).unwrap()), found);
}

/// In the section of the tables, "### `name`" begins an object, "| `column` | sentence |" is one of its columns.
fn documented(page: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once("\n## Tables and views\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut object = "";
    let mut columns = BTreeSet::new();
    for line in section.lines() {
        if let Some(name) = line.strip_prefix("### `") {
            object = name.trim_end_matches('`');
        } else if let Some((column, sentence)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` | ")) {
            assert!(sentence.trim_end_matches('|').trim().len() > 3, "{object}.{column} has no sentence");
            assert!(columns.insert(format!("{object}.{column}")), "{object}.{column} stands twice");
        }
    }
    columns
}
