//! The binary `countersign`, as people run it: beside a living host, at a terminal and in a pipe.
#![allow(clippy::disallowed_methods, reason = "these files are no database that this process has open")]

mod audit;
mod decisions;
mod errors;
mod help;
mod host;
mod inspection;
mod names;
mod progress;
mod recovery;
mod run;
mod serving;
mod tampering;
