//! The page in a real browser: Debian's chromium, driven through its chromedriver.
#![allow(clippy::disallowed_methods, reason = "files of the tests, never a database")]

#[path = "../common/mod.rs"]
mod common;
mod driver;
mod looks;
mod page;
mod pictures;

use countersign::Gate;
use serde_json::Value;

use common::child;

#[test]
fn role() {
    child::play(&[("propose", propose)]);
}

/// Another process: one plan for each line that it hears, until there are no more.
fn propose(args: &Value) {
    let gate = Gate::open(args["db"].as_str().unwrap()).unwrap();
    let agent = gate.agent("another-process").unwrap();
    child::say("ready");
    loop {
        let line = child::hear();
        if line.is_empty() {
            return;
        }
        let plan = countersign::NewPlan::new("archive", &line, countersign::Approval::required()).reason(line.as_str());
        agent.create(plan).unwrap();
        child::say("proposed");
    }
}
