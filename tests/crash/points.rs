//! Death and panic at each named point of each scene.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign::test_hooks::{self, Action, POINTS};
use countersign::{Approval, Gate, NewPlan};
use serde_json::{Value, json};

use crate::common::child::{Child, hear, say};
use crate::common::{self, invariants, ledger::Ledger, tools};
use crate::scenes::{SCENES, prepare};

/// Dies at a point of a scene, or says that it never came there.
pub(crate) fn dying(args: &Value) {
    let path: &Path = args["path"].as_str().unwrap().as_ref();
    let (_gate, act) = prepare(args["scene"].as_str().unwrap(), path);
    say(&format!("before {}", shape(path)));
    if let Some(point) = args["point"].as_str() {
        test_hooks::arm(point, Action::Kill, u32::try_from(args["nth"].as_u64().unwrap()).unwrap());
    }
    match act() {
        Ok(()) => {}
        Err(error) => assert!(error.is_refused(), "{error}"),
    }
    test_hooks::disarm();
    say(&format!("survived {}", shape(path)));
}

/// The whole content without what differs from run to run.
fn shape(path: &Path) -> Value {
    if !path.exists() {
        return json!(null);
    }
    let sql = rusqlite::Connection::open(path).unwrap();
    let all = |statement: &str| -> Vec<String> {
        let Ok(mut rows) = sql.prepare(statement) else { return Vec::new() };
        let mut rows: Vec<String> = rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        // Twins are regated in the order of their tokens, which is random.
        rows.sort();
        rows
    };
    json!([
        all(
            "SELECT concat_ws(' ', state, gated, attempt, claim_token IS NULL, result, error) FROM plans ORDER BY rowid"
        ),
        all("SELECT concat_ws(' ', event, code, from_state, to_state, attempt) FROM audit_events ORDER BY seq"),
        all("SELECT concat_ws(' ', kind, attempt, lifted_by) FROM tombstones ORDER BY rowid"),
        all("SELECT reviewer FROM approvals ORDER BY rowid"),
    ])
}

/// One death. False when the scene never came to the point.
fn dies(scene: &str, single: bool, point: &str, nth: u32, after: &Value) -> bool {
    let path = common::directory().join("gate.db");
    let args = json!({"path": path.to_str().unwrap(), "scene": scene, "point": point, "nth": nth});
    let mut child = Child::start("dying", &args);
    let before: Value = serde_json::from_str(&child.expect("before")).unwrap();
    if child.next().is_some() {
        child.finish();
        return false;
    }
    let status = child.wait();
    let what = format!("{scene} at {point} {nth}");
    assert!(status.code().is_none(), "{what} ended with {status}: {}", child.complaint());
    let left = shape(&path);
    if scene == "open" {
        // A file without a schema is as good as none.
        assert!(left == *after || left == json!([[], [], [], []]), "{what} left {left}");
    } else if single {
        let expected = if point == "after_commit" { after } else { &before };
        assert_eq!(&left, expected, "{what}");
    }
    let ledger = Ledger::beside(&path);
    let gate = common::builder(&path).reconcile(ledger.hook()).open().unwrap();
    let operator = gate.operator("op").unwrap();
    if scene == "accept_restore" {
        // The head file is written last: until then the restore is to be accepted (again), which loses nothing more.
        assert!(!operator.accept_restore().unwrap().already, "{what}");
    }
    let report = operator.recover().unwrap();
    assert_eq!((&report.alive, &report.unknown_owner), (&vec![], &vec![]), "{what}");
    assert_eq!(report.errors, [], "{what}");
    assert!(invariants::rows(&path).iter().all(|row| !row.state.is_stuck()), "{what}");
    // A consume confirms ahead of its effect, and a purged plan has no row to compare with.
    if !matches!(scene, "consume" | "purge") {
        invariants::effects_match(&path, &ledger);
    }
    invariants::sound(&gate);
    true
}

