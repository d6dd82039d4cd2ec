//! Waiting for a decision. One test at a time, because some count the threads that look for changes.
#![allow(clippy::await_holding_lock, reason = "each test has a runtime of its own")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use countersign::{Approval, Awaited, Clock as _, Gate, NewPlan, Redeem, TestClock};

use super::{SOON, common, create, descriptors, eventually, threads};

const CHILD: &str = "COUNTERSIGN_TEST_DECIDES";

#[test]
fn every_state_has_its_answer() {
    let _one = common::one_at_a_time();
    let clock = Arc::new(TestClock::at_ms(1_700_000_000_000));
    let gate = common::ephemeral(|builder| builder.clock(clock.clone()));
    let (agent, ada) = (gate.agent("agent").unwrap(), gate.reviewer("ada").unwrap());
    let wait = |created: &countersign::Created| agent.wait_for_decision(&created.plan_token, Duration::ZERO);

    let waits = create(&gate, 1, Approval::required());
    assert_eq!(wait(&waits).unwrap(), Awaited::TimedOut);
    let quick = Instant::now();
    let timed_out = agent.wait_for_decision(&waits.plan_token, Duration::from_millis(30)).unwrap();
    assert_eq!(timed_out, Awaited::TimedOut);
    assert!(quick.elapsed() >= Duration::from_millis(30));
    ada.approve(&waits.plan_token, &waits.seal).unwrap();
    assert_eq!(wait(&waits).unwrap(), Awaited::Approved);
    let claim = agent.begin_execute(Redeem::stored(&waits.plan_token, "tool")).unwrap();
    assert_eq!(wait(&waits).unwrap(), Awaited::Approved);
    drop(claim);

    let free = create(&gate, 2, Approval::NotNeeded);
    assert_eq!(wait(&free).unwrap(), Awaited::Approved);
    agent.execute(Redeem::stored(&free.plan_token, "tool"), |_| Ok(())).unwrap();
    assert_eq!(wait(&free).unwrap(), Awaited::Approved);

    let rejected = create(&gate, 3, Approval::required());
    ada.reject(&rejected.plan_token, Some("no\u{202e}!")).unwrap();
    let Awaited::Rejected { reason: Some(reason) } = wait(&rejected).unwrap() else { panic!("not rejected") };
    assert!(reason.starts_with("no") && !reason.contains('\u{202e}'), "{reason:?}");

    let expired = create(&gate, 4, Approval::required());
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(wait(&expired).unwrap(), Awaited::Expired);

    // After a purge the tombstone answers.
    let operator = gate.operator("olga").unwrap();
    operator.sweep().unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!(operator.purge(Duration::ZERO).unwrap(), 3);
    assert_eq!(wait(&free).unwrap(), Awaited::Approved);
    assert!(matches!(wait(&rejected).unwrap(), Awaited::Rejected { reason: Some(_) }));
    assert_eq!(wait(&expired).unwrap(), Awaited::Expired);

    let other = gate.agent("other").unwrap();
    assert_eq!(other.wait_for_decision(&waits.plan_token, SOON).unwrap_err().code(), "UNKNOWN_TOKEN");
    assert_eq!(agent.wait_for_decision("x", SOON).unwrap_err().code(), "UNKNOWN_TOKEN");
}

#[test]
fn an_expiry_ends_a_wait_on_the_gates_clock_and_writes_nothing() {
    let _one = common::one_at_a_time();
    let clock = Arc::new(TestClock::at_ms(1_700_000_000_000));
    let gate = common::ephemeral(|builder| builder.clock(clock.clone()));
    let created = create(&gate, 1, Approval::required());
    let agent = gate.agent("agent").unwrap();
    let before = gate.operator("olga").unwrap().audit().head().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| agent.wait_for_decision(&created.plan_token, SOON).unwrap());
        // The millisecond in which a plan expires still counts.
        clock.set_ms(created.expires_at.timestamp_millis());
        assert_eq!(agent.wait_for_decision(&created.plan_token, Duration::from_millis(30)).unwrap(), Awaited::TimedOut);
        clock.set_ms(clock.now_ms() + 1);
        assert_eq!(waiting.join().unwrap(), Awaited::Expired);
    });
    assert_eq!(gate.operator("olga").unwrap().audit().head().unwrap(), before);
}

