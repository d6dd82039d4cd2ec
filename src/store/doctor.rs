//! The checks of [`Doctor`]. They read through a connection of their own that cannot write, because the gate's own
//! opening refuses exactly the files that have to be looked at.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::fs_check::{self, shown};
use super::head_file::HeadFile;
use super::open::{self, Role};
use super::pool::ConnHooks;
use super::read::Reader;
use super::sql_error::sql_error;
use super::{busy, map_sql, queries as q, schema, verify};
use crate::doctor::{Check, Doctor, DoctorReport, Level};
use crate::error::{Error, Result};
use crate::escape::visible_cut;
use crate::instance::Instance;
use crate::liveness::Liveness;

/// How long one check waits for locks.
const PATIENCE: Duration = Duration::from_secs(5);

/// A log beyond the size to which SQLite cuts it back: somebody holds a read open.
const WAL_LARGE: u64 = 64 * 1024 * 1024;

/// Less free space than the log takes before it is folded in.
const SPACE_NONE: u64 = 4 * 1024 * 1024;
/// Less than a log takes while a long read keeps it from being folded in.
const SPACE_SHORT: u64 = WAL_LARGE;

struct Findings(Vec<Check>);

impl Findings {
    fn add(&mut self, check: &'static str, level: Level, found: impl Into<String>, advice: Option<&str>) {
        self.0.push(Check { check, level, found: found.into(), advice: advice.map(str::to_owned) });
    }

    fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.add(check, Level::Ok, found, None);
    }

    fn warn(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(check, Level::Warning, found, Some(advice));
    }

    fn fail(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(check, Level::Failure, found, Some(advice));
    }

    /// What an error says is the failure, and its hint the advice.
    fn error(&mut self, check: &'static str, error: &Error) {
        let advice = match () {
            () if error.is_busy() => {
                "Another program holds the file locked (an SQL shell in a transaction, say): end it, then examine again."
            }
            () if error.is_corrupt() => {
                "If it is another program's file, name the one that the hosts open. Otherwise stop the hosts, keep the file as evidence, and go on from a backup (accept-restore)."
            }
            () => error.hint(),
        };
        self.fail(check, error.to_string(), advice);
    }
}

/// Makes all checks.
pub(crate) fn examine(doctor: Doctor<'_>) -> DoctorReport {
    let path = doctor.path.clone();
    let mut findings = Findings(Vec::new());
    match open::check_version(rusqlite::version_number()) {
        Ok(()) => findings.ok("sqlite", format!("SQLite {} is linked", rusqlite::version())),
        Err(error) => findings.fail("sqlite", error.to_string(), "Build with the feature `bundled`, or update SQLite."),
    }
    if let Some(real) = files(&path, &mut findings)
        && let Err(error) = contents(&real, doctor, &mut findings)
    {
        findings.error("database", &error);
    }
    DoctorReport { path, checks: findings.0 }
}

/// The file as the system sees it. `None`: there is nothing to open.
fn files(path: &Path, findings: &mut Findings) -> Option<PathBuf> {
    let real = match fs_check::resolve(path).and_then(|real| fs_check::check_present(&real).map(|()| real)) {
        Ok(real) => real,
        Err(error) => {
            findings.fail("file", error.to_string(), "Name the file that the hosts open: --db or COUNTERSIGN_DB.");
            return None;
        }
    };
    let seen = match std::fs::symlink_metadata(&real) {
        Ok(seen) => seen,
        Err(error) => {
            findings.error("file", &Error::from_io("cannot look at", &real, &error));
            return None;
        }
    };
    if !seen.is_file() {
        findings.fail("file", format!("{} is no regular file", shown(&real)), "Name the database file itself.");
        return None;
    }
    if seen.nlink() > 1 {
        let found = format!("{} has {} hard links", shown(&real), seen.nlink());
        findings.fail("file", found, "Remove the other names: each opener of one would replay only its own log.");
        // What stands in the other name's log would look like damage here.
        return None;
    }
    findings.ok("file", format!("{}, {} bytes", shown(&real), seen.len()));
    match fs_check::check_directory(real.parent().unwrap_or(Path::new("/")), false) {
        Ok(()) => findings.ok("file system", "its locks and shared memory hold here, and no stranger replaces files"),
        Err(error) => findings.fail("file system", error.to_string(), "Close every host, then move the database."),
    }
    space(real.parent().unwrap_or(Path::new("/")), findings);
    let me = rustix::process::geteuid().as_raw();
    if seen.uid() == me {
        findings.ok("owner", format!("user {me}"));
    } else {
        let found = format!("it belongs to user {}, and this process runs as user {me}", seen.uid());
        findings.fail("owner", found, "Run the hosts and this program as the file's owner.");
    }
    permissions(&real, &seen, findings);
    Some(real)
}

