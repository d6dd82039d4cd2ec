//! Each async verb answers as its synchronous twin.

use std::time::Duration;

use countersign::{
    Approval, AuditQuery, Awaited, ExecuteError, Failure, Gate, NewPlan, Outcome, Redeem, RejectedPayloads, State,
};

use super::{Locked, SOON, common, create, threads};

#[tokio::test]
async fn a_plan_goes_through_its_life_by_async_verbs() {
    let path = common::directory().join("gate.db");
    let gate = Gate::builder(&path).rejected_payloads(RejectedPayloads::Gate).open_async().await.unwrap();
    let (agent, ada) = (gate.agent("agent").unwrap(), gate.reviewer("ada").unwrap());
    let operator = gate.operator("olga").unwrap();

    let created = agent.create_async(NewPlan::new("tool", &1, Approval::required())).await.unwrap();
    let refused = agent.begin_execute_async(Redeem::new(&created.plan_token, "tool").payload(&1)).await.unwrap_err();
    assert_eq!(refused.code(), "AWAITING_APPROVAL");
    assert_eq!(ada.pending_async(10).await.unwrap().total, 1);
    assert_eq!(ada.card_async(&created.plan_token).await.unwrap().others_waiting, 0);
    let decision = ada.approve_async(&created.plan_token, &created.seal).await.unwrap();
    assert_eq!(decision.state, State::Approved);
    let awaited = agent.wait_for_decision_async(&created.plan_token, SOON).await.unwrap();
    assert_eq!(awaited, Awaited::Approved);

    let redeem = Redeem::new(&created.plan_token, "tool").payload(&1);
    let executed = agent
        .execute_async(redeem, |claim| async move {
            claim.check_async().await?;
            claim.record_host_event_async("step", "half way").await?;
            Ok(claim.payload_as::<i64>()? + 41)
        })
        .await
        .unwrap();
    assert_eq!(executed, 42);
    let plan = agent.plan_async(&created.plan_token).await.unwrap();
    assert_eq!((plan.state, plan.result.unwrap().as_str()), (State::Executed, "42"));
    let events: Vec<_> = operator.history_async(&created.plan_token).await.unwrap();
    let events: Vec<_> = events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(events, ["awaiting_approval", "refused", "approved", "executing", "host:step", "executed"]);

    let rejected = agent.create_async(NewPlan::new("tool", &2, Approval::required())).await.unwrap();
    let wrong = ada.reject_sealed_async(&rejected.plan_token, &created.seal, None).await.unwrap_err();
    assert_eq!(wrong.code(), "APPROVAL_MISMATCH");
    ada.reject_async(&rejected.plan_token, Some("no")).await.unwrap();
    let awaited = agent.wait_for_decision_async(&rejected.plan_token, SOON).await.unwrap();
    assert_eq!(awaited, Awaited::Rejected { reason: Some("no".to_owned()) });
    assert!(!ada.lift_rejection_async("tool", rejected.fingerprint.to_string(), "asked for").await.unwrap());
    assert_eq!(ada.plan_async(&rejected.plan_token).await.unwrap().state, State::Rejected);

    let consumed = create(&gate, 3, Approval::NotNeeded);
    let plan = agent.consume_async(Redeem::new(&consumed.plan_token, "tool").payload(&3)).await.unwrap();
    assert_eq!(plan.state, State::Executed);

    let adopted = create(&gate, 4, Approval::NotNeeded);
    let claim = agent.begin_execute_async(Redeem::stored(&adopted.plan_token, "tool")).await.unwrap();
    let mut again = agent.adopt_async(&adopted.plan_token, claim.attempt(), claim.claim_token()).await.unwrap();
    drop(claim);
    assert_eq!(again.mark_uncertain_async("who knows").await.unwrap().state, State::Uncertain);
    drop(again);
    assert_eq!(operator.executing_async(10).await.unwrap().total, 1);
    assert_eq!(operator.reconcile_async(&adopted.plan_token).await.unwrap_err().code(), "NO_RECONCILE");
    let marked = operator.mark_interrupted_as_uncertain_async(&adopted.plan_token, 1).await.unwrap();
    assert!(marked.already);
    let settled = operator.settle_async(&adopted.plan_token, &Outcome::done(&"seen")).await.unwrap();
    assert_eq!(settled.state, State::Executed);
    assert_eq!(operator.plan_async(&adopted.plan_token).await.unwrap().state, State::Executed);

    agent.record_host_event_async(Some(created.plan_token.as_str()), "note", "agent").await.unwrap();
    operator.record_host_event_async(None, "note", "operator").await.unwrap();
    assert_eq!(operator.sweep_async().await.unwrap(), 0);
    assert!(operator.accept_restore_async().await.unwrap().already);
    assert_eq!(operator.health_async().await.unwrap().executing, 0);
    assert!(operator.recover_async().await.unwrap().settled.is_empty());
    let head = operator.audit_head_async().await.unwrap();
    let notes = operator.audit_query_async(AuditQuery::new().event("host:note")).await.unwrap();
    assert_eq!(notes.len(), 2);
    assert!(operator.audit_verify_async(Some(head)).await.unwrap().is_intact());
    assert_eq!(operator.purge_async(Duration::from_secs(3_600)).await.unwrap(), 0);

    gate.close_async().await.unwrap();
    assert!(agent.plan_async(&created.plan_token).await.unwrap_err().is_closed());
}

