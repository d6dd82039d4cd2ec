//! A gate on a fresh file under a test clock, and short ways to ask it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::cell::Cell;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign::{
    Agent, Approval, AuditEvent, AuditQuery, Claim, Created, Error, Gate, GateBuilder, NewPlan, Operator, Outcome,
    Redeem, Reviewer, State, TestClock,
};
use serde_json::{Value, json};

/// When every test begins.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) clock: Arc<TestClock>,
    seen: Cell<i64>,
    /// Goes last: the gate stands in it.
    _directory: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(set: impl FnOnce(GateBuilder) -> GateBuilder) -> Self {
        let clock = Arc::new(TestClock::at_ms(START_MS));
        let directory = tempfile::Builder::new().prefix("countersign-test-").tempdir().unwrap();
        let gate = set(Gate::builder(directory.path().join("gate.db")).clock(clock.clone())).open().unwrap();
        let world = Self { gate, clock, seen: Cell::new(0), _directory: directory };
        world.rows();
        world
    }

    /// A second gate on the same file: another instance.
    pub(crate) fn second_gate(&self) -> Gate {
        Gate::builder(self.gate.path()).clock(self.clock.clone()).open().unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.gate.path().to_owned()
    }

    /// A plain connection to the file, as a stranger with write access has it.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.gate.path()).unwrap()
    }

    pub(crate) fn agent(&self) -> Agent {
        self.gate.agent("agent-0").unwrap()
    }

    pub(crate) fn caller(&self, name: &str) -> Agent {
        self.gate.agent(name).unwrap()
    }

    pub(crate) fn reviewer(&self, name: &str) -> Reviewer {
        self.gate.reviewer(name).unwrap()
    }

    pub(crate) fn ada(&self) -> Reviewer {
        self.reviewer("ada")
    }

    pub(crate) fn operator(&self) -> Operator {
        self.gate.operator("olga").unwrap()
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// A plan that needs no approval.
    pub(crate) fn free(&self, payload: &Value) -> Created {
        self.agent().create(NewPlan::new("write", payload, Approval::NotNeeded)).unwrap()
    }

    /// A plan that one reviewer has to approve.
    pub(crate) fn gated(&self, payload: &Value) -> Created {
        self.agent().create(NewPlan::new("write", payload, Approval::required())).unwrap()
    }

    pub(crate) fn quorum(&self, payload: &Value, quorum: u32) -> Created {
        self.agent().create(NewPlan::new("write", payload, Approval::Required { quorum })).unwrap()
    }

    pub(crate) fn approved(&self, payload: &Value) -> Created {
        let created = self.gated(payload);
        self.ada().approve(&created.plan_token, &created.seal).unwrap();
        created
    }

    pub(crate) fn claim(&self, created: &Created) -> Claim {
        self.agent().begin_execute(stored(created)).unwrap()
    }

    /// A plan that ended in this state, and the claim that it had, if any.
    pub(crate) fn ended(&self, state: State, payload: &Value) -> Created {
        let created = self.free(payload);
        match state {
            State::Executed => drop(self.claim(&created).confirm_executed(&1).unwrap()),
            State::Failed => {
                drop(self.claim(&created));
                self.operator().settle(&created.plan_token, &Outcome::Failed("no".to_owned())).unwrap();
            }
            State::Rejected => drop(self.ada().reject(&created.plan_token, Some("not now")).unwrap()),
            State::Expired => {
                self.advance(15 * 60 * 1000 + 1);
                self.operator().sweep().unwrap();
            }
            other => panic!("{other} is not terminal"),
        }
        assert_eq!(self.state(&created), state);
        created
    }

    pub(crate) fn state(&self, created: &Created) -> State {
        self.operator().plan(&created.plan_token).unwrap().state
    }

    /// The audit rows since the last call.
    pub(crate) fn rows(&self) -> Vec<AuditEvent> {
        let query = AuditQuery::new().after(self.seen.get());
        let rows = self.operator().audit().query(&query).unwrap();
        if let Some(last) = rows.last() {
            self.seen.set(last.seq);
        }
        rows
    }

    /// The audit rows since the last call, as `event` or `event CODE`.
    pub(crate) fn events(&self) -> Vec<String> {
        self.rows()
            .into_iter()
            .map(|row| row.code.map_or(row.event.clone(), |code| format!("{} {code}", row.event)))
            .collect()
    }

    pub(crate) fn assert_events(&self, expected: &[&str]) {
        assert_eq!(self.events(), expected);
    }

    /// The chain, its replay and the plans agree.
    pub(crate) fn assert_intact(&self) {
        let head = self.operator().audit().head().unwrap();
        let report = self.operator().audit().verify(Some(&head)).unwrap();
        assert_eq!(report.difference, None);
        assert!(report.tail_checked);
    }
}

/// Redeems what was planned.
pub(crate) fn stored(created: &Created) -> Redeem<'static> {
    Redeem::stored(&created.plan_token, "write")
}

/// The code of a refusal or error.
pub(crate) fn code<T: Debug>(answer: Result<T, Error>) -> &'static str {
    answer.unwrap_err().code()
}

pub(crate) fn payload(n: u64) -> Value {
    json!({"id": n, "price": 9.99})
}

/// A token of the right shape that no store ever issued.
pub(crate) fn never_issued() -> String {
    "0123456789ab".repeat(4)
}
