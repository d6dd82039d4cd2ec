//! An MCP server over standard input and output: an agent may look at a shop's products and propose price updates; a
//! person countersigns the big ones on the approval page; each runs at most once.
//!
//! ```text
//! cargo run --example mcp_server --all-features -- DIRECTORY
//! ```
//!
//! It keeps `shop.db` and `gate.db` in the directory. The reviewer's link lies in `gate.db.owners/`, in a file that only
//! your user can read; it is never printed here, because the agent's client reads this program's standard error.
//!
//! Copy this file and replace three things: the shop, [`FREE_HAND`], and the descriptions of the tools.

mod shop;

use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign::{
    Agent, Approval, ApprovalServer, Awaited, BoxError, Channel, Error, ExecuteError, Failure, Gate, NewPlan, Outcome,
    PendingPlan, Redeem, Rendered,
};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, ServiceExt as _, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use serde_json::{Value, json};
use shop::{MarkDown, Product, Shop, digest};

/// The host's rule, in the host's code: an agent updates this many prices by itself, more needs a person. Nothing that
/// an agent sends changes it.
const FREE_HAND: usize = 20;
/// The gate's name of the write.
const TOOL: &str = "update_prices";
/// The longest that `plan_status` waits for a decision: clients give up on a call after a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

// ---- What the agent sends -------------------------------------------------------------------------------------------

#[derive(Deserialize, schemars::JsonSchema)]
struct ListProducts {
    /// The category, such as "green tea".
    category: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct PreviewPriceUpdate {
    /// The category whose products get a new price.
    category: String,
    /// How many percent cheaper they become: 1 to 90.
    percent: i64,
    /// Why, in one sentence. The person who approves reads it.
    reason: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct ExecutePriceUpdate {
    /// The plan_token that preview_price_update answered.
    plan_token: String,
    /// The category, as it was previewed.
    category: String,
    /// The percentage, as it was previewed.
    percent: i64,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct PlanStatus {
    /// The plan_token that preview_price_update answered.
    plan_token: String,
    /// How many seconds to wait for a decision when there is none yet: 0 to 50. Default 0.
    #[serde(default)]
    wait_seconds: u64,
}

// ---- The tools ------------------------------------------------------------------------------------------------------

/// What the tools have: an agent's handle, which cannot approve, and the shop.
#[derive(Clone)]
struct ShopTools {
    agent: Agent,
    shop: PathBuf,
}

#[tool_router]
impl ShopTools {
    #[tool(
        description = "List the products of a category with their prices in cents.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn list_products(&self, Parameters(args): Parameters<ListProducts>) -> CallToolResult {
        answer(self.with_shop(move |shop| shop.products(&args.category)).await.map(|found| json!({"products": found})))
    }

    #[tool(
        description = "Plan a price update. Nothing changes yet. Answers a plan_token for execute_price_update, and \
                       whether a person has to approve first.",
        annotations(read_only_hint = false, destructive_hint = false, open_world_hint = false)
    )]
    async fn preview_price_update(&self, Parameters(args): Parameters<PreviewPriceUpdate>) -> CallToolResult {
        answer(self.preview(args).await)
    }

    #[tool(
        description = "Run a planned price update, once. Present the plan_token with the same category and percent. An \
                       answer AWAITING_APPROVAL means that a person has to approve first: call plan_status with \
                       wait_seconds, then call this again.",
        annotations(read_only_hint = false, destructive_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn execute_price_update(&self, Parameters(args): Parameters<ExecutePriceUpdate>) -> CallToolResult {
        let tools = self.clone();
        // A task of its own: a client that cancels the call stops waiting, and the update goes on.
        let task = tokio::spawn(async move { tools.execute(args).await });
        answer(task.await.unwrap_or_else(|_| Err(Refused::internal())))
    }

    #[tool(
        description = "Read what became of a plan; with wait_seconds, wait for a person's decision first.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn plan_status(&self, Parameters(args): Parameters<PlanStatus>) -> CallToolResult {
        answer(self.status(args).await)
    }
}

