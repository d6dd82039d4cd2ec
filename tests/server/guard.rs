//! Where a request comes from: before the token, before the route, on every answer.

use serde_json::json;

use super::wire::{Request, World};

/// Every kind of address: the document, with and without a link's token, the API, the stream, a decision, nothing.
fn addresses(world: &World) -> Vec<Request> {
    let plan = world.plan();
    let link = format!("/?token={}", world.token("ada"));
    let gets = ["/", &link, "/api/plans", "/api/events", "/api/history", "/api/stuck", "/no/such/thing"];
    let mut all: Vec<_> = gets.iter().map(|path| world.get(path)).collect();
    all.push(world.get(&format!("/api/plans/{}", plan.plan_token)));
    all.push(world.approve(&plan));
    all.push(world.reject(&plan, None));
    all.push(world.get("/api/plans").method("OPTIONS"));
    all
}

#[test]
fn a_host_that_is_not_this_server_is_forbidden_everywhere() {
    let world = World::new();
    let port = world.server.port();
    let wrong = [
        String::new(),
        "example.org".to_owned(),
        format!("example.org:{port}"),
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        format!("127.0.0.1:{}", port.wrapping_add(1)),
        format!("127.0.0.1:0{port}"),
        format!("127.0.0.1.example.org:{port}"),
        format!("example.127.0.0.1:{port}"),
        format!("localhost.example.org:{port}"),
        format!("evil-localhost:{port}"),
        format!("localhost.:{port}"),
        format!("0.0.0.0:{port}"),
        format!("127.0.0.2:{port}"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("0x7f000001:{port}"),
        format!("[::]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("[0:0:0:0:0:0:0:1]:{port}"),
        format!("LOCALHOST:{port}"),
        format!("user@127.0.0.1:{port}"),
        format!("127.0.0.1:{port}, example.org"),
    ];
    let all = addresses(&world);
    let head = world.head();
    for host in &wrong {
        for request in &all {
            request.clone().replace("Host", host).send().refuses(403, "FORBIDDEN");
        }
    }
    for request in &all {
        request.clone().without("Host").send().refuses(403, "FORBIDDEN");
        // Two of them, both ways round, and twice the right one.
        let right = format!("127.0.0.1:{port}");
        request.clone().header("Host", "example.org").send().refuses(403, "FORBIDDEN");
        request.clone().replace("Host", "example.org").header("Host", &right).send().refuses(403, "FORBIDDEN");
        request.clone().header("Host", &right).send().refuses(403, "FORBIDDEN");
    }
    assert_eq!(world.head(), head, "nothing was written");
}

#[test]
fn a_request_target_with_another_authority_is_forbidden() {
    let world = World::new();
    world.get("http://example.org/api/plans").send().refuses(403, "FORBIDDEN");
    world.get(&format!("http://{}/api/plans", world.server.address())).send().succeeds();
}

#[test]
fn an_origin_of_another_site_is_forbidden_everywhere() {
    let world = World::new();
    let port = world.server.port();
    let wrong = [
        "null".to_owned(),
        String::new(),
        "http://example.org".to_owned(),
        format!("https://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{}", port.wrapping_add(1)),
        "http://127.0.0.1".to_owned(),
        // Another spelling than the Host's own is another origin.
        format!("http://localhost:{port}"),
        format!("http://127.0.0.1:{port}.example.org"),
        format!("http://127.0.0.1.example.org:{port}"),
        format!("http://127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port} http://example.org"),
        format!("HTTP://127.0.0.1:{port}"),
        format!("ws://127.0.0.1:{port}"),
        "file://".to_owned(),
    ];
    let all = addresses(&world);
    let head = world.head();
    for request in &all {
        for origin in &wrong {
            request.clone().header("Origin", origin).send().refuses(403, "FORBIDDEN");
        }
        let own = format!("http://127.0.0.1:{port}");
        request.clone().header("Origin", &own).header("Origin", "http://example.org").send().refuses(403, "FORBIDDEN");
    }
    assert_eq!(world.head(), head, "nothing was written");
}

#[test]
fn a_request_that_the_browser_calls_foreign_is_forbidden_everywhere() {
    let world = World::new();
    let all = addresses(&world);
    let head = world.head();
    for request in &all {
        for site in ["cross-site", "same-site", "", "Same-Origin", "same-origin, none"] {
            request.clone().header("Sec-Fetch-Site", site).send().refuses(403, "FORBIDDEN");
        }
        let twice = request.clone().header("Sec-Fetch-Site", "none").header("Sec-Fetch-Site", "cross-site");
        twice.send().refuses(403, "FORBIDDEN");
    }
    assert_eq!(world.head(), head, "nothing was written");
}

#[test]
fn the_own_page_and_plain_clients_are_let_in() {
    let world = World::new();
    let port = world.server.port();
    for name in ["127.0.0.1", "localhost", "[::1]"] {
        let host = format!("{name}:{port}");
        let plain = world.get("/api/plans").replace("Host", &host);
        plain.send().succeeds();
        plain.clone().header("Origin", &format!("http://{host}")).send().succeeds();
        plain.clone().header("Sec-Fetch-Site", "same-origin").send().succeeds();
        plain.clone().header("Sec-Fetch-Site", "none").send().succeeds();
        let plan = world.plan();
        let page = world.approve(&plan).replace("Host", &host).header("Origin", &format!("http://{host}"));
        assert_eq!(page.header("Sec-Fetch-Site", "same-origin").send().succeeds()["status"], json!("approved"));
    }
    // The bare document needs no token, and has nothing to hide.
    let document = world.get("/").without("Authorization").send();
    document.succeeds();
    assert!(document.header("content-type").unwrap().starts_with("text/html"));
}

#[test]
fn provenance_comes_before_the_token_and_the_token_before_all_else() {
    let world = World::new();
    let plan = world.plan();
    let foreign = |request: Request| request.header("Sec-Fetch-Site", "cross-site").send();
    let nameless = |request: Request| request.without("Authorization").send();
    // All of these are wrong in a later way too: no such route, method, media type, escape, body, plan.
    let late = [
        (world.get("/nothing"), 404, "NOT_FOUND"),
        (world.get("/api/plans/%zz"), 404, "NOT_FOUND"),
        (world.get("/api/plans").method("DELETE"), 405, "METHOD_NOT_ALLOWED"),
        (world.approve(&plan).replace("Content-Type", "text/plain"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (world.approve(&plan).body("x".repeat(70_000)), 413, "PAYLOAD_TOO_LARGE"),
        (world.approve(&plan).body("{"), 400, "BAD_REQUEST"),
        (world.get(&format!("/api/plans/{}", "0".repeat(48))), 404, "UNKNOWN_TOKEN"),
    ];
    for (request, status, code) in late {
        foreign(request.clone().without("Authorization")).refuses(403, "FORBIDDEN");
        foreign(request.clone()).refuses(403, "FORBIDDEN");
        nameless(request.clone()).refuses(401, "UNAUTHORIZED");
        request.send().refuses(status, code);
    }
    nameless(world.get("/api/events")).refuses(401, "UNAUTHORIZED");
    nameless(world.get("/").method("POST")).refuses(401, "UNAUTHORIZED");
}

#[test]
fn a_get_never_changes_anything() {
    let world = World::new();
    let plan = world.plan();
    let head = world.head();
    let token = &plan.plan_token;
    for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"] {
        for verb in ["approve", "reject"] {
            let path = format!("/api/plans/{token}/{verb}?seal={}", plan.seal);
            let reply = world.approve(&plan).method(method).path(&path).send();
            assert_eq!(reply.status, 405, "{method} {verb}");
        }
    }
    let paths = ["/", "/api/plans", "/api/history?q=a&state=approved", "/api/stuck"].map(str::to_owned);
    for path in paths.into_iter().chain([format!("/api/plans/{token}"), format!("/api/history/{token}")]) {
        for method in ["GET", "HEAD"] {
            world.get(&path).method(method).send().succeeds();
        }
    }
    assert_eq!(world.head(), head);
    assert_eq!(world.events(&plan), ["awaiting_approval"]);
}

#[test]
fn a_malformed_escape_in_the_path_is_not_found() {
    let world = World::new();
    let plan = world.plan();
    for path in
        ["/%", "/%z", "/%zz", "/api/plans/%", "/api/plans/%f", "/api/plans/%0g", "/api/plans/%ff", "/api%/plans"]
    {
        world.get(path).send().refuses(404, "NOT_FOUND");
    }
    world.post("/api/plans/%zz/approve", &json!({"seal": "x"})).send().refuses(404, "NOT_FOUND");
    // A whole escape is the character that it stands for.
    let first = plan.plan_token.as_str().as_bytes()[0];
    let escaped = format!("/api/plans/%{first:02x}{}", &plan.plan_token.as_str()[1..]);
    world.get(&escaped).send().succeeds();
}

#[test]
fn addresses_that_are_none_are_not_found() {
    let world = World::new();
    for path in
        ["/api", "/api/", "/api/plans/", "//", "/../etc/passwd", "/favicon.ico", "/api/plans/a/b/c", "/index.html"]
    {
        world.get(path).send().refuses(404, "NOT_FOUND");
    }
    world.get("*").method("OPTIONS").send().refuses(404, "NOT_FOUND");
}

#[test]
fn each_document_has_a_nonce_of_its_own_and_no_other_asset() {
    let world = World::new();
    let mut nonces = Vec::new();
    for _ in 0..3 {
        let reply = world.get("/").send();
        let policy = reply.header("content-security-policy").unwrap().to_owned();
        let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        assert_eq!(nonce.len(), 32);
        assert!(policy.contains(&format!("style-src 'nonce-{nonce}'")) && policy.contains("connect-src 'self'"));
        let html = String::from_utf8(reply.body).unwrap();
        assert_eq!(html.matches("<script").count(), 1);
        assert_eq!(html.matches("<style").count(), 1);
        assert_eq!(html.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
        for asset in [" src=", "@import", "url(", " style=", " onclick"] {
            assert!(!html.contains(asset), "{asset}");
        }
        nonces.push(nonce);
    }
    nonces.dedup();
    assert_eq!(nonces.len(), 3);
}