#[test]
fn a_vote_that_does_not_complete_the_quorum_ends_no_wait() {
    let _one = common::one_at_a_time();
    let gate = common::ephemeral(|builder| builder);
    let created = create(&gate, 1, Approval::Required { quorum: 2 });
    let agent = gate.agent("agent").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| agent.wait_for_decision(&created.plan_token, SOON).unwrap());
        gate.reviewer("ada").unwrap().approve(&created.plan_token, &created.seal).unwrap();
        assert_eq!(agent.wait_for_decision(&created.plan_token, Duration::from_millis(50)).unwrap(), Awaited::TimedOut);
        gate.reviewer("bob").unwrap().approve(&created.plan_token, &created.seal).unwrap();
        assert_eq!(waiting.join().unwrap(), Awaited::Approved);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_cost_one_thread_and_one_connection() {
    let _one = common::one_at_a_time();
    let gate = common::ephemeral(|builder| builder.max_pending(2_000));
    let agent = gate.agent("agent").unwrap();
    let plans: Vec<_> = (0..1_000).map(|payload| create(&gate, payload, Approval::required())).collect();
    // All of the readers that the pool ever opens are open.
    let pool = 1 + 4;
    let mut waiting = tokio::task::JoinSet::new();
    for (index, plan) in plans.iter().enumerate() {
        let (agent, token) = (agent.clone(), plan.plan_token.clone());
        waiting.spawn(async move { (index, agent.wait_for_decision_async(&token, SOON).await.unwrap()) });
    }
    let blocked: Vec<_> = plans[..20].iter().map(|plan| plan.plan_token.clone()).collect();
    let blocked: Vec<_> = blocked
        .into_iter()
        .map(|token| {
            let agent = agent.clone();
            std::thread::spawn(move || agent.wait_for_decision(&token, SOON).unwrap())
        })
        .collect();
    let ada = gate.reviewer("ada").unwrap();
    for plan in &plans[..500] {
        ada.approve_async(&plan.plan_token, &plan.seal).await.unwrap();
    }
    assert_eq!(threads("countersign-wat"), 1);
    let open = descriptors(gate.path());
    assert!(open <= pool + 1, "{open} connections");
    for plan in &plans[500..] {
        ada.reject_async(&plan.plan_token, None).await.unwrap();
    }
    let mut answered = 0;
    while let Some(done) = waiting.join_next().await {
        let (index, awaited) = done.unwrap();
        let expected = if index < 500 { Awaited::Approved } else { Awaited::Rejected { reason: None } };
        assert_eq!(awaited, expected, "plan {index}");
        answered += 1;
    }
    assert_eq!(answered, 1_000);
    for thread in blocked {
        assert_eq!(thread.join().unwrap(), Awaited::Approved);
    }
    eventually("the thread ends with the last waiter", || threads("countersign-wat") == 0).await;
}

#[tokio::test]
async fn closing_the_gate_ends_every_wait() {
    let _one = common::one_at_a_time();
    let gate = common::ephemeral(|builder| builder);
    let created = create(&gate, 1, Approval::required());
    let agent = gate.agent("agent").unwrap();
    let (task, thread) = (agent.clone(), agent.clone());
    let token = created.plan_token.clone();
    let task = tokio::spawn(async move { task.wait_for_decision_async(&token, SOON).await });
    let token = created.plan_token.clone();
    let thread = tokio::task::spawn_blocking(move || thread.wait_for_decision(&token, SOON));
    gate.close_async().await.unwrap();
    assert!(task.await.unwrap().unwrap_err().is_closed());
    assert!(thread.await.unwrap().unwrap_err().is_closed());
}

#[tokio::test]
async fn a_wait_that_is_dropped_gives_up_its_place() {
    let _one = common::one_at_a_time();
    let gate = common::ephemeral(|builder| builder);
    let created = create(&gate, 1, Approval::required());
    let agent = gate.agent("agent").unwrap();
    let token = created.plan_token.clone();
    let waiting = tokio::spawn(async move { agent.wait_for_decision_async(&token, SOON).await });
    eventually("somebody looks for changes", || threads("countersign-wat") == 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    eventually("nobody waits", || threads("countersign-wat") == 0).await;
}

#[tokio::test]
async fn an_async_wait_times_out_without_a_timer_of_the_runtime() {
    let _one = common::one_at_a_time();
    let runtime = std::thread::spawn(|| {
        let gate = Gate::ephemeral().unwrap();
        let created = create(&gate, 1, Approval::required());
        let agent = gate.agent("agent").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(agent.wait_for_decision_async(&created.plan_token, Duration::from_millis(30))).unwrap()
    });
    assert_eq!(runtime.join().unwrap(), Awaited::TimedOut);
}

/// The other process: decides as it is told, and says when it had done so.
#[test]
fn another_process_decides() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let gate = Gate::open(path).unwrap();
    let ada = gate.reviewer("ada").unwrap();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (token, seal) = line.split_once(' ').unwrap();
        ada.approve(token, seal).unwrap();
        println!("decided {}", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos());
    }
}

#[test]
fn a_decision_of_another_process_is_answered_within_100_ms() {
    let _one = common::one_at_a_time();
    const DECISIONS: usize = 41;
    let gate = common::ephemeral(|builder| builder);
    let agent = gate.agent("agent").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "wait::another_process_decides", "--nocapture"])
        .env(CHILD, gate.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut say, mut said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut late: Vec<Duration> = Vec::new();
    for payload in 0..DECISIONS {
        let created = agent.create(NewPlan::new("tool", &payload, Approval::required())).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let awaited = agent.wait_for_decision(&created.plan_token, SOON).unwrap();
                (awaited, SystemTime::now())
            });
            writeln!(say, "{} {}", created.plan_token, created.seal).unwrap();
            let decided = loop {
                let line = said.next().expect("the other process goes on").unwrap();
                if let Some((_, nanos)) = line.split_once("decided ") {
                    break UNIX_EPOCH + Duration::from_nanos(nanos.parse().unwrap());
                }
            };
            let (awaited, answered) = waiting.join().unwrap();
            assert_eq!(awaited, Awaited::Approved);
            late.push(answered.duration_since(decided).unwrap_or_default());
        });
    }
    drop(say);
    assert!(child.wait().unwrap().success());
    late.sort();
    let (median, p90) = (late[DECISIONS / 2], late[DECISIONS * 9 / 10]);
    println!("answered after: median {median:?}, 90 % {p90:?}, longest {:?}", late[DECISIONS - 1]);
    // The slowest tenth belongs to a machine that was busy with something else.
    assert!(p90 < Duration::from_millis(100), "{late:?}");
}
