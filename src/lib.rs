//! countersign
mod agent;
mod audit;
mod builder;
mod canonical;
mod claim;
mod clock;
mod error;
pub mod escape;
mod gate;
mod gates;
pub mod lifecycle;
mod names;
mod operator;
mod plan;
mod refusal;
mod reviewer;
mod seal;
mod store;
