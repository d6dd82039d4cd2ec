//! The approval server: the page on which people decide, and its JSON API (design section 9).
//!
//! ```no_run
//! use countersign::{ApprovalServer, Gate};
//!
//! let gate = Gate::open("gate.db")?;
//! // On a terminal this prints ada's link. It also lies in gate.db.owners/, readable by this user alone.
//! let server = ApprovalServer::builder(&gate).reviewer("ada").title("Shop approvals").serve(0)?;
//! println!("listening on {}", server.address());
//! # Ok::<(), countersign::Error>(())
//! ```
//!
//! # Who gets in
//!
//! It binds 127.0.0.1 alone. A request is let in when it was sent to this server by name (one `Host`, one of the loopback
//! spellings with the bound port), when nothing says that another site is behind it (`Origin`, `Sec-Fetch-Site`), and
//! when its `Authorization: Bearer` carries a reviewer's token. The reviewer's name comes from the token, never from the
//! request. Tokens are 256 random bits, minted at each start.
//!
//! # What it does not do
//!
//! It keeps web pages of other sites, other users of the machine and agents without file access out. A program that
//! runs as the same user can read the link's file and this process's memory, and so can decide. There is no TLS and no
//! login of its own: to serve people elsewhere, put it behind something that has both.
//!
//! # Threads
//!
//! [`serve`](ApprovalServerBuilder::serve) starts one thread with its own runtime, so that synchronous hosts can use it.
//! Calls of the gate run on a bounded number of other threads.

mod answer;
mod api;
mod builder;
mod card;
mod events;
mod guard;
mod history;
mod hooks;
mod link;
mod listen;
mod page;
mod pretty;
mod running;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

pub use self::builder::{ApprovalServerBuilder, MountedApprovals};
pub use self::hooks::{DecisionAction, DecisionAttempt, Rendered};
pub use self::running::ApprovalServer;

use self::answer::Failed;
use self::guard::Authorities;
use self::hooks::{DecisionHook, RenderHook};
use self::tokens::Tokens;
use crate::operator::Operator;

/// How many calls of the gate run at once, and how long one more waits for its turn.
const CALLS_MAX: usize = 8;
const CALL_WAIT: Duration = Duration::from_secs(10);

/// What every request needs.
struct Shared {
    operator: Operator,
    tokens: Arc<Tokens>,
    authorities: Authorities,
    /// Empty, or `/` and more, without a slash at its end.
    prefix: String,
    title: String,
    expose_raw_payload: bool,
    render: Option<RenderHook>,
    on_decision: Option<DecisionHook>,
    watcher: events::Watcher,
    /// Reads and decisions wait apart, so that a slow `render_plan` holds no decision up.
    reads: Arc<Semaphore>,
    decisions: Arc<Semaphore>,
}

impl Shared {
    /// Runs what blocks on another thread, at most [`CALLS_MAX`] at once.
    async fn blocking<T: Send + 'static>(
        permits: &Arc<Semaphore>,
        f: impl FnOnce() -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let permit = match tokio::time::timeout(CALL_WAIT, permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => return Err(Failed::busy()),
        };
        let done = tokio::task::spawn_blocking(move || {
            let answer = f();
            drop(permit);
            answer
        });
        done.await.unwrap_or_else(|_| Err(Failed::internal()))
    }
}

fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CALLS_MAX))
}

/// Every route, and the answer to every other address below the prefix, behind the guard.
fn routes(shared: &Arc<Shared>) -> Router {
    let at = |path: &str| format!("{}{path}", shared.prefix);
    let mut router = Router::new()
        .route(&at("/"), get(page::document))
        .route(&at("/api/plans"), get(api::plans))
        .route(&at("/api/plans/{token}"), get(api::plan))
        .route(&at("/api/plans/{token}/approve"), post(api::approve))
        .route(&at("/api/plans/{token}/reject"), post(api::reject))
        .route(&at("/api/events"), get(events::events))
        .route(&at("/api/history"), get(history::search))
        .route(&at("/api/history/{token}"), get(history::timeline))
        .route(&at("/api/stuck"), get(history::stuck))
        .route(&at("/{*rest}"), axum::routing::any(api::nothing_here))
        .method_not_allowed_fallback(api::wrong_method);
    router = if shared.prefix.is_empty() {
        // What is no path at all, such as `OPTIONS *`.
        router.fallback(api::nothing_here)
    } else {
        router.route(&shared.prefix, get(page::document))
    };
    router.layer(from_fn_with_state(shared.clone(), guard::guard)).with_state(shared.clone())
}
