//! The routes inside a host's own server.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use countersign::{Approval, ApprovalServer, Gate, MountedApprovals, NewPlan};
use serde_json::json;
use tokio::runtime::Runtime;

use super::common;
use super::wire::{Request, token_of};

struct Host {
    gate: Gate,
    approvals: MountedApprovals,
    address: SocketAddr,
    _runtime: Runtime,
}

fn host(prefix: &str) -> Host {
    let gate = common::ephemeral(|builder| builder);
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let approvals =
        ApprovalServer::builder(&gate).reviewer("ada").mount(&format!("localhost:{}", address.port()), prefix);
    let approvals = approvals.unwrap();
    let mut router = approvals.router();
    if !prefix.is_empty() {
        router = Router::new().route("/", get(|| async { "the host's own" })).merge(router);
    }
    runtime.spawn(async move { axum::serve(listener, router).await });
    Host { gate, approvals, address, _runtime: runtime }
}

impl Host {
    fn get(&self, path: &str) -> Request {
        let token = token_of(&self.approvals.link("ada").unwrap());
        Request::new("GET", path, self.address).replace("Host", &self.authority()).bearer(&token)
    }

    fn authority(&self) -> String {
        format!("localhost:{}", self.address.port())
    }
}

#[test]
fn below_its_prefix_everything_is_behind_the_guard() {
    let host = host("/ops/approvals");
    let plan =
        host.gate.agent("pricing-agent").unwrap().create(NewPlan::new("archive", &1, Approval::required())).unwrap();
    let link = host.approvals.link("ada").unwrap();
    assert!(link.starts_with(&format!("http://{}/ops/approvals/?token=", host.authority())));
    for path in ["/ops/approvals", "/ops/approvals/"] {
        let document = host.get(path).without("Authorization").send();
        document.succeeds();
        assert!(String::from_utf8_lossy(&document.body).contains("data-base=\"/ops/approvals\""));
        host.get(&format!("{path}?token=wrong")).send().refuses(401, "UNAUTHORIZED");
    }
    assert_eq!(host.get("/ops/approvals/api/plans").send().succeeds()["total"], json!(1));
    host.get("/ops/approvals/api/plans").without("Authorization").send().refuses(401, "UNAUTHORIZED");
    host.get("/ops/approvals/nothing").without("Authorization").send().refuses(401, "UNAUTHORIZED");
    host.get("/ops/approvals/nothing").send().refuses(404, "NOT_FOUND");
    // Exactly the authority that it was told.
    let other = format!("127.0.0.1:{}", host.address.port());
    host.get("/ops/approvals/api/plans").replace("Host", &other).send().refuses(403, "FORBIDDEN");
    let origin = format!("http://{}", host.authority());
    let path = format!("/ops/approvals/api/plans/{}/approve", plan.plan_token);
    let approve = host.get(&path).method("POST").header("Content-Type", "application/json").header("Origin", &origin);
    assert_eq!(approve.body(json!({"seal": plan.seal}).to_string()).send().succeeds()["status"], json!("approved"));
}

#[test]
fn without_a_prefix_it_is_the_whole_server() {
    let host = host("");
    host.get("/").without("Authorization").send().succeeds();
    host.get("/api/plans").send().succeeds();
    host.get("/nothing").without("Authorization").send().refuses(401, "UNAUTHORIZED");
    let old = host.get("/api/plans");
    host.approvals.rotate("ada").unwrap();
    old.send().refuses(401, "UNAUTHORIZED");
    host.get("/api/plans").send().succeeds();
}

#[test]
fn an_authority_or_a_prefix_that_cannot_be_one_is_refused() {
    let gate = common::ephemeral(|builder| builder);
    let mount = |authority: &str, prefix: &str| ApprovalServer::builder(&gate).reviewer("ada").mount(authority, prefix);
    for authority in ["", "http://localhost:1", "localhost:1/", "a b", "user@localhost"] {
        assert!(mount(authority, "").unwrap_err().is_invalid_input(), "{authority}");
    }
    for prefix in ["approvals", "/approvals/", "/", "/a//b", "/{x}", "/a b", "/a?b"] {
        assert!(mount("localhost:1", prefix).unwrap_err().is_invalid_input(), "{prefix}");
    }
    mount("localhost:1", "/approvals").unwrap();
}
