//! A gate between an AI agent and the writes that it wants to make.
//!
//! An agent prepares a write. A person countersigns exactly that write, out of band. The host then runs it at most once.
//! Plans, decisions and their audit live in one SQLite file that several processes may share.
//!
//! ```
//! use countersign::{Approval, Gate, NewPlan, Redeem};
//!
//! let gate = Gate::ephemeral()?; // in a host: Gate::open("gate.db")
//! let agent = gate.agent("pricing-agent")?;
//! let args = serde_json::json!({"category": "tea", "percent": -10});
//! let plan = agent.create(NewPlan::new("update_prices", &args, Approval::required()).reason("spring sale"))?;
//!
//! let reviewer = gate.reviewer("store-manager")?; // another process, a page, a terminal
//! reviewer.approve(&plan.plan_token, &plan.seal)?;
//!
//! let redeem = Redeem::new(&plan.plan_token, "update_prices").payload(&args);
//! let changed = agent.execute(redeem, |claim| Ok(update_prices(claim.payload())))?; // at most once
//! assert_eq!(changed, 62);
//! # fn update_prices(_: &countersign::CanonicalJson) -> u32 { 62 }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - What is stored is what runs. The payload is kept in canonical JSON; another one, another tool, another caller or
//!   changed data is refused by name, and a row that was edited in the file is found before anything runs.
//! - A reviewer decides on the [`Seal`] of everything that the card shows. No approval fits anything else.
//! - Of all threads and processes that want to run a plan, one gets the [`Claim`]. A claim whose host died is never
//!   handed out again by itself: [`Operator::recover`] asks the host's hook what happened, and what nobody knows is
//!   `uncertain`.
//! - Each transition, its audit row and its tombstone are one durable transaction. If the audit row cannot be written,
//!   it did not happen. The rows form a hash chain that [`Audit::verify`] replays.
//! - A refusal is a normal answer with a stable code, a message and a hint ([`Refusal`]). It is never mixed up with a
//!   failure of the store ([`Error`] tells which).
//!
//! # What it does not promise
//!
//! - That a name is a person: a name is whoever holds the handle. The three handles, [`Agent`], [`Reviewer`] and
//!   [`Operator`], guard against mistakes. They are no sandbox, and a process that can write the file can do anything:
//!   run the agent as another user.
//! - That the effect itself happens once: put [`Claim::plan_token`] into the effect's own transaction.
//! - That a chain was not rewritten as a whole, or its tail cut, to somebody who kept no [`Head`].
//! - Judgement of content, sums over many small writes, recognition of a reworded payload, encryption, erasure, more
//!   than one machine, workflows.
//!
//! The README has the state diagram, the failure contract, the tables for plain SQL, and the whole list.
//!
//! # Who may touch the file
//!
//! Any program may read it, with any SQLite from 3.40 on, read-only. Only gates write it. A row that something else wrote
//! breaks the chain, and an SQLite before 3.51.3 that writes to it can lose committed data of others. Never copy a file
//! that a gate has open, never open it with [`std::fs::File`] in a process that has a gate on it (closing that
//! descriptor drops SQLite's locks), and open a gate after forking, not before.
//!
//! # Features
//!
//! - `bundled` (default): compiles the SQLite that `rusqlite` ships. Without it the system's library is linked, and its
//!   version is checked when a gate is opened.
//! - `tokio`: async verbs on the same handles (`*_async`), an async reconcile hook, and a sink that is a channel.
//! - `tracing`: spans of the verbs and one event for each audit row; problems go there instead of to standard error.
//! - `approval-server`: [`ApprovalServer`], the page on which people decide, and its JSON API. Brings axum and tokio.
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
#[cfg(feature = "tokio")]
mod on_tokio;
mod operator;
mod plan;
mod recovery;
mod refusal;
mod report;
mod reviewer;
mod seal;
#[cfg(feature = "approval-server")]
mod server;
mod settle;
mod store;
mod upkeep;
mod wait;

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
#[cfg(feature = "tokio")]
pub use on_tokio::{AuditEvents, ChannelSink};
pub use operator::{Audit, Difference, Health, Operator, StuckPlan, VerifyReport};
pub use plan::{
    Approval, ApprovalGiven, Created, Decision, EarlierRejection, Listing, NewPlan, PendingPlan, Plan, Redeem, Settled,
};
pub use recovery::{Outcome, RecoveryReport};
pub use reviewer::Reviewer;
pub use seal::{Seal, SealFields};
#[cfg(feature = "approval-server")]
pub use server::{ApprovalServer, ApprovalServerBuilder, DecisionAction, DecisionAttempt, MountedApprovals, Rendered};
pub use settle::RestoreReport;
pub use upkeep::{BackupReport, CodeCount, DecisionTime, StateCount, Stats};
pub use wait::Awaited;

/// The README's Rust blocks are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
