//! Each transition as a scene: what is prepared, and the one act at whose points a process dies or panics.
#![allow(clippy::disallowed_methods, reason = "copies of closed databases")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign::{Approval, Claim, Created, Error, ExecuteError, Gate, NewPlan, Outcome, Redeem, TestClock};

use crate::common::{self, ledger::Ledger};

const TOOL: &str = "write_rows";

/// All scenes, and whether the act is one transaction: then a death leaves the state of before or of after.
pub(crate) const SCENES: [(&str, bool); 31] = [
    ("open", true),
    ("create", true),
    ("create_gated", true),
    ("approve_first_of_two", true),
    ("approve", true),
    ("reject_with_twins", true),
    ("register_and_begin", false),
    ("begin", true),
    ("begin_mismatch", true),
    ("begin_expired", true),
    ("execute", false),
    ("consume", true),
    ("confirm_executed", true),
    ("confirm_failed", true),
    ("mark_uncertain", true),
    ("confirm_stale", true),
    ("adopt", true),
    ("settle_done", true),
    ("settle_not_done", true),
    ("settle_failed", true),
    ("settle_unknown", true),
    ("reconcile", false),
    ("mark_interrupted", true),
    ("recover", false),
    ("recover_the_dead", false),
    ("sweep", false),
    ("purge", false),
    ("lift_rejection", true),
    ("host_event", true),
    ("close", true),
    ("accept_restore", true),
];

/// A gate with a plan or two, and whatever the act needs.
struct World {
    gate: Gate,
    clock: Arc<TestClock>,
    ledger: Ledger,
}

impl World {
    fn open(path: &Path) -> Self {
        let clock = Arc::new(TestClock::at_ms(1_700_000_000_000));
        let ledger = Ledger::beside(path);
        let gate = common::builder(path).clock(clock.clone()).reconcile(ledger.hook()).open().unwrap();
        Self { gate, clock, ledger }
    }

    fn create(&self, payload: u32, approval: Approval) -> Created {
        self.gate.agent("agent").unwrap().create(NewPlan::new(TOOL, &payload, approval)).unwrap()
    }

    fn ready(&self) -> Created {
        self.create(1, Approval::NotNeeded)
    }

    fn claimed(&self) -> Claim {
        let token = self.ready().plan_token;
        self.gate.agent("agent").unwrap().begin_execute(Redeem::stored(&token, TOOL)).unwrap()
    }

    /// The instance is registered, so that a claim is one transaction.
    fn registered(self) -> Self {
        let token = self.create(99, Approval::NotNeeded).plan_token;
        let mut claim = self.gate.agent("agent").unwrap().begin_execute(Redeem::stored(&token, TOOL)).unwrap();
        self.ledger.apply(&token, 1);
        claim.confirm_executed(&1).unwrap();
        self
    }
}

pub(crate) type Act = Box<dyn FnOnce() -> Result<(), Error>>;

