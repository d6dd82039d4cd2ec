//! Audit sinks: after the commit, in order, isolated.

use std::sync::{Arc, Mutex, OnceLock, mpsc};

use countersign::{Agent, Approval, AuditEvent, AuditSink, ChannelSink, NewPlan, Redeem, State};

use super::{SOON, common, create};

struct Sending<F>(Mutex<mpsc::Sender<AuditEvent>>, F);

impl<F: Fn(&AuditEvent) + Send + Sync + 'static> AuditSink for Sending<F> {
    fn on_event(&self, event: &AuditEvent) {
        self.0.lock().unwrap().send(event.clone()).unwrap();
        (self.1)(event);
    }
}

fn sending<F: Fn(&AuditEvent) + Send + Sync + 'static>(then: F) -> (Arc<Sending<F>>, mpsc::Receiver<AuditEvent>) {
    let (send, receive) = mpsc::channel();
    (Arc::new(Sending(Mutex::new(send), then)), receive)
}

#[test]
fn a_sink_sees_every_event_after_its_commit_in_the_order_of_the_commits() {
    let (sink, events) = sending(|_| {});
    let gate = common::ephemeral(|builder| builder.audit_sink(sink));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let gate = &gate;
            scope.spawn(move || {
                for i in 0..25 {
                    let created = create(gate, thread * 100 + i, Approval::NotNeeded);
                    let redeem = Redeem::stored(&created.plan_token, "tool");
                    gate.agent("agent").unwrap().execute(redeem, |_| Ok(())).unwrap();
                    let _ = gate.reviewer("ada").unwrap().reject(&created.plan_token, None).unwrap_err();
                }
            });
        }
    });
    let rows = gate.operator("olga").unwrap().audit().query(&countersign::AuditQuery::new()).unwrap();
    assert_eq!(rows.len(), 1 + 4 * 25 * 4);
    let seen: Vec<_> = rows.iter().map(|_| events.recv_timeout(SOON).unwrap()).collect();
    assert_eq!(seen, rows);
    assert!(events.try_recv().is_err());
}

#[test]
fn a_sink_that_panics_changes_no_answer_and_gets_the_next_event() {
    let (sink, events) = sending(|_| panic!("the observer is wrong"));
    let gate = common::ephemeral(|builder| builder.audit_sink(sink));
    let created = create(&gate, 1, Approval::NotNeeded);
    let agent = gate.agent("agent").unwrap();
    agent.execute(Redeem::stored(&created.plan_token, "tool"), |_| Ok(())).unwrap();
    assert_eq!(agent.plan(&created.plan_token).unwrap().state, State::Executed);
    let seen: Vec<_> = events.try_iter().map(|event| event.event).collect();
    assert_eq!(seen, ["store_created", "previewed", "executing", "executed"]);
}

#[test]
fn a_sink_may_use_the_gate() {
    let agent: Arc<OnceLock<Agent>> = Arc::default();
    let inside = agent.clone();
    let (sink, events) = sending(move |event| {
        if let (Some(agent), Some(token), "previewed") = (inside.get(), &event.plan_token, event.event.as_str()) {
            // Committed: it can be read, and written about.
            assert_eq!(agent.plan(token).unwrap().state, State::Previewed);
            agent.record_host_event(Some(token), "seen", "by the sink").unwrap();
        }
    });
    let gate = common::ephemeral(|builder| builder.audit_sink(sink));
    assert!(agent.set(gate.agent("agent").unwrap()).is_ok());
    create(&gate, 1, Approval::NotNeeded);
    let seen: Vec<_> = events.try_iter().map(|event| event.event).collect();
    assert_eq!(seen, ["store_created", "previewed", "host:seen"]);
}

#[tokio::test]
async fn a_channel_sink_counts_what_it_drops_and_never_waits() {
    let (sink, mut events) = ChannelSink::new(3);
    let gate = common::ephemeral(|builder| builder.audit_sink(sink.clone()));
    for payload in 0..5 {
        create(&gate, payload, Approval::NotNeeded);
    }
    assert_eq!((sink.dropped(), events.dropped()), (3, 3));
    let seqs: Vec<_> = std::iter::from_fn(|| events.try_recv()).map(|event| event.seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
    // The host reads what it missed from the table.
    let missed =
        gate.operator("olga").unwrap().audit_query_async(countersign::AuditQuery::new().after(3)).await.unwrap();
    assert_eq!(missed.len(), 3);

    let agent = gate.agent("agent").unwrap();
    let receiving = tokio::spawn(async move {
        let seq = events.recv().await.unwrap().seq;
        (seq, events.recv().await.is_none())
    });
    agent.create_async(NewPlan::new("tool", &7, Approval::NotNeeded)).await.unwrap();
    drop((agent, gate, sink));
    assert_eq!(receiving.await.unwrap(), (7, true));
}

#[test]
fn a_channel_that_nobody_receives_from_drops_all() {
    let (sink, events) = ChannelSink::new(0);
    drop(events);
    let gate = common::ephemeral(|builder| builder.audit_sink(sink.clone()));
    create(&gate, 1, Approval::NotNeeded);
    assert_eq!(sink.dropped(), 2);
}
