//! What a host does not show is nowhere.

use countersign::{Agent, Approval, NewPlan, Redeem, Rendered};
use serde_json::json;

use super::stream::first_events;
use super::wire::{Reply, World};

const SECRET: &str = "hunter2";

/// Plans with a secret in payload, extra, result and digest, in every state that a view shows.
fn plant(world: &World) -> Vec<String> {
    let agent = world.agent();
    let payload = json!({"password": SECRET});
    let create = |approval| {
        let plan = NewPlan::new("archive", &payload, approval);
        agent.create(plan.extra(&json!({"note": SECRET})).data_digest(SECRET)).unwrap().plan_token
    };
    let waiting = create(Approval::required());
    let done = create(Approval::NotNeeded);
    agent.execute(redeem(&agent, &done), |_| Ok(json!({"said": SECRET}))).unwrap();
    // A report that is refused keeps what it reported, as evidence.
    let settled = create(Approval::NotNeeded);
    let mut claim = agent.begin_execute(redeem(&agent, &settled)).unwrap();
    claim.confirm_executed(&"done").unwrap();
    claim.confirm_failed(SECRET).unwrap_err();
    let failed = create(Approval::NotNeeded);
    let mut claim = agent.begin_execute(redeem(&agent, &failed)).unwrap();
    claim.record_host_event("progress", SECRET).unwrap();
    claim.mark_uncertain(SECRET).unwrap();
    [waiting, done, settled, failed].map(|token| token.to_string()).to_vec()
}

fn redeem<'a>(_: &Agent, token: &countersign::PlanToken) -> Redeem<'a> {
    Redeem::stored(token, "archive").data_digest(SECRET)
}

fn everything(world: &World, tokens: &[String]) -> Vec<Reply> {
    let paths = ["/", "/api/plans", "/api/history", "/api/history?q=archive&state=executed", "/api/stuck", "/nothing"];
    let mut paths: Vec<_> = paths.map(str::to_owned).to_vec();
    for token in tokens {
        paths.extend([format!("/api/plans/{token}"), format!("/api/history/{token}")]);
    }
    let mut replies: Vec<_> = paths.iter().map(|path| world.get(path).send()).collect();
    let plan = world.gate.reviewer("ada").unwrap().card(&tokens[0]).unwrap().plan;
    for (verb, seal) in [("approve", "wrong"), ("approve", plan.seal.as_str()), ("reject", plan.seal.as_str())] {
        replies.push(world.post(&format!("/api/plans/{}/{verb}", tokens[0]), &json!({"seal": seal})).send());
    }
    replies
}

#[test]
fn a_secret_that_render_plan_leaves_out_is_in_no_answer() {
    let world =
        World::with(|builder| builder.render_plan(|_| Ok(Rendered::new().title("A change").detail("what", "hidden"))));
    let tokens = plant(&world);
    for reply in everything(&world, &tokens) {
        assert!(!reply.text().contains(SECRET), "{}", reply.text());
    }
    assert!(!first_events(&world, 1).contains(SECRET));
    let waiting = world.get("/api/plans").send().succeeds();
    assert_eq!(waiting["raw_payload"], json!(false));
    let timeline = world.get(&format!("/api/history/{}", tokens[3])).send().succeeds();
    assert!(timeline["rows"].as_array().unwrap().iter().any(|row| row["detail_hidden"] == json!(true)), "it says so");
}

#[test]
fn with_the_option_the_payload_is_shown_exactly() {
    let world = World::with(|builder| builder.expose_raw_payload().render_plan(|_| Ok(Rendered::new())));
    let tokens = plant(&world);
    let replies = everything(&world, &tokens);
    let exact = json!({"password": SECRET}).to_string();
    assert_eq!(replies[1].json()["plans"][0]["payload"], json!(exact));
    let timeline = world.get(&format!("/api/history/{}", tokens[3])).send();
    assert!(timeline.text().contains(SECRET), "details are shown too");
}

#[test]
fn without_a_hook_the_card_shows_payload_and_extra_and_nothing_else_does() {
    let world = World::new();
    let tokens = plant(&world);
    for (at, reply) in everything(&world, &tokens).into_iter().enumerate() {
        let cards = at == 1 || (6..14).contains(&at) && at % 2 == 0;
        assert_eq!(reply.text().contains(SECRET), cards, "answer {at}: {}", reply.text());
    }
}

#[test]
fn hidden_characters_of_an_agent_reach_no_client_raw() {
    let world = World::with(|builder| {
        builder.expose_raw_payload().render_plan(|pending| {
            Ok(Rendered::new().title("t\u{202E}").detail("l\u{200B}", pending.plan.reason.clone().unwrap_or_default()))
        })
    });
    let bad = "a\u{202E}b\u{200B}c\u{7}d\u{E0041}e\u{A0}f";
    let payload = json!({bad: bad});
    let plan = NewPlan::new("archive", &payload, Approval::required()).reason(bad);
    let first = world.agent().create(plan.extra(&json!({"x": bad}))).unwrap();
    world.reject(&first, Some(bad)).send().succeeds();
    let again = world.agent().create(NewPlan::new("archive", &payload, Approval::required()).reason(bad)).unwrap();
    for reply in everything(&world, &[first.plan_token.to_string(), again.plan_token.to_string()]) {
        let text = String::from_utf8(reply.body.clone()).unwrap();
        let raw = text.chars().find(|&c| c != '\n' && countersign::escape::classify(c).is_some());
        assert_eq!(raw, None, "{text}");
    }
    let card = world.get("/api/plans").send().succeeds()["plans"][0].clone();
    let escaped = r"a\u{202E}b\u{200B}c\u{7}d\u{E0041}e\u{A0}f";
    assert_eq!((&card["reason"], &card["earlier_rejection"]["reason"]), (&json!(escaped), &json!(escaped)));
    // The payload stays the same JSON.
    let payload_again: serde_json::Value = serde_json::from_str(card["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload_again, payload);
}