fn space(directory: &Path, findings: &mut Findings) {
    let advice = "Free disk space: without it every writing verb answers STORAGE_FULL, and loses nothing.";
    match fs_check::free_bytes(directory) {
        Ok(free) if free < SPACE_NONE => findings.fail("space", format!("{free} bytes are free beside it"), advice),
        Ok(free) if free < SPACE_SHORT => findings.warn("space", format!("{free} bytes are free beside it"), advice),
        Ok(free) => findings.ok("space", format!("{free} bytes are free beside it")),
        Err(error) => findings.error("space", &error),
    }
}

fn permissions(real: &Path, seen: &std::fs::Metadata, findings: &mut Findings) {
    let directory = Instance::directory_of(real);
    let beside = ["-wal", "-shm"].map(|suffix| fs_check::with_suffix(real, suffix));
    let files = beside.into_iter().chain([directory.clone(), directory.join("head")]);
    let others = files.filter_map(|file| std::fs::symlink_metadata(&file).ok().map(|seen| (file, seen.mode())));
    let all: Vec<_> = [(real.to_owned(), seen.mode())].into_iter().chain(others).collect();
    let having = |bits: u32| {
        let found = all.iter().filter(|(_, mode)| mode & bits != 0);
        found.map(|(file, mode)| format!("{} (mode {:o})", shown(file), mode & 0o7777)).collect::<Vec<_>>().join(", ")
    };
    let (writable, readable) = (having(0o022), having(0o044));
    if seen.mode() & 0o600 != 0o600 {
        let advice = "Run chmod 600 on it, and on its -wal and -shm where they stand: every verb writes.";
        findings.fail("permissions", format!("its owner cannot write it (mode {:o})", seen.mode() & 0o7777), advice);
    } else if !writable.is_empty() {
        let advice = "Run chmod go-w on them: whoever can write one of them can approve.";
        findings.fail("permissions", format!("group or others can write {writable}"), advice);
    } else if !readable.is_empty() {
        let advice = "Run chmod go-r on them, unless these users are meant to read every payload and every plan token.";
        findings.warn("permissions", format!("group or others can read {readable}"), advice);
    } else {
        findings.ok("permissions", format!("only the owner reads and writes (mode {:o})", seen.mode() & 0o7777));
    }
}

/// The file as SQLite sees it.
fn contents(real: &Path, mut doctor: Doctor<'_>, findings: &mut Findings) -> Result<()> {
    // Before the checks, which read for long and so let the log of a busy host grow.
    let wal = std::fs::symlink_metadata(fs_check::with_suffix(real, "-wal")).map_or(0, |seen| seen.len());
    let mut connection = connect(real)?;
    let time = doctor.clock.clone();
    let now = time.now_ms();
    settings(&connection, findings)?;
    if let Err(error) = schema::standing(&mut connection, Instant::now()).and_then(|standing| match standing {
        schema::Standing::Fresh => Err(Error::unsupported("the file is empty: no host has opened it yet")),
        _ => Ok(()),
    }) {
        findings.error("schema", &error);
        return Ok(());
    }
    match schema::verify(&connection, Instant::now()) {
        Ok(()) => findings.ok("schema", "every table, index and trigger is this version's, and no stranger's trigger"),
        Err(error) => {
            let advice = "No gate opens it. Find out who changed it; keep a copy as evidence before you repair it.";
            findings.fail("schema", error.to_string(), advice);
        }
    }
    integrity(&connection, findings)?;
    chain(&mut connection, now, &mut doctor, findings)?;
    history(&mut connection, real, findings)?;
    let observer = Instance::observer(real);
    let now = time.now_ms();
    snapshot(&mut connection, now, |reader| claims(reader, &observer, findings))?;
    snapshot(&mut connection, now, |reader| housekeeping(reader, wal, findings))?;
    snapshot(&mut connection, time.now_ms(), |reader| clock(reader, findings))
}

