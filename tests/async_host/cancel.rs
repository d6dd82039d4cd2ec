//! A future that is dropped never leaves half of a transition, and a claim that nobody received is found again.

use std::task::{Context, Waker};

use countersign::{Approval, ChannelSink, Gate, NewPlan, Outcome, Redeem, State};

use super::{Locked, SOON, common, create, eventually};

fn polled_once(future: &mut std::pin::Pin<Box<impl Future>>) {
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test]
async fn a_create_whose_future_is_dropped_happens_whole_or_not_at_all() {
    let (sink, mut events) = ChannelSink::new(100);
    let gate = common::ephemeral(|builder| builder.audit_sink(sink).busy_deadline(SOON));
    assert_eq!(events.recv().await.unwrap().event, "store_created");
    let agent = gate.agent("agent").unwrap();

    // Never polled: nothing happens.
    drop(agent.create_async(NewPlan::new("tool", &1, Approval::NotNeeded)));

    // Under way, waiting for the lock, and dropped: it happens, whole.
    let locked = Locked::take(gate.path());
    let mut creating = Box::pin(agent.create_async(NewPlan::new("tool", &2, Approval::NotNeeded)));
    polled_once(&mut creating);
    drop(creating);
    locked.release();
    let event = events.recv().await.unwrap();
    assert_eq!((event.event.as_str(), event.seq), ("previewed", 2));
    let plan = agent.plan_async(event.plan_token.unwrap()).await.unwrap();
    assert_eq!(plan.payload.as_str(), "2");
    assert!(gate.operator("olga").unwrap().audit().verify(None).unwrap().is_intact());
}

#[tokio::test]
async fn a_claim_that_nobody_received_is_settled_by_the_instances_own_scan() {
    let (sink, mut events) = ChannelSink::new(100);
    let gate =
        common::ephemeral(|builder| builder.audit_sink(sink).busy_deadline(SOON).reconcile(|_| Ok(Outcome::NotDone)));
    let agent = gate.agent("agent").unwrap();
    let created = create(&gate, 1, Approval::NotNeeded);
    let locked = Locked::take(gate.path());
    let mut beginning = Box::pin(agent.begin_execute_async(Redeem::stored(&created.plan_token, "tool")));
    polled_once(&mut beginning);
    drop(beginning);
    locked.release();
    while events.recv().await.unwrap().event != "executing" {}
    let operator = gate.operator("olga").unwrap();
    // The blocking part drops the claim after its commit, and nothing announces that.
    eventually("the dropped claim counts as nobody's", || {
        let report = operator.recover().unwrap();
        assert!(report.uncertain.is_empty() && report.errors.is_empty(), "{report:?}");
        report.settled == [(created.plan_token.clone(), State::Previewed)]
    })
    .await;
    assert_eq!(agent.plan(&created.plan_token).unwrap().attempt, 1);
}

#[tokio::test]
async fn a_cancelled_effect_leaves_its_plan_executing_and_recover_settles_it() {
    let gate = common::ephemeral(|builder| builder.reconcile(|_| Ok(Outcome::done(&"in the ledger"))));
    let agent = gate.agent("agent").unwrap();
    let created = create(&gate, 1, Approval::NotNeeded);
    let (began, begun) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(agent.execute_async(Redeem::stored(&created.plan_token, "tool"), |_claim| async move {
        began.send(()).unwrap();
        std::future::pending::<()>().await;
        Ok(())
    }));
    begun.await.unwrap();
    let operator = gate.operator("olga").unwrap();
    assert_eq!(operator.recover_async().await.unwrap().alive, std::slice::from_ref(&created.plan_token));
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(agent.plan(&created.plan_token).unwrap().state, State::Executing);
    let report = operator.recover_async().await.unwrap();
    assert_eq!(report.settled, [(created.plan_token, State::Executed)]);
}

#[tokio::test]
async fn an_effect_that_keeps_its_claim_is_at_work_until_it_lets_go() {
    let gate = common::ephemeral(|builder| builder.reconcile(|_| Ok(Outcome::NotDone)));
    let agent = gate.agent("agent").unwrap();
    let created = create(&gate, 1, Approval::NotNeeded);
    let (give, given) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(agent.execute_async(Redeem::stored(&created.plan_token, "tool"), |claim| async move {
        give.send(claim).unwrap();
        std::future::pending::<()>().await;
        Ok(())
    }));
    let kept = given.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let operator = gate.operator("olga").unwrap();
    assert_eq!(operator.recover_async().await.unwrap().alive, std::slice::from_ref(&created.plan_token));
    drop(kept);
    assert_eq!(operator.recover_async().await.unwrap().settled.len(), 1);
}

#[tokio::test]
async fn a_report_whose_future_is_dropped_is_written_and_no_scan_comes_between() {
    let (sink, mut events) = ChannelSink::new(100);
    let gate =
        common::ephemeral(|builder| builder.audit_sink(sink).busy_deadline(SOON).reconcile(|_| Ok(Outcome::NotDone)));
    let agent = gate.agent("agent").unwrap();
    let created = create(&gate, 1, Approval::NotNeeded);
    let mut claim = agent.begin_execute_async(Redeem::stored(&created.plan_token, "tool")).await.unwrap();
    let locked = Locked::take(gate.path());
    let mut confirming = Box::pin(claim.confirm_executed_async(&"done"));
    polled_once(&mut confirming);
    drop(confirming);
    drop(claim);
    // The scan reads beside the lock: the report that is under way still holds the claim.
    let report = gate.operator("olga").unwrap().recover_async().await.unwrap();
    assert_eq!(report.alive, std::slice::from_ref(&created.plan_token));
    locked.release();
    while events.recv().await.unwrap().event != "executed" {}
    assert_eq!(agent.plan(&created.plan_token).unwrap().state, State::Executed);
}

#[test]
fn a_runtime_that_shuts_down_lets_the_blocking_part_end() {
    let gate = Gate::ephemeral().unwrap();
    let agent = gate.agent("agent").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let locked = Locked::take(gate.path());
    let handle = runtime.handle().clone();
    {
        let _in = handle.enter();
        let mut creating = Box::pin(agent.create_async(NewPlan::new("tool", &1, Approval::NotNeeded)));
        polled_once(&mut creating);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| locked.release());
        // Waits for what has begun; what has not begun never happens.
        drop(runtime);
    });
    let rows = gate.operator("olga").unwrap().audit().head().unwrap().seq;
    assert!((1..=2).contains(&rows), "{rows}");
    assert!(gate.operator("olga").unwrap().audit().verify(None).unwrap().is_intact());
    let _in = handle.enter();
    let mut late = Box::pin(agent.create_async(NewPlan::new("tool", &2, Approval::NotNeeded)));
    let mut context = Context::from_waker(Waker::noop());
    let std::task::Poll::Ready(Err(error)) = late.as_mut().poll(&mut context) else { panic!("it went on") };
    assert!(error.is_closed());
}
