//! What each verb answers, refuses and records, by subject.

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod claims;
mod decisions;
mod execute;
mod gates;
mod idempotency;
mod life;
mod purge;
mod regate;
mod settle;
mod tamper;
mod tokens;
mod walk;