#[test]
fn death_at_each_point_of_each_transition_leaves_all_of_it_or_nothing() {
    let next = AtomicUsize::new(0);
    let deaths = AtomicUsize::new(0);
    let worker = || {
        while let Some((scene, single)) = SCENES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let path = common::directory().join("gate.db");
            let child = Child::start("dying", &json!({"path": path.to_str().unwrap(), "scene": scene}));
            child.expect("before");
            let after: Value = serde_json::from_str(&child.expect("survived")).unwrap();
            child.finish();
            let mut points = Vec::new();
            for point in POINTS {
                let mut nth = 1;
                while dies(scene, *single, point, nth, &after) {
                    nth += 1;
                }
                points.push(nth - 1);
            }
            deaths.fetch_add(points.iter().sum::<u32>() as usize, Ordering::Relaxed);
            println!("{scene}: deaths at {:?}", POINTS.iter().zip(&points).collect::<Vec<_>>());
            // Every scene passes the ends of a transaction; only an execute passes the last two points.
            let execute = *scene == "execute";
            assert!(points[1] >= 1, "{scene} writes nothing");
            assert_eq!((points[6] > 0, points[7] > 0), (execute, execute), "{scene}");
            if *scene != "open" {
                assert!(points[0] >= 1 && points[4] >= 1 && points[5] >= 1, "{scene} has no transaction");
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    println!("{} scenes, {} deaths", SCENES.len(), deaths.load(Ordering::Relaxed));
}

/// Panics at each point of a scene in turn, each on a fresh file, and goes on with the same process.
pub(crate) fn panicking(args: &Value) {
    let scene = args["scene"].as_str().unwrap();
    // Only what nobody ordered is worth a line.
    std::panic::set_hook(Box::new(|panic| {
        if !panic.payload_as_str().is_some_and(|text| text.starts_with("the test hook")) {
            eprintln!("{panic}");
        }
    }));
    let mut panics = 0;
    for point in POINTS {
        for nth in 1.. {
            let path = common::directory().join("gate.db");
            let (_gate, act) = prepare(scene, &path);
            test_hooks::arm(point, Action::Panic, nth);
            let outcome = catch_unwind(AssertUnwindSafe(act));
            if test_hooks::disarm() {
                break;
            }
            panics += 1;
            assert!(outcome.is_err(), "{point} {nth} swallowed a panic");
        }
    }
    // The same gate after each panic: its next call works, and nothing holds the lock.
    for point in POINTS {
        let path = common::directory().join("gate.db");
        let gate = common::builder(&path).open().unwrap();
        let agent = gate.agent("agent").unwrap();
        test_hooks::arm(point, Action::Panic, 1);
        let _ = catch_unwind(AssertUnwindSafe(|| one_of_each(&gate)));
        test_hooks::disarm();
        agent.create(NewPlan::new("next", &1, Approval::NotNeeded)).unwrap();
        lock_is_free(&path);
        gate.operator("op").unwrap().recover().unwrap();
        invariants::sound(&gate);
    }
    say(&format!("panics {panics}"));
}

fn one_of_each(gate: &Gate) {
    let agent = gate.agent("agent").unwrap();
    let created = agent.create(NewPlan::new("write", &1, Approval::NotNeeded)).unwrap();
    agent.execute(countersign::Redeem::stored(&created.plan_token, "write"), |_| Ok(1)).unwrap();
}

/// Another connection gets the write lock at once.
fn lock_is_free(path: &Path) {
    let other = rusqlite::Connection::open(path).unwrap();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
}

#[test]
fn a_panic_at_each_point_of_each_transition_leaves_no_lock_and_the_next_call_works() {
    let next = AtomicUsize::new(0);
    let panics = AtomicUsize::new(0);
    let worker = || {
        while let Some((scene, _)) = SCENES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let child = Child::start("panicking", &json!({"scene": scene}));
            panics.fetch_add(child.expect("panics").parse().unwrap(), Ordering::Relaxed);
            child.finish();
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    println!("{} scenes, {} panics", SCENES.len(), panics.load(Ordering::Relaxed));
    assert!(panics.load(Ordering::Relaxed) > SCENES.len() * 4);
}

/// Opens the file that it is told to; stands still within its creation, when it is told to.
pub(crate) fn first_opener(_: &Value) {
    say("ready");
    loop {
        let order = hear();
        let Some((how, path)) = order.split_once(' ') else { return };
        if how == "stop" {
            test_hooks::arm("after_statement", Action::Stop, 1);
        }
        match common::builder(path).open() {
            Ok(_) => say("opened"),
            Err(error) => say(&format!("error {} {error}", error.code())),
        }
    }
}

#[test]
fn a_process_that_dies_in_the_creation_of_a_file_is_in_nobodys_way() {
    let mut others: Vec<_> = (0..11).map(|_| Child::start("first_opener", &json!({}))).collect();
    for other in &others {
        other.expect("ready");
    }
    for _ in 0..10 {
        let path = common::directory().join("gate.db");
        let mut dying = Child::start("first_opener", &json!({}));
        dying.expect("ready");
        dying.tell(&format!("stop {}", path.display()));
        tools::until("it stands still within its transaction", || tools::process_state(dying.pid()) == Some('T'));
        for other in &mut others {
            other.tell(&format!("open {}", path.display()));
        }
        dying.kill();
        for other in &others {
            other.expect("opened");
        }
        assert_eq!(invariants::number(&path, "SELECT count(*) FROM audit_events"), 1);
    }
    others.into_iter().for_each(Child::finish);
}
