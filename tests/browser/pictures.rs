//! Pictures of the page. With `COUNTERSIGN_PICTURES=DIRECTORY` they are kept; one of them stands in the README.

use std::path::PathBuf;
use std::time::Duration;

use countersign::{Agent, Approval, ApprovalServer, Gate, NewPlan, Redeem, Rendered};
use serde_json::json;

use super::common;
use super::driver::{Browser, with_browser};

impl Browser {
    /// Takes a picture; a page that is blank would be far smaller than this.
    pub(crate) async fn picture(&self, name: &str) {
        let png = self.client.screenshot().await.unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 5_000, "{name} is no picture of a page");
        if let Some(directory) = std::env::var_os("COUNTERSIGN_PICTURES") {
            std::fs::write(PathBuf::from(directory).join(format!("{name}.png")), png).unwrap();
        }
    }
}

/// A queue as a shop has it on a bad day.
fn furnish(gate: &Gate) {
    let agent = gate.agent("pricing-agent").unwrap();
    let rejected = json!({"category": "coffee", "percent": 40});
    let first = agent.create(NewPlan::new("mark_down", &rejected, Approval::required())).unwrap();
    gate.reviewer("store-manager").unwrap().reject(&first.plan_token, Some("below what we pay for it")).unwrap();
    let done =
        agent.create(NewPlan::new("reorder", &json!({"sku": "BT-101", "boxes": 4}), Approval::NotNeeded)).unwrap();
    agent.execute(Redeem::stored(&done.plan_token, "reorder"), |_| Ok("ordered")).unwrap();
    let stuck =
        agent.create(NewPlan::new("reorder", &json!({"sku": "BT-102", "boxes": 2}), Approval::NotNeeded)).unwrap();
    drop(agent.begin_execute(Redeem::stored(&stuck.plan_token, "reorder")).unwrap());

    create(&agent, "mark_down", &json!({"category": "green tea", "percent": 15}), 600, |plan| {
        plan.reason("harvest of last year, make room for the new one").preview_count(23).idempotency_key("call-7f21")
    });
    create(&agent, "mark_down", &rejected, 900, |plan| {
        plan.reason("roasted too long ago\u{202E}, approved by the owner").preview_count(17)
    });
    let supplier = json!({"supplier": "Hoffmann & Co"});
    let quorum = NewPlan::new("delete_supplier", &supplier, Approval::Required { quorum: 2 });
    let plan = agent.create(quorum.ttl(Duration::from_secs(1200)).reason("no order for two years")).unwrap();
    gate.reviewer("accountant").unwrap().approve(&plan.plan_token, &plan.seal).unwrap();
}

fn create(
    agent: &Agent,
    tool: &str,
    payload: &serde_json::Value,
    seconds: u64,
    more: impl FnOnce(NewPlan<'_>) -> NewPlan<'_>,
) {
    let plan = NewPlan::new(tool, payload, Approval::required()).ttl(Duration::from_secs(seconds));
    agent.create(more(plan)).unwrap();
}

fn server(gate: &Gate) -> ApprovalServer {
    ApprovalServer::builder(gate)
        .reviewer("store-manager")
        .title("Shop: changes of prices")
        .render_plan(|pending| {
            let payload: serde_json::Value = serde_json::from_str(pending.plan.payload.as_str())?;
            let rendered = match pending.plan.tool.as_str() {
                "mark_down" => {
                    let category = payload["category"].as_str().unwrap_or_default();
                    let prices: Vec<_> = (1..=if category == "coffee" { 30 } else { 5 })
                        .map(|n| format!("SKU-{n:03}  {}.90 -> {}.32", n + 4, n + 3))
                        .collect();
                    Rendered::new()
                        .title(format!("Mark {category} down by {} %", payload["percent"]))
                        .detail("category", category)
                        .detail("prices", prices.join("\n"))
                }
                tool => {
                    Rendered::new().title(tool).detail("supplier", payload["supplier"].as_str().unwrap_or_default())
                }
            };
            Ok(rendered)
        })
        .serve(0)
        .unwrap()
}

#[test]
fn the_page_can_be_shown_in_every_light() {
    let gate = common::ephemeral(|builder| builder);
    furnish(&gate);
    let server = server(&gate);
    let link = server.link("store-manager").unwrap();
    with_browser(&[], |browser| async move {
        browser.size(960, 900).await;
        browser.client.goto(&link).await.unwrap();
        browser.until("three cards are armed", "document.querySelectorAll('.card .reject:enabled').length === 3").await;
        browser.picture("queue-light").await;
        browser.dark(true).await;
        browser.picture("queue-dark").await;
        browser.size(375, 900).await;
        browser.picture("queue-375-dark").await;
        browser.dark(false).await;
        browser.picture("queue-375").await;
        browser.click("#to-history").await;
        browser.until("rows are there", "document.querySelectorAll('#rows tbody tr').length > 5").await;
        browser.picture("history-375").await;
        browser.size(960, 900).await;
        browser.picture("history-light").await;
        browser.dark(true).await;
        browser.picture("history-dark").await;
        browser.click("#rows tr:last-child button, #rows td[data-name=Plan] button").await;
        browser.until("the timeline is there", "!document.querySelector('#timeline').hidden").await;
        browser.picture("timeline-dark").await;
    });
    server.close();
}

#[test]
fn an_empty_queue_and_a_missing_link_are_said_plainly() {
    let gate = common::ephemeral(|builder| builder);
    let server = server(&gate);
    let (link, address) = (server.link("store-manager").unwrap(), server.address());
    with_browser(&[401], move |browser| async move {
        browser.client.goto(&format!("http://{address}/")).await.unwrap();
        browser.until("it asks for the link", "!document.querySelector('#ask').hidden").await;
        browser.picture("ask").await;
        browser.client.goto(&link).await.unwrap();
        browser.until("it is empty", "document.querySelector('#empty').checkVisibility()").await;
        assert!(browser.text("#empty").await.contains("Nothing waits for a decision."));
        assert_eq!(browser.client.title().await.unwrap(), "Shop: changes of prices");
        browser.picture("empty").await;
    });
    server.close();
}
