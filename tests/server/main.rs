//! The approval server over real sockets: each attack, and its answer.
#![allow(clippy::disallowed_methods, reason = "files of the tests, never a database")]

mod bodies;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod decisions;
mod golden;
mod guard;
mod hooks;
mod links;
mod mounted;
mod secrets;
mod stream;
mod tokens;
mod wire;

use common::child;

#[test]
fn role() {
    child::play(&[("serve", links::serve), ("propose", stream::propose)]);
}
