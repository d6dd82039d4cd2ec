//! A host in a process of its own: this test binary, run again. It does what it is told on its standard input, a line
//! an order, and answers a line for each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use countersign::{Approval, Gate, NewPlan, Redeem};

const DB: &str = "COUNTERSIGN_TEST_HOST_DB";
const MARK: &str = "host> ";
const TOOL: &str = "update_prices";

/// A text that no terminal, table or spreadsheet must believe.
pub(crate) const HOSTILE: &str = "=cmd|'/c calc'!A1 \u{1b}[2J\u{9b}31m\u{202e}gnp.exe\u{7}\r\n\u{200b}ok \\n";

pub(crate) struct Host {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Host {
    pub(crate) fn start(db: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["host::a_host_answers_every_order", "--exact", "--nocapture"])
            .env(DB, db)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut host = Self { child, orders, answers };
        assert_eq!(host.tell("hello"), "hello");
        host
    }

    /// One order, and its answer.
    #[track_caller]
    pub(crate) fn tell(&mut self, order: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the host is gone");
            // The test harness writes on the same line.
            if let Some((_, answer)) = line.trim_end().split_once(MARK) {
                return answer.to_owned();
            }
        }
    }

    /// As a power cut would end it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.orders = None;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The end of its orders is its end.
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// The host itself, when it is started as one; otherwise a test that one starts and answers.
#[test]
fn a_host_answers_every_order() {
    let Some(db) = std::env::var_os(DB) else {
        let dir = super::run::directory();
        let mut host = Host::start(&dir.path().join("gate.db"));
        let token = host.tell("plan 1");
        assert_eq!(token.len(), 48, "{token}");
        assert_eq!(host.tell(&format!("run {token}")), "executed");
        return;
    };
    let gate = Gate::builder(db).ttl(Duration::from_secs(23 * 3600 + 1799)).open().unwrap();
    let agent = gate.agent("pricing-agent").unwrap();
    let mut claims = Vec::new();
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let (verb, argument) = order.split_once(' ').unwrap_or((&order, ""));
        let payload = serde_json::json!({"category": argument, "percent": 10});
        let plan = |approval| NewPlan::new(TOOL, &payload, approval).reason("weekly price run").preview_count(120);
        let answer = match verb {
            "hello" => Ok("hello".to_owned()),
            "plan" => agent.create(plan(Approval::NotNeeded)).map(|made| made.plan_token.to_string()),
            "brief" => agent
                .create(plan(Approval::NotNeeded).ttl(Duration::from_millis(1)))
                .map(|made| made.plan_token.to_string()),
            "gated" => agent.create(plan(Approval::required())).map(|made| made.plan_token.to_string()),
            "quorum" => agent.create(plan(Approval::Required { quorum: 2 })).map(|made| made.plan_token.to_string()),
            "hostile" => {
                let payload = serde_json::json!({"say": HOSTILE});
                let plan = NewPlan::new(TOOL, &payload, Approval::required()).reason(HOSTILE);
                agent.create(plan).map(|made| made.plan_token.to_string())
            }
            "claim" => agent.begin_execute(Redeem::stored(argument, TOOL)).map(|claim| {
                claims.push(claim);
                "claimed".to_owned()
            }),
            "run" => agent
                .begin_execute(Redeem::stored(argument, TOOL))
                .and_then(|mut claim| claim.confirm_executed(&"done"))
                .map(|settled| settled.state.to_string()),
            other => panic!("no order: {other}"),
        };
        println!("{MARK}{}", answer.unwrap_or_else(|error| format!("{}: {error}", error.code())));
    }
}
