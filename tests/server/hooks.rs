//! What a host's own code does wrong stays its own trouble.

use std::sync::{Arc, Mutex};

use countersign::{Approval, NewPlan, Rendered};
use serde_json::json;

use super::wire::World;

#[test]
fn a_render_plan_that_fails_or_panics_spoils_its_own_card_alone() {
    let world = World::with(|builder| {
        builder.render_plan(|pending| match pending.plan.tool.as_str() {
            "panics" => panic!("on purpose"),
            "fails" => Err("on purpose".into()),
            tool => Ok(Rendered::new().title(format!("Run {tool}")).detail("what", "all of it")),
        })
    });
    for tool in ["panics", "fails", "works"] {
        world.agent().create(NewPlan::new(tool, &1, Approval::required())).unwrap();
    }
    let queue = world.get("/api/plans").send().succeeds();
    let render = |at: usize| queue["plans"][at]["render"].clone();
    assert_eq!(render(0), json!({"title": "panics", "details": [], "failed": true}));
    assert_eq!(render(1), json!({"title": "fails", "details": [], "failed": true}));
    assert_eq!(render(2), json!({"title": "Run works", "details": [{"label": "what", "value": "all of it"}]}));
}

#[test]
fn on_decision_is_told_of_every_attempt_and_its_panic_changes_no_answer() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let world = World::with(|builder| {
        let told = told.clone();
        builder.on_decision(move |attempt| {
            let outcome = match attempt.outcome {
                Ok(decision) => format!("{} already: {}", decision.state, decision.already),
                Err(error) => error.code().to_owned(),
            };
            let line = format!("{} {} {:?} {outcome}", attempt.reviewer, attempt.action.as_str(), attempt.reason);
            told.lock().unwrap().push(line);
            panic!("on purpose");
        })
    });
    let (plan, other) =
        (world.plan(), world.agent().create(NewPlan::new("archive", &2, Approval::required())).unwrap());
    world.approve(&plan).send().succeeds();
    world.approve(&plan).send().succeeds();
    world.reject(&other, Some("no")).bearer(&world.token("bob")).send().succeeds();
    world.approve(&other).send().refuses(409, "PLAN_REJECTED");
    // These are no attempts to decide.
    world.approve(&plan).body("{").send().refuses(400, "BAD_REQUEST");
    world.approve(&plan).bearer("wrong").send().refuses(401, "UNAUTHORIZED");
    let told = told.lock().unwrap();
    assert_eq!(
        *told,
        [
            "ada approve None approved already: false",
            "ada approve None approved already: true",
            "bob reject Some(\"no\") rejected already: false",
            "ada approve None PLAN_REJECTED",
        ]
    );
}

#[test]
fn a_slow_render_plan_holds_no_decision_up() {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let world = World::with(|builder| {
        builder.render_plan(move |_| {
            // Ends when the sender is gone.
            let _ = wait.lock().unwrap().recv();
            Ok(Rendered::new())
        })
    });
    let plan = world.plan();
    std::thread::scope(|scope| {
        let listing: Vec<_> = (0..8).map(|_| scope.spawn(|| world.get("/api/plans").send().succeeds())).collect();
        let decided = world.approve(&plan).send().succeeds();
        assert_eq!(decided["status"], json!("approved"));
        drop(release);
        for list in listing {
            list.join().unwrap();
        }
    });
}