#[tokio::test]
async fn an_effect_that_fails_says_what_became_of_the_plan() {
    let gate = common::ephemeral(|builder| builder);
    let agent = gate.agent("agent").unwrap();
    let created = create(&gate, 1, Approval::NotNeeded);
    let redeem = || Redeem::stored(&created.plan_token, "tool");

    let error = agent
        .execute_async(redeem(), |_| async { Err::<(), _>(Failure::not_applied("the shop is closed")) })
        .await
        .unwrap_err();
    assert!(matches!(error, ExecuteError::NotApplied { unrecorded: None, .. }), "{error:?}");
    assert_eq!(agent.plan(&created.plan_token).unwrap().state, State::Previewed);

    let error = agent.execute_async(redeem(), |_| async { Ok("x".parse::<i64>()?) }).await.unwrap_err();
    assert!(matches!(error, ExecuteError::Uncertain { unrecorded: None, .. }), "{error:?}");
    assert_eq!(agent.plan(&created.plan_token).unwrap().state, State::Uncertain);

    let error = agent.execute_async(redeem(), |_| async { Ok(()) }).await.unwrap_err();
    assert_eq!(error.code(), "ALREADY_EXECUTING");
    let error = agent.execute_async(Redeem::new(&created.plan_token, "tool"), |_| async { Ok(()) }).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_INPUT");
}

#[tokio::test]
async fn a_confirm_that_cannot_be_written_gives_value_and_claim_back() {
    let path = common::directory().join("gate.db");
    let gate = Gate::builder(&path).busy_deadline(Duration::from_secs(1)).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let created = create(&gate, 1, Approval::NotNeeded);
    let redeem = Redeem::stored(&created.plan_token, "tool");
    let kept = std::sync::Mutex::new(None);
    let error = agent
        .execute_async(redeem, |claim| {
            let kept = &kept;
            let path = &path;
            async move {
                *kept.lock().unwrap() = Some((Locked::take(path), claim));
                Ok("done")
            }
        })
        .await
        .unwrap_err();
    let ExecuteError::NotRecorded { value: "done", mut claim, source } = error else { panic!("{error:?}") };
    assert!(source.is_busy());
    // The effect kept the claim and the lock: the one that comes back is as good.
    let (locked, kept) = kept.into_inner().unwrap().unwrap();
    locked.release();
    drop(kept);
    let recorded = loop {
        match claim.confirm_executed_async("done").await {
            Err(error) if error.is_busy() => {}
            recorded => break recorded.unwrap(),
        }
    };
    assert_eq!(recorded.state, State::Executed);
}

#[tokio::test]
async fn a_panic_in_an_effect_goes_on_and_leaves_the_plan_uncertain() {
    let gate = common::ephemeral(|builder| builder);
    for in_the_future in [true, false] {
        let created = create(&gate, 1, Approval::NotNeeded);
        let agent = gate.agent("agent").unwrap();
        let token = created.plan_token.clone();
        let task = tokio::spawn(async move {
            agent
                .execute_async(Redeem::stored(&created.plan_token, "tool"), |_| {
                    assert!(in_the_future, "boom");
                    async move {
                        tokio::task::yield_now().await;
                        assert!(!in_the_future, "boom");
                        Ok(())
                    }
                })
                .await
        });
        assert!(task.await.unwrap_err().is_panic());
        let plan = gate.agent("agent").unwrap().plan(token).unwrap();
        assert_eq!(plan.state, State::Uncertain);
    }
}

