//! A gate between an AI agent and the writes that it wants to make.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod agent;
mod audit;
mod builder;
mod canonical;
mod claim;
mod clock;
mod create;
mod doctor;
mod error;
pub mod escape;
mod execute;
mod failpoint;
mod gate;
mod gates;
mod instance;
pub mod lifecycle;
mod liveness;
mod names;
mod operator;
mod plan;
mod recovery;
mod refusal;
mod report;
mod reviewer;
mod seal;
mod store;
mod upkeep;

pub use agent::Agent;
pub use audit::{AuditEvent, AuditQuery, AuditSink, Head};
pub use builder::{GateBuilder, RejectedPayloads};
pub use canonical::{CanonicalJson, Fingerprint, canonical_json, canonical_json_from_text, fingerprint};
pub use claim::Claim;
pub use clock::{Clock, SystemClock, TestClock};
pub use doctor::{Check, Doctor, DoctorReport, Level};
pub use error::{Error, Refusal, RefusalCode, RefusedPlan, Result};
pub use execute::{BoxError, ExecuteError, Failure, Unrecorded};
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub use failpoint::test_hooks;
pub use gate::Gate;
pub use lifecycle::State;
pub use liveness::Liveness;
pub use names::{Channel, PlanToken};
pub use operator::{Audit, Difference, Health, Operator, StuckPlan, VerifyReport};
pub use plan::{
    Approval, ApprovalGiven, Created, Decision, EarlierRejection, Listing, NewPlan, PendingPlan, Plan, Redeem, Settled,
};
pub use recovery::{Outcome, RecoveryReport, RestoreReport};
pub use reviewer::Reviewer;
pub use seal::{Seal, SealFields};
pub use upkeep::{BackupReport, CodeCount, DecisionTime, StateCount, Stats};
