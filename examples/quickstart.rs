//! An agent marks down a category of a shop: it proposes, a person countersigns, the host runs it once, and the file
//! remembers all of it.
//!
//!     cargo run --example quickstart [DIRECTORY]
//!
//! It needs no network, ends in seconds, and leaves two databases to look at: `shop.db`, which the agent wanted to
//! change, and `gate.db`, which holds the plans and their audit.
#![allow(clippy::disallowed_methods, reason = "an example, with files of its own")]

mod shop;

use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign::escape::visible;
use countersign::{Agent, Approval, BoxError, Created, Failure, Gate, NewPlan, Outcome, Redeem};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use shop::{MarkDown, Shop, digest};

/// The host's rule, in the host's code: an agent changes this many prices by itself, more needs a person.
const FREE_HAND: usize = 20;

// ---- The two tools that a host gives to its agent -------------------------------------------------------------------

/// Looks at what would change and stores the plan. Nothing runs.
fn preview(agent: &Agent, shop: &Shop, change: &MarkDown, reason: &str) -> Result<Created, BoxError> {
    let products = shop.products(&change.category)?;
    let approval = if products.len() > FREE_HAND { Approval::required() } else { Approval::NotNeeded };
    Ok(agent.create(
        NewPlan::new("mark_down", change, approval)
            .reason(reason)
            .preview_count(products.len())
            .data_digest(digest(&products)?),
    )?)
}

/// Redeems a plan: claims it, changes the prices, records the result. Answers what an agent gets to see.
fn run(agent: &Agent, shop: &mut Shop, token: &str, change: &MarkDown) -> Result<Value, BoxError> {
    let now = digest(&shop.products(&change.category)?)?;
    let redeem = Redeem::new(token, "mark_down").payload(change).data_digest(now);
    let answer = agent.execute(redeem, |claim| {
        let planned: MarkDown = claim.payload_as()?;
        shop.mark_down(claim.plan_token().as_str(), &planned).map_err(Failure::unknown)
    });
    Ok(match answer {
        Ok(changed) => json!({"ok": true, "changed": changed}),
        Err(no) => json!({"ok": false, "code": no.code(), "message": no.to_string(), "hint": no.hint()}),
    })
}

// ---- The story ------------------------------------------------------------------------------------------------------

