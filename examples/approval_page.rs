//! An agent proposes mark-downs of a shop every few seconds, and waits for the person at the page to decide.
//!
//!     cargo run --example approval_page --features approval-server [DIRECTORY]
//!
//! On a terminal it prints the person's link. Elsewhere the link lies in a file that only this user can read. It goes on
//! until it is stopped.
#![allow(clippy::disallowed_methods, reason = "an example, with files of its own")]

mod shop;

use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign::{
    Agent, Approval, ApprovalServer, BoxError, Created, Failure, Gate, NewPlan, PendingPlan, Redeem, Rendered, State,
};
use shop::{MarkDown, Shop, digest};

/// What the agent would like to do, again and again.
const WISHES: [(&str, i64, &str); 4] = [
    ("green tea", 15, "harvest of last year, make room for the new one"),
    ("teaware", 30, "the handles come off"),
    ("black tea", 5, "the shop next door is cheaper"),
    ("coffee", 10, "roasted too long ago"),
];

fn main() -> Result<(), BoxError> {
    let directory = directory()?;
    let (shop_file, gate_file) = (directory.join("shop.db"), directory.join("gate.db"));
    let mut shop = Shop::create(&shop_file)?;
    let gate = Gate::open(&gate_file)?;

    // The card shows prices, not JSON. What it leaves out is shown nowhere.
    let server = ApprovalServer::builder(&gate)
        .reviewer("store-manager")
        .title("Shop: changes of prices")
        .render_plan(move |plan| card(&shop_file, plan))
        .on_decision(|attempt| match attempt.outcome {
            Ok(decision) => println!("  {}: the plan is now {}", attempt.reviewer, decision.state),
            Err(error) => println!("  {}: refused, {error}", attempt.reviewer),
        })
        .serve(0)?;
    println!("Listening on {}. The link is in {}.owners/", server.address(), gate.path().display());

    let agent = gate.agent("pricing-agent")?;
    for (category, percent, reason) in WISHES.into_iter().cycle() {
        let change = MarkDown { category: category.to_owned(), percent };
        let plan = propose(&agent, &shop, &change, reason)?;
        println!("The agent proposes: {percent} % off all {category} ({reason}).");
        if wait(&agent, &plan)? == State::Approved {
            run(&agent, &mut shop, &plan, &change);
        }
        std::thread::sleep(Duration::from_secs(3));
    }
    Ok(())
}

/// The tool "preview": looks at what would change, and stores the plan.
fn propose(agent: &Agent, shop: &Shop, change: &MarkDown, reason: &str) -> Result<Created, BoxError> {
    let products = shop.products(&change.category)?;
    Ok(agent.create(
        NewPlan::new("mark_down", change, Approval::required())
            .reason(reason)
            .preview_count(products.len())
            .data_digest(digest(&products)?)
            .ttl(Duration::from_secs(5 * 60)),
    )?)
}

/// Until the person decided, or the time was over.
fn wait(agent: &Agent, plan: &Created) -> Result<State, BoxError> {
    loop {
        match agent.plan(&plan.plan_token)?.state {
            State::AwaitingApproval => std::thread::sleep(Duration::from_millis(200)),
            State::Expired => {
                println!("  nobody decided in time");
                return Ok(State::Expired);
            }
            decided => return Ok(decided),
        }
    }
}

/// The tool "execute".
fn run(agent: &Agent, shop: &mut Shop, plan: &Created, change: &MarkDown) {
    let answer = shop.products(&change.category).and_then(|now| {
        let redeem = Redeem::new(&plan.plan_token, "mark_down").payload(change).data_digest(digest(&now)?);
        agent
            .execute(redeem, |claim| {
                shop.mark_down(claim.plan_token().as_str(), &claim.payload_as()?).map_err(Failure::unknown)
            })
            .map_err(BoxError::from)
    });
    match answer {
        Ok(changed) => println!("  {changed} prices changed"),
        Err(no) => println!("  not run: {no}"),
    }
}

/// What the person reads: each price before and after.
fn card(shop: &Path, pending: &PendingPlan) -> Result<Rendered, BoxError> {
    let change: MarkDown = serde_json::from_str(pending.plan.payload.as_str())?;
    let products = Shop::open(shop)?.products(&change.category)?;
    let lines = products.iter().map(|product| {
        let after = (product.price_cents * (100 - change.percent) + 50) / 100;
        format!("{}  {} -> {}  {}", product.sku, euros(product.price_cents), euros(after), product.name)
    });
    Ok(Rendered::new()
        .title(format!("Mark {} down by {} %", change.category, change.percent))
        .detail("category", &change.category)
        .detail("prices", lines.collect::<Vec<_>>().join("\n")))
}

fn euros(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// The directory that was named, or a new temporary one.
fn directory() -> Result<PathBuf, BoxError> {
    match std::env::args_os().nth(1) {
        Some(directory) => {
            let directory = PathBuf::from(directory);
            std::fs::create_dir_all(&directory)?;
            Ok(directory)
        }
        None => Ok(tempfile::Builder::new().prefix("countersign-page-").tempdir()?.keep()),
    }
}
