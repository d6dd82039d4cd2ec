//! What a decision's body may be.

use serde_json::json;

use super::wire::World;

#[test]
fn only_json_is_taken() {
    let world = World::new();
    let plan = world.plan();
    let head = world.head();
    let approve = world.approve(&plan);
    let boundary = "multipart/form-data; boundary=x";
    let form = "application/x-www-form-urlencoded";
    for kind in
        [form, "text/plain", boundary, "application/jsonp", "text/json", "application/json+x", "", "json", "*/*"]
    {
        approve.clone().replace("Content-Type", kind).send().refuses(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    approve.clone().without("Content-Type").send().refuses(415, "UNSUPPORTED_MEDIA_TYPE");
    approve.clone().header("Content-Type", "text/plain").send().refuses(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(world.head(), head);
    approve.replace("Content-Type", "Application/JSON; charset=utf-8").send().succeeds();
}

#[test]
fn a_body_past_64_kib_is_too_large_announced_or_not() {
    let world = World::new();
    let plan = world.plan();
    let head = world.head();
    let padded = |length: usize| {
        let seal = json!({"seal": plan.seal}).to_string();
        format!("{seal}{}", " ".repeat(length - seal.len()))
    };
    let most = 64 * 1024;
    world.approve(&plan).body(padded(most + 1)).send().refuses(413, "PAYLOAD_TOO_LARGE");
    world.approve(&plan).body(padded(most + 1)).send_chunked().refuses(413, "PAYLOAD_TOO_LARGE");
    world.approve(&plan).body(padded(most * 3)).send_chunked().refuses(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(world.head(), head);
    world.approve(&plan).body(padded(most)).send_chunked().succeeds();
    world.approve(&plan).body(padded(most)).send().succeeds();
}

#[test]
fn a_body_that_is_not_exactly_what_is_asked_for_is_refused() {
    let world = World::new();
    let plan = world.plan();
    let head = world.head();
    let seal = plan.seal.as_str();
    let bad = [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        format!("\"{seal}\""),
        "{}".to_owned(),
        "{\"seal\":null}".to_owned(),
        "{\"seal\":7}".to_owned(),
        format!("{{\"seal\":[\"{seal}\"]}}"),
        format!("{{\"Seal\":\"{seal}\"}}"),
        format!("{{\"seal\":\"{seal}\",\"seal\":\"{seal}\"}}"),
        format!("{{\"seal\":\"{seal}\",\"force\":true}}"),
        format!("{{\"seal\":\"{seal}\"}} {{}}"),
        format!("{{'seal':'{seal}'}}"),
        format!("seal={seal}"),
    ];
    for body in &bad {
        world.approve(&plan).body(body.as_str()).send().refuses(400, "BAD_REQUEST");
        world.reject(&plan, None).body(body.as_str()).send().refuses(400, "BAD_REQUEST");
    }
    let invalid = b"{\"seal\":\"\xff\"}".to_vec();
    world.approve(&plan).body(invalid).send().refuses(400, "BAD_REQUEST");
    // A reason is for a rejection, is text, and is bounded.
    world.approve(&plan).body(format!("{{\"seal\":\"{seal}\",\"reason\":\"x\"}}")).send().refuses(400, "BAD_REQUEST");
    world.reject(&plan, None).body(format!("{{\"seal\":\"{seal}\",\"reason\":1}}")).send().refuses(400, "BAD_REQUEST");
    world.reject(&plan, Some(&"x".repeat(5_000))).send().refuses(400, "BAD_REQUEST");
    assert_eq!(world.head(), head);
    // What is wrong is said without repeating it.
    let echo = world.approve(&plan).body("{\"seal\":\"a\",\"zebra\":1}").send();
    assert!(!echo.text().contains("zebra"), "{}", echo.text());
}

#[test]
fn another_seal_decides_nothing() {
    let world = World::new();
    let (plan, other) = (world.plan(), world.plan());
    for seal in [other.seal.as_str(), "", "0", &plan.seal.as_str().to_uppercase(), &plan.seal.as_str()[1..]] {
        for verb in ["approve", "reject"] {
            let path = format!("/api/plans/{}/{verb}", plan.plan_token);
            world.post(&path, &json!({"seal": seal})).send().refuses(409, "APPROVAL_MISMATCH");
        }
    }
    assert_eq!(world.state(&plan).as_str(), "awaiting_approval");
}
