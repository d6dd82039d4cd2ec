//! An agent proposes writes on a shop's prices, and waits for the person at the page.
//!
//! `cargo run --example approval_page --features approval-server`, on a terminal: it prints the person's link.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use countersign::{
    Agent, Approval, ApprovalServer, Failure, Gate, NewPlan, PendingPlan, PlanToken, Redeem, Rendered, State,
};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

/// What the agent's tool takes.
#[derive(Serialize, Deserialize)]
struct Change {
    category: String,
    percent: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let shop = Arc::new(directory.path().join("shop.db"));
    open_shop(&Connection::open(&*shop)?)?;

    let gate = Gate::open(directory.path().join("gate.db"))?;
    let for_cards = shop.clone();
    let server = ApprovalServer::builder(&gate)
        .reviewer("ada")
        .title("Shop: price changes")
        .render_plan(move |plan| card(&for_cards, plan))
        .on_decision(|attempt| match attempt.outcome {
            Ok(decision) => println!("{}: {} is now {}", attempt.reviewer, short(&decision.plan_token), decision.state),
            Err(error) => println!("{}: {} was refused: {error}", attempt.reviewer, attempt.action.as_str()),
        })
        .serve(0)?;
    // The link is on the terminal, if there is one, and in this directory. It is never printed to a pipe.
    println!("port {}; the link also lies in {}.owners/", server.port(), gate.path().display());

    let agent = gate.agent("pricing-agent")?;
    let wishes =
        [("tea", -10, "Spring sale"), ("coffee", 5, "The importer raised its price"), ("cups", -50, "Clear the shelf")];
    let mut shop = Connection::open(&*shop)?;
    for (round, (category, percent, why)) in wishes.iter().cycle().enumerate() {
        let change =
            Change { category: (*category).to_owned(), percent: percent + i64::try_from(round / wishes.len())? };
        propose(&agent, &mut shop, &change, why)?;
        std::thread::sleep(Duration::from_secs(4));
    }
    Ok(())
}

/// Previews, proposes, waits for the decision, and runs what was approved.
fn propose(agent: &Agent, shop: &mut Connection, change: &Change, why: &str) -> Result<(), Box<dyn Error>> {
    let rows: usize =
        shop.query_row("SELECT count(*) FROM products WHERE category = ?1", [&change.category], |row| row.get(0))?;
    let plan = agent.create(
        NewPlan::new("update_prices", change, Approval::required())
            .reason(why)
            .preview_count(rows)
            .ttl(Duration::from_secs(120)),
    )?;
    println!("{} proposes {} ({why}) and waits", agent.caller(), short(&plan.plan_token));
    match wait(agent, &plan.plan_token)? {
        State::Approved => {
            let redeem = Redeem::new(&plan.plan_token, "update_prices").payload(change);
            let changed = agent.execute(redeem, |claim| apply(shop, &claim.payload_as()?, claim.plan_token()))?;
            println!("{}: {changed} prices changed", short(&plan.plan_token));
        }
        state => println!("{}: {state}, so nothing was changed", short(&plan.plan_token)),
    }
    Ok(())
}

/// Until somebody decided, or the plan expired.
fn wait(agent: &Agent, token: &PlanToken) -> Result<State, Box<dyn Error>> {
    loop {
        match agent.plan(token)?.state {
            State::AwaitingApproval => std::thread::sleep(Duration::from_millis(200)),
            decided => return Ok(decided),
        }
    }
}

/// The effect, with the plan token as its key: were it called twice, the second time would change nothing.
fn apply(shop: &mut Connection, change: &Change, token: &PlanToken) -> Result<usize, Failure> {
    let effect = shop.transaction()?;
    effect.execute("INSERT INTO applied (plan_token) VALUES (?1)", [token.as_str()])?;
    let changed = effect.execute(
        "UPDATE products SET cents = cents + cents * ?2 / 100 WHERE category = ?1",
        params![change.category, change.percent],
    )?;
    effect.commit()?;
    Ok(changed)
}

/// What the person reads: every price before and after, not the JSON.
fn card(shop: &std::path::Path, pending: &PendingPlan) -> Result<Rendered, Box<dyn Error + Send + Sync>> {
    let change: Change = serde_json::from_str(pending.plan.payload.as_str())?;
    let shop = Connection::open(shop)?;
    let mut products = shop.prepare("SELECT name, cents FROM products WHERE category = ?1 ORDER BY name")?;
    let lines = products.query_map([&change.category], |row| {
        let (name, cents): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok(format!("{name}: {} -> {}", euros(cents), euros(cents + cents * change.percent / 100)))
    })?;
    let prices = lines.collect::<Result<Vec<_>, _>>()?.join("\n");
    Ok(Rendered::new()
        .title(format!("Change the prices of {} by {} %", change.category, change.percent))
        .detail("prices", prices))
}

fn open_shop(shop: &Connection) -> rusqlite::Result<()> {
    shop.execute_batch(
        "CREATE TABLE products (name TEXT NOT NULL, category TEXT NOT NULL, cents INTEGER NOT NULL);
         CREATE TABLE applied (plan_token TEXT PRIMARY KEY);
         INSERT INTO products VALUES
           ('Assam', 'tea', 790), ('Darjeeling', 'tea', 1150), ('Sencha', 'tea', 990), ('Rooibos', 'tea', 540),
           ('Espresso', 'coffee', 1290), ('Filter roast', 'coffee', 1050),
           ('Mug, blue', 'cups', 900), ('Mug, white', 'cups', 850), ('Tea bowl', 'cups', 1400);",
    )
}

fn euros(cents: i64) -> String {
    format!("{}.{:02} EUR", cents / 100, cents % 100)
}

fn short(token: &PlanToken) -> &str {
    &token.as_str()[..8]
}