fn main() -> Result<(), BoxError> {
    let directory = directory()?;
    let (shop_file, gate_file) = (directory.join("shop.db"), directory.join("gate.db"));
    let mut shop = Shop::create(&shop_file)?;
    let (products, categories) = shop.size()?;
    println!("A shop with {products} products in {categories} categories, from examples/data/products.csv.");

    // Every start of a host: open, then let recovery ask the shop's ledger about claims that a crash left behind.
    let gate = Gate::builder(&gate_file)
        .reconcile(move |stuck| {
            Ok(match Shop::open(&shop_file)?.receipt(stuck.plan_token.as_str())? {
                Some(changed) => Outcome::done(&changed),
                None => Outcome::NotDone,
            })
        })
        .open()?;
    gate.operator("startup")?.recover()?;
    let agent = gate.agent("pricing-agent")?;
    let reviewer = gate.reviewer("store-manager")?;

    step("The agent previews a mark-down of all green tea by 15 %");
    let green_tea = MarkDown { category: "green tea".to_owned(), percent: 15 };
    let plan = preview(&agent, &shop, &green_tea, "harvest of last year, make room for the new one")?;
    let sencha = |shop: &Shop| -> Result<i64, BoxError> { Ok(shop.products("green tea")?[0].price_cents) };
    say(&format!(
        "plan {:.8}… is {}; the first of its prices is {} cents",
        plan.plan_token,
        plan.state,
        sencha(&shop)?
    ));

    step("It tries to run before a person has looked");
    refused("AWAITING_APPROVAL", &run(&agent, &mut shop, plan.plan_token.as_str(), &green_tea)?)?;

    step("A reviewer reads the card and countersigns its seal");
    let card = &reviewer.pending(10)?.items[0].plan;
    say(&format!("{} wants {} {}", card.caller, card.tool, visible(card.payload.as_str())));
    // What an agent wrote is data: never show it without the escaper.
    let why = visible(card.reason.as_deref().unwrap_or(""));
    say(&format!("affects {} products, in the agent's words: {why}", card.preview_count.unwrap_or(0)));
    let decision = reviewer.approve(&card.plan_token, &card.seal)?;
    say(&format!("{} approved seal {:.8}…: the plan is {}", reviewer.name(), card.seal, decision.state));

    step("The agent runs it: claim, UPDATE in shop.db, confirm");
    let answer = run(&agent, &mut shop, plan.plan_token.as_str(), &green_tea)?;
    let state = agent.plan(&plan.plan_token)?.state;
    say(&format!("{answer}; the first price is {} cents; the plan is {state}", sencha(&shop)?));

    step("A second run of the same plan");
    refused("PLAN_USED", &run(&agent, &mut shop, plan.plan_token.as_str(), &green_tea)?)?;

    step("10 % off coffee is approved; the agent presents 40 %");
    let coffee = MarkDown { category: "coffee".to_owned(), percent: 10 };
    let plan_b = preview(&agent, &shop, &coffee, "slow week")?;
    reviewer.approve(&plan_b.plan_token, &plan_b.seal)?;
    let more = MarkDown { percent: 40, ..coffee.clone() };
    refused("PLAN_MISMATCH", &run(&agent, &mut shop, plan_b.plan_token.as_str(), &more)?)?;

    step("Somebody changes a coffee price by hand; then the agent presents the approved 10 %");
    shop.set_price("CO-101", 1_090)?;
    refused("DATA_DIGEST_MISMATCH", &run(&agent, &mut shop, plan_b.plan_token.as_str(), &coffee)?)?;

    step("A small plan needs nobody, but the reviewer says no");
    let oolong = MarkDown { category: "oolong and white".to_owned(), percent: 60 };
    let plan_c = preview(&agent, &shop, &oolong, "clearance")?;
    say(&format!("plan {:.8}… is {}", plan_c.plan_token, plan_c.state));
    reviewer.reject(&plan_c.plan_token, Some("below what we pay for it"))?;
    refused("PLAN_REJECTED", &run(&agent, &mut shop, plan_c.plan_token.as_str(), &oolong)?)?;

    step("The agent proposes the same again: it needs a person now, who sees the earlier no");
    let again = preview(&agent, &shop, &oolong, "clearance, second try")?;
    let no = again.earlier_rejection.ok_or("the earlier rejection was forgotten")?;
    say(&format!("plan {:.8}… is {}", again.plan_token, again.state));
    say(&format!("earlier, {} said: {}", no.reviewer, visible(no.reason.as_deref().unwrap_or(""))));
    refused("AWAITING_APPROVAL", &run(&agent, &mut shop, again.plan_token.as_str(), &oolong)?)?;

    step("A plan that was left lying past its time");
    let pantry = MarkDown { category: "pantry".to_owned(), percent: 5 };
    let short = NewPlan::new("mark_down", &pantry, Approval::NotNeeded).ttl(Duration::from_millis(20));
    let plan_d = agent.create(short)?;
    std::thread::sleep(Duration::from_millis(40));
    refused("PLAN_EXPIRED", &run(&agent, &mut shop, plan_d.plan_token.as_str(), &pantry)?)?;

    step("What became of the first plan, by plain SQL on a read-only connection");
    print_history(&gate_file, plan.plan_token.as_str())?;

    step("The audit chain");
    let head = gate.operator("auditor")?.audit().head()?;
    let report = gate.operator("auditor")?.audit().verify(Some(&head))?;
    match report.difference {
        None => say(&format!("{} rows and {} plans agree; head {head}", report.rows, report.plans)),
        Some(difference) => return Err(difference.to_string().into()),
    }

    println!("\nBoth databases stay for you, in {}", directory.display());
    println!("  sqlite3 -readonly -box {}/gate.db \"SELECT * FROM audit_log\"", directory.display());
    println!(
        "  sqlite3 -readonly -box {}/shop.db \"SELECT * FROM products WHERE category = 'green tea'\"",
        directory.display()
    );
    Ok(())
}

/// Shows a refusal as the agent sees it; any other answer ends the example.
fn refused(code: &str, answer: &Value) -> Result<(), BoxError> {
    if answer["code"] != code {
        return Err(format!("expected {code}, got {answer}").into());
    }
    say(&format!("refused {code}: {}", answer["message"].as_str().unwrap_or("")));
    say(&format!("hint: {}", answer["hint"].as_str().unwrap_or("")));
    Ok(())
}

fn print_history(gate_file: &Path, token: &str) -> Result<(), BoxError> {
    let connection = Connection::open_with_flags(gate_file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement = connection.prepare(
        "SELECT seq, at, event, iif(from_state = to_state, to_state, coalesce(from_state || ' → ', '') || to_state), actor, coalesce(code, ''),
                coalesce(reason, '')
           FROM plan_timeline WHERE plan_token = ?1 ORDER BY seq",
    )?;
    let rows = statement.query_map([token], |row| {
        let seq: i64 = row.get(0)?;
        Ok([seq.to_string(), row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?])
    })?;
    let mut table = vec![["seq", "at", "event", "state", "actor", "code", "reason"].map(str::to_owned)];
    for row in rows {
        table.push(row?);
    }
    for row in &table {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            format!("{cell:width$}")
        });
        say(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    Ok(())
}

fn step(title: &str) {
    println!("\n{title}");
}

fn say(text: &str) {
    println!("  {text}");
}

/// The directory of the first argument, or a new one.
fn directory() -> Result<PathBuf, BoxError> {
    match std::env::args_os().nth(1) {
        Some(given) => {
            let given = PathBuf::from(given);
            std::fs::create_dir_all(&given)?;
            if given.join("shop.db").exists() {
                return Err(format!("{} holds a shop already: name another directory", given.display()).into());
            }
            Ok(given)
        }
        None => Ok(tempfile::Builder::new().prefix("countersign-quickstart-").tempdir()?.keep()),
    }
}
