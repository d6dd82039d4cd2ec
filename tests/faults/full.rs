//! No space left: the first error is the answer, nothing is half done, and the same gate works when space returns.
#![allow(clippy::disallowed_methods, reason = "a ballast file, never a database")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use countersign::{Approval, Doctor, Error, ExecuteError, Gate, Level, NewPlan, Redeem, State};

use crate::common::{self, invariants, ledger::Ledger, tools};

const TOOL: &str = "write_rows";

/// A lifecycle of verbs that write much; the first error, and at which verb. What could not be confirmed is confirmed
/// once `space` has made room.
struct Lifecycle<'a> {
    gate: &'a Gate,
    ledger: &'a Ledger,
}

impl Lifecycle<'_> {
    fn run(&self, space: &dyn Fn()) -> Result<(), (&'static str, Error)> {
        let agent = self.gate.agent("agent").unwrap();
        let reviewer = self.gate.reviewer("ada").unwrap();
        let at = |verb: &'static str| move |error: Error| (verb, error);
        let text = "a reason of some length ".repeat(60);
        let plan = |approval| NewPlan::new(TOOL, &text, approval).reason(&*text);

        let rejected = agent.create(NewPlan::new(TOOL, &1, Approval::NotNeeded)).map_err(at("create"))?.plan_token;
        reviewer.reject(&rejected, Some(&text)).map_err(at("reject"))?;
        let gated = agent.create(plan(Approval::required())).map_err(at("create"))?;
        reviewer.approve(&gated.plan_token, &gated.seal).map_err(at("approve"))?;
        let token = &gated.plan_token;
        for _ in 0..4 {
            agent.record_host_event(Some(token.as_str()), "note", &text).map_err(at("host_event"))?;
        }
        let refused = agent.begin_execute(Redeem::stored(token, "another")).unwrap_err();
        if !refused.is_refused() {
            // The refusal could not be recorded: the storage error is the answer.
            return Err(("refuse", refused));
        }
        let before = self.ledger.count(token.as_str());
        let done = agent.execute(Redeem::stored(token, TOOL), |claim| {
            self.ledger.apply(claim.plan_token(), claim.attempt());
            Ok(text.repeat(3))
        });
        match done {
            Ok(_) => Ok(()),
            Err(ExecuteError::Gate(error)) => {
                assert_eq!(self.ledger.count(token.as_str()), before, "the effect ran without a claim");
                Err(("begin", error))
            }
            Err(ExecuteError::NotRecorded { value, mut claim, source }) => {
                assert_eq!((value.len(), self.ledger.count(token.as_str())), (text.len() * 3, before + 1));
                assert_eq!(self.gate.operator("op").unwrap().plan(token).unwrap().state, State::Executing);
                space();
                let settled = claim.confirm_executed(&value).unwrap();
                assert_eq!((settled.state, settled.already), (State::Executed, false));
                Err(("confirm", source))
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// Runs lifecycles until one fails for want of space, then makes space and runs one more, all in one gate.
fn until_full(gate: &Gate, space: &dyn Fn()) -> &'static str {
    let ledger = Ledger::beside(gate.path());
    let life = Lifecycle { gate, ledger: &ledger };
    for _ in 0..1_000 {
        let Err((verb, error)) = life.run(space) else { continue };
        assert!(error.is_storage_full(), "{verb}: {error}");
        invariants::sound(gate);
        space();
        if let Err((verb, error)) = life.run(space) {
            panic!("space returned, and {verb} still answers: {error}");
        }
        gate.operator("op").unwrap().recover().unwrap();
        invariants::sound(gate);
        invariants::effects_match(gate.path(), &ledger);
        return verb;
    }
    panic!("the space never ended");
}

#[test]
fn a_page_limit_stops_each_verb_with_its_first_error_and_the_same_gate_goes_on() {
    let mut seen = BTreeMap::new();
    for spare in 0..60 {
        let path = common::directory().join("gate.db");
        common::builder(&path).open().unwrap().close().unwrap();
        let ballast = rusqlite::Connection::open(&path).unwrap();
        ballast.execute_batch("CREATE TABLE ballast (x); INSERT INTO ballast VALUES (zeroblob(800000))").unwrap();
        let pages = invariants::number(&path, "PRAGMA page_count");
        let gate = common::builder(&path)
            .connection_sql([format!("PRAGMA max_page_count = {}", pages + spare)])
            .open()
            .unwrap();
        let space = || ballast.execute_batch("DROP TABLE IF EXISTS ballast").unwrap();
        *seen.entry(until_full(&gate, &space)).or_insert(0) += 1;
    }
    println!("a page limit stopped {seen:?}");
    for verb in ["create", "approve", "reject", "refuse", "begin", "confirm", "host_event"] {
        if !seen.contains_key(verb) {
            println!("no page was wanted by {verb}");
        }
    }
    assert!(seen.contains_key("create") && seen.contains_key("confirm") && seen.len() >= 4, "{seen:?}");
}

/// A small file system, unmounted when it is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(kilobytes: u32) -> Option<Self> {
        let directory = common::directory();
        let size = format!("size={kilobytes}k,mode=0700");
        tools::run("mount", &["-t", "tmpfs", "-o", &size, "none", directory.to_str().unwrap()])
            .then_some(Self(directory))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        tools::run("umount", &["--lazy", self.0.to_str().unwrap()]);
    }
}

