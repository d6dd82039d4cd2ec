//! The smallest synchronous host: one agent, one reviewer, one write behind the gate.
//!
//! ```text
//! cargo run --example embed_sync
//! ```

use std::collections::BTreeMap;
use std::error::Error;

use countersign::{Approval, Gate, NewPlan, Redeem};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct SetPrice {
    sku: String,
    cents: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut shop = BTreeMap::from([("TEA-1".to_owned(), 450), ("TEA-2".to_owned(), 620)]);

    // A host opens a file of its own and calls `recover` before it serves: Gate::open("gate.db")?
    let gate = Gate::ephemeral()?;
    gate.operator("startup")?.recover()?;
    let agent = gate.agent("pricing-agent")?;

    // The agent proposes. The host's code decides whether a person has to look.
    let args = SetPrice { sku: "TEA-1".to_owned(), cents: 1 };
    let approval = if args.cents < 100 { Approval::required() } else { Approval::NotNeeded };
    let plan = agent.create(NewPlan::new("set_price", &args, approval).reason("clearance"))?;
    println!("the plan is {}", plan.state);

    // The agent tries at once, and is told to wait.
    let redeem = || Redeem::new(&plan.plan_token, "set_price").payload(&args);
    let refused = agent.begin_execute(redeem()).unwrap_err();
    println!("{}: {refused}. {}", refused.code(), refused.hint());

    // A person decides on exactly what the card shows; in a real host elsewhere, in another process or on the page.
    let reviewer = gate.reviewer("ada")?;
    let card = &reviewer.pending(10)?.items[0];
    println!("{} asks for {} with {}", card.plan.caller, card.plan.tool, card.plan.payload.as_str());
    reviewer.approve(&card.plan.plan_token, &card.plan.seal)?;

    // Now it runs, once: with what was approved, under the plan's token.
    let set = agent.execute(redeem(), |claim| {
        let approved: SetPrice = claim.payload_as()?;
        shop.insert(approved.sku, approved.cents);
        Ok(approved.cents)
    })?;
    println!("the price is {set} cents");
    let again = agent.execute(redeem(), |_| Ok(())).unwrap_err();
    println!("{}: {again}", again.code());
    Ok(())
}
