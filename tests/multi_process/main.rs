//! Several processes on one file: each plan runs once, everybody gets a turn, and nobody touches a live host's work.

#[path = "../common/mod.rs"]
mod common;
mod housekeeping;
mod liveness;
mod opening;
mod race;
mod recoverers;

/// What a child process of these tests plays; nothing in the test run itself.
#[test]
fn role() {
    common::child::play(&[
        ("host", common::host::role),
        ("racer", race::racer),
        ("creator", race::creator),
        ("saturator", race::saturator),
        ("opener", opening::opener),
        ("confirmer", housekeeping::confirmer),
    ]);
}