#[tool_handler]
impl ServerHandler for ShopTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_instructions(
            "Prices change in two steps: preview_price_update answers a plan_token, execute_price_update runs that \
             plan. Big updates wait for a person's approval. A refused call carries {code, message, hint}: follow the \
             hint.",
        )
    }
}

impl ShopTools {
    async fn preview(&self, args: PreviewPriceUpdate) -> Result<Value, Refused> {
        let change = checked(args.category, args.percent)?;
        let category = change.category.clone();
        let products = self.with_shop(move |shop| shop.products(&category)).await?;
        if products.is_empty() {
            return Err(Refused::new("NO_SUCH_CATEGORY", "no product is in that category", "Check its spelling."));
        }
        let approval = if products.len() > FREE_HAND { Approval::required() } else { Approval::NotNeeded };
        let plan = NewPlan::new(TOOL, &change, approval)
            .reason(args.reason)
            .preview_count(products.len())
            .data_digest(digest(&products).map_err(|_| Refused::internal())?);
        let created = self.agent.create_async(plan).await?;
        Ok(json!({
            "plan_token": created.plan_token, "state": created.state, "expires_at": created.expires_at,
            "products": products.len(), "example": products.first(),
            "earlier_rejection": created.earlier_rejection.map(|no| no.reason),
        }))
    }

    async fn execute(&self, args: ExecutePriceUpdate) -> Result<Value, Refused> {
        let change = checked(args.category, args.percent)?;
        let category = change.category.clone();
        let now = self.with_shop(move |shop| digest(&shop.products(&category)?)).await?;
        let redeem = Redeem::new(&args.plan_token, TOOL).payload(&change).data_digest(now);
        let path = self.shop.clone();
        let changed = self
            .agent
            .execute_async(redeem, |claim| async move {
                // The claim goes along: while the thread works, this host counts as at work on the plan.
                let work = move || -> Result<i64, Failure> {
                    let planned: MarkDown = claim.payload_as()?;
                    let mut shop = Shop::open(&path).map_err(Failure::not_applied)?;
                    // One transaction: the prices, and the plan token in the shop's own ledger.
                    shop.mark_down(claim.plan_token().as_str(), &planned).map_err(Failure::unknown)
                };
                tokio::task::spawn_blocking(work).await?
            })
            .await?;
        Ok(json!({"state": "executed", "changed": changed}))
    }

    async fn status(&self, args: PlanStatus) -> Result<Value, Refused> {
        let wait = Duration::from_secs(args.wait_seconds).min(LONGEST_WAIT);
        let awaited = self.agent.wait_for_decision_async(&args.plan_token, wait).await?;
        let plan = self.agent.plan_async(&args.plan_token).await?;
        let result = plan.result.and_then(|result| serde_json::from_str::<Value>(result.as_str()).ok());
        let rejected = if let Awaited::Rejected { reason } = awaited { reason } else { None };
        Ok(json!({
            "state": plan.state, "expires_at": plan.expires_at, "approvals": plan.approvals.len(),
            "approvals_needed": if plan.gated { plan.approvals_needed } else { 0 },
            "reject_reason": rejected, "result": result,
        }))
    }

    /// The shop's database blocks: on a thread for that.
    async fn with_shop<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shop) -> Result<T, BoxError> + Send + 'static,
    ) -> Result<T, Refused> {
        let path = self.shop.clone();
        let done = tokio::task::spawn_blocking(move || work(&Shop::open(&path)?)).await;
        done.map_err(|_| Refused::internal())?.map_err(|error| {
            tracing::error!("the shop's database: {error}");
            Refused::internal()
        })
    }
}

/// The host's own checks come first: a percentage below zero would raise the prices.
fn checked(category: String, percent: i64) -> Result<MarkDown, Refused> {
    if (1..=90).contains(&percent) {
        return Ok(MarkDown { category, percent });
    }
    Err(Refused::new("INVALID_PERCENT", "percent must be 1 to 90", "Correct the argument and call again."))
}