fn connect(real: &Path) -> Result<Connection> {
    let started = Instant::now();
    busy::arm(busy::deadline(started, PATIENCE));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = map_sql(Connection::open_with_flags(real, flags), started)?;
    map_sql(open::configure(&connection, Role::Reader, &ConnHooks::default()), started)?;
    map_sql(connection.pragma_update(None, "cache_size", super::walk::WALK_CACHE_KIB), started)?;
    Ok(connection)
}

fn snapshot<T>(connection: &mut Connection, now: i64, f: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
    let started = Instant::now();
    busy::arm(busy::deadline(started, PATIENCE));
    let sql = map_sql(connection.transaction(), started)?;
    f(&Reader { sql: &sql, now, started })
}

fn settings(connection: &Connection, findings: &mut Findings) -> Result<()> {
    let ask = |pragma: &str| -> Result<String> {
        let value =
            connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, rusqlite::types::Value>(0));
        Ok(match map_sql(value, Instant::now())? {
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Integer(number) => number.to_string(),
            other => format!("{other:?}"),
        })
    };
    match ask("journal_mode")?.as_str() {
        "wal" => findings.ok("journal mode", "wal"),
        mode => findings.warn(
            "journal mode",
            format!("{mode}, not wal"),
            "A backup copy is so until a gate opens it. On a live file: find out what other program switched it.",
        ),
    }
    match ask("synchronous")?.as_str() {
        "2" => findings.ok("synchronous", "FULL is in force on a gate's connections"),
        other => findings.fail(
            "synchronous",
            format!("SQLite keeps synchronous at {other} where 2 (FULL) is needed"),
            "Build with the feature `bundled`: a power loss could forget a claim.",
        ),
    }
    Ok(())
}

fn integrity(connection: &Connection, findings: &mut Findings) -> Result<()> {
    let lines: rusqlite::Result<Vec<String>> = connection
        .prepare("PRAGMA integrity_check(5)")
        .and_then(|mut check| check.query_map([], |row| row.get(0))?.collect());
    match lines {
        Ok(lines) if lines == ["ok"] => findings.ok("integrity", "integrity_check: ok"),
        Ok(lines) => findings.fail(
            "integrity",
            lines.iter().map(|line| visible_cut(line, 200)).collect::<Vec<_>>().join("; "),
            "Stop the hosts, keep the file as evidence, and go on from a backup (accept-restore).",
        ),
        Err(error) => findings.error("integrity", &sql_error(error, Instant::now())),
    }
    Ok(())
}