#[tokio::test]
async fn a_write_that_waits_for_a_lock_does_not_block_the_runtime() {
    // One thread runs everything: if a verb blocked it, nobody would release the lock, and the verb would be busy.
    let gate = common::ephemeral(|builder| builder.busy_deadline(SOON));
    let locked = Locked::take(gate.path());
    let agent = gate.agent("agent").unwrap();
    let waiting = tokio::spawn(agent.create_async(NewPlan::new("tool", &1, Approval::NotNeeded)));
    let releasing = tokio::spawn(async move {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        // Reads go on beside the writes that wait.
        assert_eq!(agent.plan_async("0".repeat(48)).await.unwrap_err().code(), "UNKNOWN_TOKEN");
        locked.release();
    });
    releasing.await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().state, State::Previewed);
}

#[test]
fn the_blocking_threads_of_a_gate_are_bounded() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("bounded-host")
        .enable_all()
        .build()
        .unwrap();
    let gate = common::ephemeral(|builder| builder.busy_deadline(SOON).max_pending(1_000));
    let locked = Locked::take(gate.path());
    let agent = gate.agent("agent").unwrap();
    let operator = gate.operator("olga").unwrap();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for payload in 0..300 {
            let creating = agent.create_async(NewPlan::new("tool", &payload, Approval::NotNeeded));
            tasks.spawn(async move { creating.await.map(drop) });
        }
        for _ in 0..20 {
            let operator = operator.clone();
            tasks.spawn(async move { operator.sweep_async().await.map(drop) });
        }
        for _ in 0..50 {
            operator.health_async().await.unwrap();
        }
        // 320 calls wait. At work are 4 readers, 2 writers and 4 that take long; a place is given back a moment before its
        // thread is, so on a busy machine a few more threads stand there.
        let threads = threads("bounded-host");
        assert!((2..=80).contains(&threads), "{threads} threads");
        locked.release();
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap();
        }
        assert_eq!(operator.health_async().await.unwrap().previewed, 300);
    });
}

#[test]
fn outside_of_a_runtime_a_verb_answers_and_does_not_panic() {
    let gate = common::ephemeral(|builder| builder);
    let agent = gate.agent("agent").unwrap();
    let mut future = Box::pin(agent.create_async(NewPlan::new("tool", &1, Approval::NotNeeded)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = future.as_mut().poll(&mut context) else { panic!("it went on") };
    assert!(error.is_invalid_input());
    let error = Gate::builder(gate.path()).reconcile_async(|_| async { Ok(Outcome::Unknown) }).open().unwrap_err();
    assert!(error.is_invalid_input(), "{error}");
}

#[tokio::test]
async fn a_verb_that_waits_longer_than_the_deadline_for_its_place_is_busy() {
    let gate = common::ephemeral(|builder| builder.busy_deadline(Duration::from_millis(500)));
    let locked = Locked::take(gate.path());
    let agent = gate.agent("agent").unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let started = std::time::Instant::now();
    for payload in 0..200 {
        tasks.spawn(agent.create_async(NewPlan::new("tool", &payload, Approval::NotNeeded)));
    }
    while let Some(done) = tasks.join_next().await {
        let error = done.unwrap().unwrap_err();
        assert!(error.is_busy() && error.waited().unwrap() >= Duration::from_millis(500), "{error}");
    }
    // One after the other would be 50 s.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    locked.release();
}

#[test]
fn the_futures_can_be_spawned() {
    fn spawnable<T: Send + 'static>(_: &T) {}
    fn send<T: Send>(_: &T) {}
    let gate = common::ephemeral(|builder| builder);
    let agent = gate.agent("agent").unwrap();
    let payload = vec![1];
    spawnable(&agent.create_async(NewPlan::new("tool", &payload, Approval::NotNeeded)));
    spawnable(&agent.begin_execute_async(Redeem::stored("x", "tool").payload(&payload)));
    spawnable(&agent.consume_async(Redeem::stored("x", "tool").payload(&payload)));
    spawnable(&agent.execute_async(Redeem::stored("x", "tool").payload(&payload), |claim| async move {
        claim.check_async().await?;
        Ok(1)
    }));
    send(&agent.wait_for_decision_async("x", SOON));
    send(&gate.operator("olga").unwrap().recover_async());
    send(&gate.reviewer("ada").unwrap().approve_async("x", "y"));
}