// ---- What the agent gets back ---------------------------------------------------------------------------------------

/// A "no" that a model can act on.
struct Refused(Value);

impl Refused {
    /// A refusal of the host itself, beside the gate's.
    fn new(code: &str, message: &str, hint: &str) -> Self {
        Self(json!({"code": code, "message": message, "hint": hint}))
    }

    /// What went wrong inside stands in the log, not in the answer.
    fn internal() -> Self {
        Self::new("INTERNAL_ERROR", "the shop could not answer", "Try again later; tell a person if it stays.")
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match serde_json::to_value(&error) {
            Ok(said) => Self(said),
            Err(_) => Self::internal(),
        }
    }
}

impl<T> From<ExecuteError<T>> for Refused {
    fn from(error: ExecuteError<T>) -> Self {
        match error {
            ExecuteError::Gate(error) => error.into(),
            other => Self::new(other.code(), &other.to_string(), other.hint()),
        }
    }
}

fn answer(said: Result<Value, Refused>) -> CallToolResult {
    match said {
        Ok(said) => CallToolResult::structured(said),
        Err(Refused(said)) => CallToolResult::structured_error(said),
    }
}

// ---- The start ------------------------------------------------------------------------------------------------------

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Standard output belongs to the protocol. RUST_LOG=trace shows everything; no token of anybody is in it.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("give the directory of the databases")?);
    std::fs::create_dir_all(&directory)?;
    let (shop_file, gate_file) = (directory.join("shop.db"), directory.join("gate.db"));
    Shop::open_or_create(&shop_file)?;

    // What a crash left behind is settled before anything new runs: the shop's own ledger knows what happened.
    let ledger = shop_file.clone();
    let gate = Gate::builder(&gate_file)
        .reconcile(move |stuck| {
            Ok(match Shop::open(&ledger)?.receipt(stuck.plan_token.as_str())? {
                Some(changed) => Outcome::done(&changed),
                None => Outcome::NotDone,
            })
        })
        .open_async()
        .await?;
    let report = gate.operator("startup")?.recover_async().await?;
    for (_, trouble) in &report.errors {
        tracing::error!("recovery: {trouble}");
    }

    let page = approval_page(&gate, &shop_file)?;
    let agent = gate.agent("pricing-agent")?.via(Channel::new("mcp")?);
    let tools = ShopTools { agent, shop: shop_file };
    let served = tools.serve(rmcp::transport::stdio()).await;
    if let Ok(running) = served {
        running.waiting().await?;
    }
    page.close();
    gate.close_async().await?;
    Ok(())
}

/// Starts the page on which people decide, on a port of the OS's choice.
fn approval_page(gate: &Gate, shop: &Path) -> Result<ApprovalServer, BoxError> {
    let shop = shop.to_owned();
    let server = ApprovalServer::builder(gate)
        .reviewer("store-manager")
        .title("Shop: price updates")
        .render_plan(move |pending| card(&shop, pending))
        .serve(0)?;
    // The link itself lies in a 0600 file beside the database, and on a terminal where there is one.
    eprintln!("approval page on port {}; its link lies in {}.owners/", server.port(), gate.path().display());
    Ok(server)
}

/// What the person reads: each price before and after, not the JSON.
fn card(shop: &Path, pending: &PendingPlan) -> Result<Rendered, BoxError> {
    let change: MarkDown = serde_json::from_str(pending.plan.payload.as_str())?;
    let products = Shop::open(shop)?.products(&change.category)?;
    let line = |p: &Product| format!("{} {}: {} -> {} cents", p.sku, p.name, p.price_cents, change.new_price(p));
    let prices = products.iter().map(line).collect::<Vec<_>>().join("\n");
    Ok(Rendered::new().title(format!("{} % off {}", change.percent, change.category)).detail("prices", prices))
}
