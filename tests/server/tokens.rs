//! Whose token it is.

use countersign::{Approval, ApprovalServer, NewPlan};
use serde_json::json;

use super::common;
use super::wire::{Request, World, token_of};

#[test]
fn without_the_right_token_in_the_right_place_nobody_gets_in() {
    let world = World::new();
    let plan = world.plan();
    let token = world.token("ada");
    let head = world.head();
    let address = world.server.address();
    let paths = ["/api/plans", "/api/events", "/api/history", "/api/stuck", "/nothing"];
    let refused = |request: Request| request.send().refuses(401, "UNAUTHORIZED");
    for path in paths {
        let bare = Request::new("GET", path, address);
        refused(bare.clone());
        for value in [
            String::new(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            format!("Bearer {}", &token[..63]),
            format!("Bearer {token}0"),
            format!("Bearer {}", token.to_uppercase()),
            format!("Bearer  {token}"),
            format!("Bearer {token} x"),
            format!("Bearer {}", "0".repeat(64)),
            format!("Bearer {}", "x".repeat(30_000)),
            format!("Basic {token}"),
            token.clone(),
        ] {
            refused(bare.clone().header("Authorization", &value));
        }
        // In the address of an API route, in a cookie, in a body.
        refused(Request::new("GET", &format!("{path}?token={token}"), address));
        refused(bare.clone().header("Cookie", &format!("token={token}")));
        // Twice, whichever is right.
        refused(bare.clone().bearer(&token).header("Authorization", &format!("Bearer {token}")));
        refused(bare.clone().bearer("wrong").header("Authorization", &format!("Bearer {token}")));
        refused(bare.bearer(&token).header("Authorization", "Bearer wrong"));
    }
    refused(world.approve(&plan).without("Authorization"));
    refused(world.approve(&plan).without("Authorization").body(json!({"seal": plan.seal, "token": token}).to_string()));
    assert_eq!(world.head(), head);
}

#[test]
fn the_link_counts_at_the_document_alone() {
    let world = World::new();
    let token = world.token("ada");
    let at = |path: &str| Request::new("GET", path, world.server.address());
    at(&format!("/?token={token}")).send().succeeds();
    for path in
        ["/?token=", "/?token=wrong", &format!("/?token={}", &token[1..]), &format!("/?token={token}&token={token}")]
    {
        at(path).send().refuses(401, "UNAUTHORIZED");
    }
    // A person with a link of yesterday gets the bare document, which asks for today's; the status is the same.
    let html = at("/?token=wrong").header("Accept", "text/html,*/*").send();
    assert_eq!(html.status, 401);
    assert!(String::from_utf8_lossy(&html.body).contains("id=\"ask\""));
    // No token stands in what is sent back.
    assert!(!at(&format!("/?token={token}")).send().text().contains(&token));
}

#[test]
fn the_reviewer_is_who_the_token_says_whatever_the_body_says() {
    let world = World::new();
    let two = |n: i32| world.agent().create(NewPlan::new("archive", &n, Approval::Required { quorum: 2 })).unwrap();
    let plan = two(1);
    let by_bob = world.approve(&plan).bearer(&world.token("bob")).send().succeeds();
    assert_eq!((&by_bob["reviewer"], &by_bob["approvals"]), (&json!("bob"), &json!(1)));
    let by_ada = world.approve(&plan).send().succeeds();
    assert_eq!((&by_ada["reviewer"], &by_ada["status"]), (&json!("ada"), &json!("approved")));
    let other = two(2);
    for name in ["reviewer", "actor", "principal", "user"] {
        let body = json!({"seal": other.seal, name: "bob"});
        world.post(&format!("/api/plans/{}/approve", other.plan_token), &body).send().refuses(400, "BAD_REQUEST");
    }
    assert_eq!(world.events(&other), ["awaiting_approval"]);
    let given = world.operator().plan(&plan.plan_token).unwrap().approvals;
    let given: Vec<_> = given.iter().map(|given| (given.reviewer.as_str(), given.channel.as_str())).collect();
    assert_eq!(given, [("bob", "http"), ("ada", "http")]);
}

#[test]
fn a_rotated_token_is_worth_nothing_and_the_others_stay() {
    let world = World::new();
    let old = world.token("ada");
    let link = world.server.rotate("ADA").unwrap();
    assert_eq!(world.server.link("ada").as_deref(), Some(link.as_str()));
    assert_ne!(token_of(&link), old);
    world.get("/api/plans").bearer(&old).send().refuses(401, "UNAUTHORIZED");
    world.get("/api/plans").bearer(&token_of(&link)).send().succeeds();
    world.get("/api/plans").bearer(&world.token("bob")).send().succeeds();
    assert!(world.server.rotate("eve").unwrap_err().is_invalid_input());
}

#[test]
fn a_token_of_an_earlier_start_or_of_another_server_is_worth_nothing() {
    let gate = common::ephemeral(|builder| builder);
    let earlier = World::on(gate.clone(), |builder| builder);
    let old = earlier.token("ada");
    let beside = World::on(gate.clone(), |builder| builder);
    beside.get("/api/plans").bearer(&old).send().refuses(401, "UNAUTHORIZED");
    earlier.server.close();
    let later = World::on(gate, |builder| builder);
    later.get("/api/plans").bearer(&old).send().refuses(401, "UNAUTHORIZED");
    let all = [old, beside.token("ada"), beside.token("bob"), later.token("ada")];
    for token in &all {
        assert!(token.len() == 64 && token.bytes().all(|b| b.is_ascii_hexdigit()), "256 random bits");
        assert_eq!(all.iter().filter(|other| *other == token).count(), 1);
    }
}

#[test]
fn a_hosts_own_token_has_to_be_long_and_plain() {
    let gate = common::ephemeral(|builder| builder);
    let with = |token: &str| ApprovalServer::builder(&gate).reviewer_with_token("ada", token).serve(0);
    for bad in [
        "",
        "short",
        &"x".repeat(31),
        &"x".repeat(513),
        &format!("{}&", "x".repeat(40)),
        &" ".repeat(40),
        &"é".repeat(32),
    ] {
        assert!(with(bad).unwrap_err().is_invalid_input(), "{bad:?}");
    }
    let own = "A-host.picks_its~own-token-0123456789";
    let server = with(own).unwrap();
    Request::new("GET", "/api/plans", server.address()).bearer(own).send().succeeds();
    assert_eq!(server.link("ada").unwrap(), format!("http://{}/?token={own}", server.address()));
}

#[test]
fn reviewers_have_names_of_their_own() {
    let gate = common::ephemeral(|builder| builder);
    let builder = || ApprovalServer::builder(&gate);
    assert!(builder().serve(0).unwrap_err().is_invalid_input(), "no reviewer at all");
    assert!(builder().reviewer("unknown").serve(0).unwrap_err().is_invalid_input());
    assert!(builder().reviewer("two words").serve(0).unwrap_err().is_invalid_input());
    assert!(builder().reviewer("ada").reviewer("ADA").serve(0).unwrap_err().is_invalid_input());
    let token = "x".repeat(40);
    let twice = builder().reviewer_with_token("ada", &token).reviewer_with_token("bob", &token);
    assert!(twice.serve(0).unwrap_err().is_invalid_input());
}
