//! A host with an HTTP server of its own: the agents' API on one port, the approval page mounted in an axum app on a
//! port of its own, so that no page of the one is ever the same origin as the other.
//!
//! ```text
//! cargo run --example embed_axum --all-features -- DIRECTORY
//! ```
//!
//! It ends when standard input does. The reviewer's link lies in `reviewer.link` in the directory, for your user alone.

use std::error::Error;
use std::future::IntoFuture as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use countersign::{Agent, Approval, ApprovalServer, Gate, NewPlan, Redeem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Serialize, Deserialize)]
struct SetPrice {
    sku: String,
    cents: i64,
}

/// What an agent gets: its answer, or a status and a refusal that it can act on.
type Answer = Result<Json<Value>, (StatusCode, Json<Value>)>;

/// `POST /prices`: plans a price; nothing changes yet.
async fn propose(State(agent): State<Agent>, Json(args): Json<SetPrice>) -> Answer {
    // The host's rule, in the host's code.
    let approval = if args.cents < 100 { Approval::required() } else { Approval::NotNeeded };
    let created = agent.create_async(NewPlan::new("set_price", &args, approval)).await.map_err(|e| no(json!(e)))?;
    Ok(Json(json!({"plan_token": created.plan_token, "state": created.state})))
}

/// `POST /prices/{plan token}`: runs what was planned, once.
async fn run(State(agent): State<Agent>, Segment(token): Segment<String>) -> Answer {
    let done = agent.execute_async(Redeem::stored(&token, "set_price"), |claim| async move {
        let planned: SetPrice = claim.payload_as()?;
        // Here the host writes, with claim.plan_token() in the same transaction.
        Ok(planned.cents)
    });
    match done.await {
        Ok(cents) => Ok(Json(json!({"state": "executed", "cents": cents}))),
        Err(e) => Err(no(json!({"code": e.code(), "message": e.to_string(), "hint": e.hint()}))),
    }
}

fn no(refusal: Value) -> (StatusCode, Json<Value>) {
    (StatusCode::CONFLICT, Json(refusal))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("give the directory of the database")?);
    std::fs::create_dir_all(&directory)?;
    let gate = Gate::builder(directory.join("gate.db")).open_async().await?;
    gate.operator("startup")?.recover_async().await?;

    // The page: the authority is exactly what the browser sends as Host.
    let page_port = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let authority = page_port.local_addr()?.to_string();
    let approvals = ApprovalServer::builder(&gate).reviewer("ada").mount(&authority, "/approvals")?;
    write_link(&directory, &approvals.link("ada").ok_or("ada is a reviewer")?)?;
    let page = approvals.router().route("/healthz", get(|| async { "ok" }));

    // The agents' API knows an agent's handle, and no other. Authenticating agents is the host's work.
    let api_port = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let api = Router::new()
        .route("/prices", post(propose))
        .route("/prices/{token}", post(run))
        .with_state(gate.agent("pricing-agent")?);

    println!("agents: http://{}/prices", api_port.local_addr()?);
    println!("people: http://{authority}/approvals/, with the link in {}", directory.join("reviewer.link").display());
    tokio::select! {
        served = axum::serve(page_port, page).into_future() => served?,
        served = axum::serve(api_port, api).into_future() => served?,
        () = end_of_input() => {}
    }
    approvals.close();
    gate.close_async().await?;
    println!("stopped");
    Ok(())
}

/// The link is a secret: a file of this user alone, never a log.
fn write_link(directory: &Path, link: &str) -> std::io::Result<()> {
    let path = directory.join("reviewer.link");
    let _ = std::fs::remove_file(&path);
    #[allow(clippy::disallowed_methods, reason = "the link's file, never the database")]
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{link}")
}

async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // A thread of its own: a read of standard input cannot be cancelled.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
