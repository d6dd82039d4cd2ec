//! A confirm is never refused for its content: the effect happened.

use countersign::{Claim, Outcome, Settled, State};
use serde::ser::{SerializeSeq as _, Serializer};
use serde_json::{Value, json};

use crate::common::world::{World, payload, stored};

/// 200 MB of text, without having it in memory.
struct Huge;

const PIECES: usize = 200 * 1024;

impl serde::Serialize for Huge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let piece = "x".repeat(1024);
        let mut seq = serializer.serialize_seq(Some(PIECES))?;
        for _ in 0..PIECES {
            seq.serialize_element(&piece)?;
        }
        seq.end()
    }
}

/// So many arrays inside one another.
struct Deep(usize);

impl serde::Serialize for Deep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(1))?;
        if self.0 > 1 {
            seq.serialize_element(&Self(self.0 - 1))?;
        }
        seq.end()
    }
}

struct Failing;

impl serde::Serialize for Failing {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("the connection is gone"))
    }
}

struct Panicking;

impl serde::Serialize for Panicking {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("in the middle of it")
    }
}

/// The plan is executed, and this is what it keeps of the result.
fn kept(confirm: impl FnOnce(&mut Claim) -> Settled) -> Value {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    confirm(&mut claim);
    let plan = world.operator().plan(&created.plan_token).unwrap();
    assert_eq!(plan.state, State::Executed);
    world.assert_intact();
    serde_json::from_str(plan.result.unwrap().as_str()).unwrap()
}

fn assert_omitted(kept: &Value) {
    let keys: Vec<_> = kept.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["bytes", "omitted", "sha256"]);
    assert!(!kept["omitted"].as_str().unwrap().is_empty());
}

#[test]
fn a_result_of_200_mb_is_omitted_with_its_size_and_digest() {
    let kept = kept(|claim| claim.confirm_executed(&Huge).unwrap());
    assert_omitted(&kept);
    // Each piece in quotes, a comma between two, brackets around all.
    assert_eq!(kept["bytes"], PIECES * 1_026 + (PIECES - 1) + 2);
    assert_eq!(kept["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn a_result_just_past_the_limit_is_omitted_with_the_digest_of_its_canonical_text() {
    let text = "y".repeat(1024 * 1024 - 1);
    let kept = kept(|claim| claim.confirm_executed(text.as_str()).unwrap());
    assert_omitted(&kept);
    assert_eq!(kept["bytes"], 1024 * 1024 + 1);
}

#[test]
fn a_result_of_5000_levels_is_omitted() {
    let kept = kept(|claim| claim.confirm_executed(&Deep(5_000)).unwrap());
    assert_omitted(&kept);
    assert!(kept["omitted"].as_str().unwrap().contains("deep"), "{kept}");
}

#[test]
fn a_result_that_is_no_json_is_omitted() {
    for kept in [
        kept(|claim| claim.confirm_executed(&f64::NAN).unwrap()),
        kept(|claim| claim.confirm_executed(&[1.0, f64::INFINITY]).unwrap()),
        kept(|claim| claim.confirm_executed(&Failing).unwrap()),
        kept(|claim| claim.confirm_executed(&Panicking).unwrap()),
        kept(|claim| claim.confirm_executed(&u128::MAX).unwrap()),
    ] {
        assert_omitted(&kept);
        assert_eq!((&kept["bytes"], &kept["sha256"]), (&json!(null), &json!(null)));
    }
}

#[test]
fn execute_returns_the_value_that_could_not_be_kept() {
    let world = World::new();
    let created = world.free(&payload(1));
    let value = world.agent().execute(stored(&created), |_| Ok(f64::NAN)).unwrap();
    assert!(value.is_nan());
    let result = world.operator().plan(&created.plan_token).unwrap().result.unwrap();
    assert_omitted(&serde_json::from_str(result.as_str()).unwrap());
}

#[test]
fn an_omitted_result_repeated_is_a_no_op() {
    let world = World::new();
    let created = world.free(&payload(1));
    let mut claim = world.claim(&created);
    claim.confirm_executed(&Deep(5_000)).unwrap();
    assert!(claim.confirm_executed(&f64::NAN).unwrap().already);
    world.assert_intact();
}

#[test]
fn what_an_operator_verified_is_kept_the_same_way() {
    let world = World::new();
    let settle = |outcome: &Outcome| {
        let created = world.free(&payload(1));
        drop(world.claim(&created));
        world.operator().settle(&created.plan_token, outcome).unwrap();
        world.operator().plan(&created.plan_token).unwrap()
    };
    let large = settle(&Outcome::done(&"x".repeat(2 * 1024 * 1024)));
    assert_omitted(&serde_json::from_str(large.result.unwrap().as_str()).unwrap());
    assert_eq!(settle(&Outcome::done(&f64::NAN)).result.unwrap().as_str(), "null");
    let failed = settle(&Outcome::Failed("x".repeat(1024 * 1024)));
    assert!(failed.error.unwrap().len() < 200);
    world.assert_intact();
}
