//! Recovery with an async hook.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign::{Approval, Gate, Outcome, Redeem, State};

use super::{SOON, common, create, eventually};

/// A plan that this instance claimed and dropped.
fn stuck(gate: &Gate, payload: i64) -> countersign::PlanToken {
    let created = create(gate, payload, Approval::NotNeeded);
    drop(gate.agent("agent").unwrap().begin_execute(Redeem::stored(&created.plan_token, "tool")).unwrap());
    created.plan_token
}

#[tokio::test]
async fn an_async_hook_settles_by_scan_and_by_reconcile() {
    let path = common::directory().join("gate.db");
    let gate = Gate::builder(&path)
        .reconcile_async(|plan| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(match plan.payload.as_str() {
                "1" => Outcome::done(&"found"),
                "2" => Outcome::NotDone,
                "3" => return Err("the ledger is away".into()),
                _ => panic!("the hook is wrong"),
            })
        })
        .open_async()
        .await
        .unwrap();
    let tokens: Vec<_> = (1..=4).map(|payload| stuck(&gate, payload)).collect();
    let operator = gate.operator("olga").unwrap();
    let report = operator.recover_async().await.unwrap();
    assert_eq!(report.settled, [(tokens[0].clone(), State::Executed), (tokens[1].clone(), State::Previewed)]);
    assert_eq!(report.uncertain, tokens[2..]);
    let error = operator.plan_async(&tokens[2]).await.unwrap().error.unwrap();
    assert!(error.contains("the ledger is away"), "{error}");
    let error = operator.plan_async(&tokens[3]).await.unwrap().error.unwrap();
    assert!(error.contains("panicked"), "{error}");
    let again = stuck(&gate, 1);
    assert_eq!(operator.reconcile_async(&again).await.unwrap().state, State::Executed);
}

#[tokio::test]
async fn a_late_async_hook_is_aborted_and_counts_as_unknown() {
    struct Gone(Arc<AtomicUsize>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let gone = Arc::new(AtomicUsize::new(0));
    let counted = gone.clone();
    let path = common::directory().join("gate.db");
    let gate = Gate::builder(&path)
        .reconcile_async(move |_| {
            let gone = Gone(counted.clone());
            async move {
                let _gone = gone;
                std::future::pending().await
            }
        })
        .hook_deadline(Duration::from_millis(50))
        .open_async()
        .await
        .unwrap();
    let token = stuck(&gate, 1);
    let report = gate.operator("olga").unwrap().recover_async().await.unwrap();
    assert_eq!(report.uncertain, [token]);
    eventually("the hook was aborted", || gone.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_scan_whose_future_is_dropped_goes_on_to_its_end() {
    let (asked, was_asked) = std::sync::mpsc::channel();
    let (answer, answers) = std::sync::mpsc::channel();
    let answers = std::sync::Mutex::new(answers);
    let gate = common::ephemeral(|builder| {
        builder.reconcile(move |_| {
            asked.send(()).unwrap();
            answers.lock().unwrap().recv_timeout(SOON).unwrap();
            Ok(Outcome::NotDone)
        })
    });
    let token = stuck(&gate, 1);
    let operator = gate.operator("olga").unwrap();
    let scan = tokio::spawn({
        let operator = operator.clone();
        async move { operator.recover_async().await }
    });
    let was_asked = tokio::task::spawn_blocking(move || was_asked.recv_timeout(SOON));
    was_asked.await.unwrap().unwrap();
    scan.abort();
    assert!(scan.await.unwrap_err().is_cancelled());
    answer.send(()).unwrap();
    eventually("the scan settles the plan", || operator.plan(&token).unwrap().state == State::Previewed).await;
}