fn chain(connection: &mut Connection, now: i64, doctor: &mut Doctor<'_>, findings: &mut Findings) -> Result<()> {
    let connection = std::cell::RefCell::new(connection);
    // Each piece of the walk is a read of its own; the walk never asks for one inside another.
    let read = |f: &mut dyn FnMut(&Reader<'_>) -> Result<()>| snapshot(&mut connection.borrow_mut(), now, f);
    let report = match verify::verify(read, doctor.head.as_ref(), &mut doctor.progress) {
        Ok(report) => report,
        Err(error) => {
            findings.error("audit chain", &error);
            return Ok(());
        }
    };
    let walked = format!("{} rows and {} plans agree", report.rows, report.plans);
    match (&report.difference, report.tail_checked) {
        (Some(difference), _) => findings.fail(
            "audit chain",
            difference.to_string(),
            "Somebody wrote past the gate. Keep a copy as evidence, and compare it with a backup and an exported head.",
        ),
        (None, true) => findings.ok("audit chain", format!("{walked}, up to the exported head and past it")),
        (None, false) => {
            findings.ok("audit chain", format!("{walked}; no exported head was given, so a cut tail would not show"))
        }
    }
    Ok(())
}

fn history(connection: &mut Connection, real: &Path, findings: &mut Findings) -> Result<()> {
    let (backup, store_id) =
        snapshot(connection, 0, |reader| Ok((reader.is_backup()?, reader.audit_head()?.store_id)))?;
    if backup {
        let advice = "Nothing can be written until an operator runs accept-restore: open plans expire, executing ones become uncertain.";
        findings.warn("history", "the file is a copy that `backup` made, and nobody has accepted it", advice);
        return Ok(());
    }
    // Read before the database: what a host commits in between is in the newer snapshot.
    let Some(seen) = HeadFile::observe(&Instance::directory_of(real), store_id) else {
        let advice = "Normal for a file that was moved without its .owners directory; a restore would not be noticed at the next open.";
        findings.warn("history", "no remembered head of this store stands beside it", advice);
        return Ok(());
    };
    let hash = snapshot(connection, 0, |reader| reader.audit_hash_at(seen.seq))?;
    if hash.as_deref() == Some(seen.hash.as_str()) {
        findings.ok("history", format!("audit row {} is the one that was written", seen.seq));
    } else {
        let advice = "An older copy was put back. If that was meant: accept-restore, then reopen the hosts.";
        findings.fail("history", format!("audit row {} is not the one that was written", seen.seq), advice);
    }
    Ok(())
}

/// Who owns what was claimed, and what waits for an operator.
fn claims(reader: &Reader<'_>, observer: &Instance, findings: &mut Findings) -> Result<()> {
    let (mut alive, mut dead, mut unknown) = (0_u64, 0_u64, 0_u64);
    for instance in reader.instances()? {
        match observer.liveness(Some(&instance)) {
            Liveness::Alive => alive += 1,
            Liveness::Dead => dead += 1,
            Liveness::Unknown => unknown += 1,
        }
    }
    let found = format!("{alive} alive, {dead} dead, {unknown} unknown");
    match (dead, unknown) {
        (0, 0) => findings.ok("instances", found),
        (_, 0) => {
            findings.warn("instances", found, "Run recover: it settles or marks what they left, and forgets them.")
        }
        _ => findings.warn(
            "instances",
            found,
            "Make sure on their machines that the unknown ones are gone, then mark-interrupted what they own.",
        ),
    }
    let (mut dead, mut unknown, mut uncertain) = (0_u64, 0_u64, 0_u64);
    for key in reader.stuck_keys()? {
        let key = match key {
            Ok(key) => key,
            Err((token, error)) => {
                let found = format!("plan {}: {error}", visible_cut(&token, 48));
                findings.fail(
                    "claims",
                    found,
                    "Its row cannot be read: keep a copy as evidence, and compare a backup.",
                );
                continue;
            }
        };
        if !key.executing {
            uncertain += 1;
            continue;
        }
        let owner = match &key.owner {
            Some(id) => reader.instance(id)?,
            None => None,
        };
        match observer.liveness(owner.as_ref()) {
            Liveness::Alive => {}
            Liveness::Dead => dead += 1,
            Liveness::Unknown => unknown += 1,
        }
    }
    if dead + unknown + uncertain == 0 {
        findings.ok("claims", "no plan waits for an operator");
        return Ok(());
    }
    findings.warn(
        "claims",
        format!("{dead} executing with a dead owner, {unknown} with an unknown owner, {uncertain} uncertain"),
        "Run recover, then executing; find out what happened to each, and settle it.",
    );
    Ok(())
}

fn housekeeping(reader: &Reader<'_>, wal: u64, findings: &mut Findings) -> Result<()> {
    match reader.overdue_total()? {
        0 => findings.ok("expiry", "no unused plan is past its time"),
        overdue => findings.ok("expiry", format!("{overdue} unused plans are past their time (sweep records that)")),
    }
    match reader.audit_indexes()? {
        (0, _) => findings.ok("audit index", "off"),
        (standing, all) if standing == all => findings.ok("audit index", "on"),
        (standing, all) => {
            let advice = "Making them was interrupted: switch them on again, or off.";
            findings.warn("audit index", format!("{standing} of {all} stand"), advice);
        }
    }
    if wal > WAL_LARGE {
        let advice = "Find the program that keeps a read open (an SQL shell in a transaction, say) and end its read.";
        findings.warn("log", format!("the write-ahead log has {wal} bytes"), advice);
    } else {
        findings.ok("log", format!("the write-ahead log has {wal} bytes"));
    }
    Ok(())
}

fn clock(reader: &Reader<'_>, findings: &mut Findings) -> Result<()> {
    let newest: Option<i64> = reader.one(q::AUDIT_NEWEST_TIME, &[], |row| row.get(0))?.flatten();
    let ahead = newest.map_or(0, |newest| newest.saturating_sub(reader.now));
    if ahead > 2_000 {
        let advice = "Correct the clock of this machine, or of the one that wrote last: approve and begin_execute refuse plans from the future.";
        findings.fail("clock", format!("the newest audit rows are {ahead} ms ahead of this machine's clock"), advice);
    } else {
        findings.ok("clock", format!("this machine's clock reads {}", super::read::iso(reader.now)));
    }
    Ok(())
}