/// Prepares a scene on a fresh file. The act may be called once; a refusal is among its good ends. The gate is kept, so
/// that its closing is no part of the act.
pub(crate) fn prepare(scene: &str, path: &Path) -> (Option<Gate>, Act) {
    if scene == "open" {
        let path = path.to_owned();
        return (None, Box::new(move || common::builder(path).open().map(drop)));
    }
    if scene == "accept_restore" {
        return restored(path);
    }
    if scene == "recover_the_dead" {
        let world = World::open(path);
        drop(world.claimed());
        let done = world.claimed().plan_token().clone();
        world.ledger.apply(&done, 1);
        world.gate.close().unwrap();
        let world = World::open(path);
        let operator = world.gate.operator("op").unwrap();
        return (Some(world.gate), Box::new(move || operator.recover().map(drop)));
    }
    let world = World::open(path);
    let world = if scene == "register_and_begin" { world } else { world.registered() };
    let agent = world.gate.agent("agent").unwrap();
    let operator = world.gate.operator("op").unwrap();
    let reviewer = world.gate.reviewer("ada").unwrap();
    let gate = world.gate.clone();
    let gated = |quorum| Approval::Required { quorum };
    let act: Act = match scene {
        "create" => Box::new(move || agent.create(NewPlan::new(TOOL, &2, Approval::NotNeeded)).map(drop)),
        "create_gated" => Box::new(move || agent.create(NewPlan::new(TOOL, &2, Approval::required())).map(drop)),
        "approve_first_of_two" | "approve" => {
            let created = world.create(2, gated(if scene == "approve" { 1 } else { 2 }));
            Box::new(move || reviewer.approve(&created.plan_token, &created.seal).map(drop))
        }
        "reject_with_twins" => {
            let rejected = world.create(2, Approval::NotNeeded);
            world.create(2, Approval::NotNeeded);
            let approved = world.create(2, Approval::required());
            reviewer.approve(&approved.plan_token, &approved.seal).unwrap();
            Box::new(move || reviewer.reject(&rejected.plan_token, Some("no")).map(drop))
        }
        "register_and_begin" | "begin" | "begin_mismatch" | "begin_expired" => {
            let token = world.ready().plan_token;
            if scene == "begin_expired" {
                world.clock.advance(Duration::from_secs(3_600));
            }
            let tool = if scene == "begin_mismatch" { "another" } else { TOOL };
            Box::new(move || agent.begin_execute(Redeem::stored(&token, tool)).map(drop))
        }
        "execute" => {
            let (token, ledger) = (world.ready().plan_token, world.ledger.clone());
            Box::new(move || {
                let done = agent.execute(Redeem::stored(&token, TOOL), |claim| {
                    ledger.apply(claim.plan_token(), claim.attempt());
                    Ok(1)
                });
                match done {
                    Ok(_) => Ok(()),
                    Err(ExecuteError::Gate(error)) => Err(error),
                    Err(other) => panic!("{other}"),
                }
            })
        }
        "consume" => {
            let token = world.ready().plan_token;
            Box::new(move || agent.consume(Redeem::stored(&token, TOOL)).map(drop))
        }
        "confirm_executed" | "confirm_failed" | "mark_uncertain" | "confirm_stale" => {
            let mut claim = world.claimed();
            if scene == "confirm_executed" {
                world.ledger.apply(claim.plan_token(), 1);
            }
            if scene == "confirm_stale" {
                operator.settle(claim.plan_token(), &Outcome::NotDone).unwrap();
            }
            let scene = scene.to_owned();
            Box::new(move || {
                let settled = match scene.as_str() {
                    "confirm_failed" => claim.confirm_failed("it failed"),
                    "mark_uncertain" => claim.mark_uncertain("who knows"),
                    _ => claim.confirm_executed(&1),
                };
                settled.map(drop)
            })
        }
        "adopt" => {
            let claim = world.claimed();
            let (token, secret) = (claim.plan_token().clone(), claim.claim_token().to_owned());
            Box::new(move || agent.adopt(&token, 1, &secret).map(drop))
        }
        "settle_done" | "settle_not_done" | "settle_failed" | "settle_unknown" => {
            let token = world.claimed().plan_token().clone();
            let outcome = match scene {
                "settle_done" => Outcome::done(&1),
                "settle_not_done" => Outcome::NotDone,
                "settle_failed" => Outcome::Failed("it broke".to_owned()),
                _ => Outcome::Unknown,
            };
            if scene == "settle_done" {
                world.ledger.apply(&token, 1);
            }
            Box::new(move || operator.settle(&token, &outcome).map(drop))
        }
        "reconcile" => {
            let token = world.claimed().plan_token().clone();
            // One transaction looks, the second settles.
            Box::new(move || operator.reconcile(&token).map(drop))
        }
        "mark_interrupted" => {
            let token = world.claimed().plan_token().clone();
            Box::new(move || operator.mark_interrupted_as_uncertain(&token, 1).map(drop))
        }
        "recover" => {
            drop(world.claimed());
            let done = world.claimed().plan_token().clone();
            world.ledger.apply(&done, 1);
            Box::new(move || operator.recover().map(drop))
        }
        "sweep" => {
            world.ready();
            world.create(2, Approval::required());
            world.clock.advance(Duration::from_secs(3_600));
            // A transaction for each state.
            Box::new(move || operator.sweep().map(drop))
        }
        "purge" => {
            let rejected = world.create(2, Approval::required());
            reviewer.approve(&rejected.plan_token, &rejected.seal).unwrap();
            reviewer.reject(&rejected.plan_token, None).unwrap();
            world.clock.advance(Duration::from_secs(3_600));
            Box::new(move || operator.purge(Duration::from_secs(1)).map(drop))
        }
        "lift_rejection" => {
            let rejected = world.create(2, Approval::NotNeeded);
            reviewer.reject(&rejected.plan_token, None).unwrap();
            Box::new(move || reviewer.lift_rejection(TOOL, rejected.fingerprint.to_string(), "on reflection").map(drop))
        }
        "host_event" => {
            let token = world.ready().plan_token;
            Box::new(move || agent.record_host_event(Some(token.as_str()), "note", "something"))
        }
        "close" => Box::new(move || world.gate.close()),
        other => panic!("no scene {other}"),
    };
    (Some(gate), act)
}

/// An old copy stands in the place of the file, and the gate has noticed.
fn restored(path: &Path) -> (Option<Gate>, Act) {
    let world = World::open(path).registered();
    world.ready();
    drop(world.claimed());
    let copy = path.with_extension("old");
    let owners = path.with_file_name("gate.db.owners");
    world.gate.close().unwrap();
    drop(world);
    std::fs::copy(path, &copy).unwrap();
    let world = World::open(path);
    world.ready();
    drop(world);
    std::fs::copy(&copy, path).unwrap();
    assert!(owners.join("head").exists());
    let world = World::open(path);
    let refused = world.gate.agent("agent").unwrap().create(NewPlan::new(TOOL, &3, Approval::NotNeeded));
    assert!(refused.unwrap_err().is_rolled_back());
    let operator = world.gate.operator("op").unwrap();
    (Some(world.gate), Box::new(move || operator.accept_restore().map(drop)))
}
