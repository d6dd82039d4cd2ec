use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::{Approval, Gate, NewPlan};

const SOON: Duration = Duration::from_secs(10);

/// One test at a time counts threads.
static COUNTING: Mutex<()> = Mutex::new(());

/// This process's threads that look for changes.
fn pollers() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            #[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        })
        .filter(|name| name.starts_with("countersign-wat"))
        .count()
}

/// Polls a condition that nothing announces: the end of a thread.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn one_thread_serves_all_who_wait_and_ends_with_the_last() {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = Gate::ephemeral().unwrap();
    let agent = gate.agent("agent").unwrap();
    let subscriptions: Vec<_> = (0..100).map(|_| gate.inner.changes().unwrap()).collect();
    // A thread gives itself its name.
    eventually("one thread looks for changes", || pollers() == 1);
    agent.create(NewPlan::new("tool", &1, Approval::required())).unwrap();
    for subscription in &subscriptions {
        assert!(subscription.wait(Some(Instant::now() + SOON)).unwrap());
    }
    drop(subscriptions);
    eventually("the thread ends when nobody waits", || pollers() == 0);

    // A later waiter starts it again, and it has missed nothing.
    let subscription = gate.inner.changes().unwrap();
    agent.create(NewPlan::new("tool", &2, Approval::required())).unwrap();
    assert!(subscription.wait(Some(Instant::now() + SOON)).unwrap());

    // Closing wakes and ends.
    let (woken, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| woken.send(subscription.wait(None)).unwrap());
        gate.close().unwrap();
        assert!(wait.recv_timeout(SOON).unwrap().unwrap());
    });
    assert!(gate.inner.changes().err().unwrap().is_closed());
    eventually("the thread ends when the gate is closed", || pollers() == 0);

    // A gate that is dropped has no thread left.
    let gate = Gate::ephemeral().unwrap();
    let subscription = gate.inner.changes().unwrap();
    eventually("one thread looks for changes", || pollers() == 1);
    drop(gate);
    assert_eq!(pollers(), 0);
    assert!(subscription.wait(None).unwrap());
}

#[test]
fn a_waiter_is_woken_by_its_own_plan_alone() {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = Gate::ephemeral().unwrap();
    let agent = gate.agent("agent").unwrap();
    let mine = agent.create(NewPlan::new("tool", &1, Approval::required())).unwrap();
    let other = agent.create(NewPlan::new("tool", &2, Approval::required())).unwrap();
    let store = &gate.inner.store;
    let waits = store.subscribe(Some(mine.plan_token.as_str()), None, None).unwrap();
    let all = store.subscribe(None, None, None).unwrap();
    let reviewer = gate.reviewer("ada").unwrap();
    reviewer.approve(&other.plan_token, &other.seal).unwrap();
    assert!(all.wait(Some(Instant::now() + SOON)).unwrap());
    // The same look that woke the one has passed the other by.
    assert!(!waits.wait(Some(Instant::now())).unwrap());
    reviewer.approve(&mine.plan_token, &mine.seal).unwrap();
    assert!(waits.wait(Some(Instant::now() + SOON)).unwrap());
}

#[test]
fn a_row_that_is_gone_wakes_everybody() {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = Gate::ephemeral().unwrap();
    let conn = gate.inner.store.pools.dedicated(super::BUSY).unwrap();
    let version = super::data_version(&conn).unwrap();
    let seen = super::Seen { version: version - 1, seq: 7_000 };
    let shared = std::sync::Arc::clone(&gate.inner.store.watch.shared);
    let mut poller = super::Poller { shared, conn: Some(conn), seen };
    assert!(matches!(poller.news().unwrap(), super::News::Everything));
    // And from then on it looks at what really comes.
    assert!(matches!(poller.news().unwrap(), super::News::None));
    gate.agent("agent").unwrap().create(NewPlan::new("tool", &1, Approval::NotNeeded)).unwrap();
    assert!(matches!(poller.news().unwrap(), super::News::Plans(plans) if plans.len() == 1));
}

#[test]
fn a_poller_that_cannot_go_on_tells_its_waiters() {
    let _one = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let gate = Gate::ephemeral().unwrap();
    let subscription = gate.inner.changes().unwrap();
    let shared = std::sync::Arc::clone(&gate.inner.store.watch.shared);
    let slots = super::lock(&shared.state).waiting.values().cloned().collect();
    super::wake(slots, &super::Happened::Failed("the disk is gone".to_owned()));
    let error = subscription.wait(None).unwrap_err();
    assert!(error.is_storage() && error.to_string().contains("the disk is gone"), "{error}");
}
