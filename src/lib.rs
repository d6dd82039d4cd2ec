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

pub use canonical::{CanonicalJson, Fingerprint, canonical_json, canonical_json_from_text, fingerprint};
pub use error::Error;