fn free_bytes(file: &Path) -> u64 {
    let space = rustix::fs::statvfs(file.parent().unwrap()).unwrap();
    space.f_bavail * space.f_frsize
}

/// Fills a file system, but for so many bytes.
fn fill(file: &Path, spare: u64) {
    let bytes = free_bytes(file).saturating_sub(spare);
    std::fs::write(file, vec![0_u8; usize::try_from(bytes).unwrap()]).unwrap();
}

/// Gives the space back. A process that another test is starting may have inherited the file's descriptor, and keeps its
/// blocks until it begins to run.
fn empty(file: &Path) {
    match std::fs::remove_file(file) {
        Ok(()) => tools::until("the space is free again", || free_bytes(file) > 4 * 1024 * 1024),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}

#[test]
fn a_full_disk_stops_each_verb_with_its_first_error_and_the_same_gate_goes_on() {
    let mounted = Tmpfs::mount(64);
    if !tools::can("root, to mount a small tmpfs", mounted.is_some()) {
        return;
    }
    let mut seen = BTreeMap::new();
    for spare in 0..24 {
        let disk = Tmpfs::mount(8 * 1024).unwrap();
        let path = disk.0.join("gate.db");
        let gate = common::builder(&path).open().unwrap();
        // The effects are on another disk.
        let effects = common::directory();
        std::os::unix::fs::symlink(&effects, disk.0.join("effects")).unwrap();
        // The log exists, and a reader is there: what comes now is new space.
        gate.agent("agent").unwrap().create(NewPlan::new(TOOL, &0, Approval::NotNeeded)).unwrap();
        invariants::sound(&gate);
        let ballast = disk.0.join("ballast");
        fill(&ballast, spare * 8 * 1024);
        *seen.entry(until_full(&gate, &|| empty(&ballast))).or_insert(0) += 1;
        drop(gate);
        invariants::sound(&common::builder(&path).open().unwrap());
    }
    println!("a full disk stopped {seen:?}");
    assert!(seen.len() >= 4, "{seen:?}");
}

#[test]
fn the_doctor_names_a_disk_without_room_as_what_it_is() {
    let mounted = Tmpfs::mount(128 * 1024);
    if !tools::can("root, to mount a small tmpfs", mounted.is_some()) {
        return;
    }
    let disk = mounted.unwrap();
    let path = disk.0.join("gate.db");
    let gate = common::builder(&path).open().unwrap();
    let level = |spare: u64| {
        let ballast = disk.0.join("ballast");
        fill(&ballast, spare);
        let report = Doctor::new(&path).examine();
        let space = report.checks.iter().find(|check| check.check == "space").unwrap();
        let found = (space.level, space.advice.is_some());
        empty(&ballast);
        found
    };
    assert_eq!(level(80 * 1024 * 1024), (Level::Ok, false));
    assert_eq!(level(40 * 1024 * 1024), (Level::Warning, true));
    assert_eq!(level(64 * 1024), (Level::Failure, true));
    drop(gate);
}
