//! A host in a process of its own that does what it is told, one line at a time.
//!
//! Each order is a JSON object with `op`; each answer is `ok <json>` or `no <code> <message>`.

use std::collections::HashMap;

use countersign::{Agent, Approval, Claim, Error, ExecuteError, Failure, Gate, NewPlan, Outcome, Redeem};
use serde_json::{Value, json};

use super::child::{Child, Start, hear, say};
use super::ledger::Ledger;

pub(crate) const TOOL: &str = "write_rows";

/// The role `host`.
pub(crate) fn role(args: &Value) {
    let path = args["path"].as_str().unwrap();
    let ledger = Ledger::beside(path);
    let mut builder = super::builder(path);
    if args["hook"] != json!("none") {
        builder = builder.reconcile(ledger.hook());
    }
    let gate = match builder.open() {
        Ok(gate) => gate,
        Err(error) => return say(&format!("failed {} {error}", error.code())),
    };
    let agent = gate.agent("agent").unwrap();
    say(&format!("open {}", gate.instance_id()));
    let mut host = Host { gate, agent, ledger, claims: HashMap::new() };
    loop {
        let line = hear();
        if line.is_empty() {
            return;
        }
        let order: Value = serde_json::from_str(&line).unwrap();
        match host.obey(&order) {
            Ok(answer) => say(&format!("ok {answer}")),
            Err(error) => say(&format!("no {} {error}", error.code())),
        }
    }
}

struct Host {
    gate: Gate,
    agent: Agent,
    ledger: Ledger,
    claims: HashMap<String, Claim>,
}

impl Host {
    fn obey(&mut self, order: &Value) -> Result<Value, Error> {
        let text = |key: &str| order[key].as_str().unwrap_or("").to_owned();
        let token = text("token");
        let operator = self.gate.operator("op")?;
        let op = text("op");
        if let "confirm" | "fail" | "uncertain" | "effect" | "check" = op.as_str() {
            let claim = self.claims.get_mut(&token).expect("a claim");
            let settled = match op.as_str() {
                "confirm" => claim.confirm_executed(&"done")?,
                "fail" => claim.confirm_failed("it failed")?,
                "uncertain" => claim.mark_uncertain("who knows")?,
                "check" => return claim.check().map(|()| json!({})),
                _ => {
                    self.ledger.apply(claim.plan_token(), claim.attempt());
                    return Ok(json!({}));
                }
            };
            return Ok(json!({"state": settled.state, "already": settled.already}));
        }
        match op.as_str() {
            "create" => {
                let approval = if order["gated"] == json!(true) { Approval::required() } else { Approval::NotNeeded };
                let created = self.agent.create(NewPlan::new(TOOL, &order["payload"], approval))?;
                Ok(json!({"token": created.plan_token, "seal": created.seal, "state": created.state}))
            }
            "approve" => Ok(json!(self.gate.reviewer("rev")?.approve(&token, text("seal"))?.state)),
            "reject" => Ok(json!(self.gate.reviewer("rev")?.reject(&token, Some("no"))?.state)),
            "claim" => {
                let claim = self.agent.begin_execute(Redeem::stored(&token, TOOL))?;
                let answer = json!({"attempt": claim.attempt(), "claim": claim.claim_token()});
                self.claims.insert(token, claim);
                Ok(answer)
            }
            "adopt" => {
                let attempt = u32::try_from(order["attempt"].as_u64().unwrap()).unwrap();
                let claim = self.agent.adopt(&token, attempt, &text("claim"))?;
                self.claims.insert(token, claim);
                Ok(json!({}))
            }
            "drop" => Ok(json!(self.claims.remove(&token).is_some())),
            // Says `inside` within the side effect, and goes on when it is told to.
            "execute" => {
                let done = self.agent.execute(Redeem::stored(&token, TOOL), |claim| {
                    say("inside");
                    hear();
                    self.ledger.apply(claim.plan_token(), claim.attempt());
                    Ok::<_, Failure>("done")
                });
                match done {
                    Ok(value) => Ok(json!(value)),
                    Err(ExecuteError::Gate(error) | ExecuteError::NotRecorded { source: error, .. }) => Err(error),
                    Err(other) => panic!("{other}"),
                }
            }
            "state" => Ok(json!(operator.plan(&token)?.state)),
            "recover" => {
                let report = operator.recover()?;
                Ok(json!({
                    "settled": report.settled, "uncertain": report.uncertain, "alive": report.alive,
                    "unknown_owner": report.unknown_owner, "errors": report.errors, "not_asked": report.not_asked,
                    "instances_removed": report.instances_removed,
                }))
            }
            "settle" => Ok(json!(operator.settle(&token, &Outcome::done(&"by hand"))?.state)),
            "settle_not_done" => Ok(json!(operator.settle(&token, &Outcome::NotDone)?.state)),
            "mark" => {
                let attempt = operator.plan(&token)?.attempt;
                Ok(json!(operator.mark_interrupted_as_uncertain(&token, attempt)?.state))
            }
            "reconcile" => Ok(json!(operator.reconcile(&token)?.state)),
            // A program of the host that outlives it.
            "spawn" => Ok(json!(std::process::Command::new("sleep").arg("600").spawn().unwrap().id())),
            "close" => self.gate.close().map(|()| json!({})),
            other => panic!("no order: {other}"),
        }
    }
}

/// Starts a host on this file.
pub(crate) fn start(path: &std::path::Path) -> Child {
    start_by(Start::plain(), path)
}

pub(crate) fn start_by(start: Start, path: &std::path::Path) -> Child {
    let child = start.role("host", &json!({"path": path.to_str().unwrap()}));
    child.expect("open");
    child
}

impl Child {
    /// Gives an order that has to be carried out.
    pub(crate) fn ask(&mut self, order: &Value) -> Value {
        self.tell(&order.to_string());
        serde_json::from_str(&self.expect("ok")).unwrap()
    }

    /// Gives an order that has to fail, and answers with the code.
    pub(crate) fn refused(&mut self, order: &Value) -> String {
        self.tell(&order.to_string());
        let said = self.expect("no");
        said.split(' ').next().unwrap().to_owned()
    }

    /// Creates a plan, and answers with its token.
    pub(crate) fn create(&mut self, payload: u64) -> String {
        let created = self.ask(&json!({"op": "create", "payload": payload}));
        created["token"].as_str().unwrap().to_owned()
    }

    /// An order about one plan.
    pub(crate) fn on(&mut self, op: &str, token: &str) -> Value {
        self.ask(&json!({"op": op, "token": token}))
    }

    pub(crate) fn refused_on(&mut self, op: &str, token: &str) -> String {
        self.refused(&json!({"op": op, "token": token}))
    }
}
