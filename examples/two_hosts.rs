//! Two host processes on one file. One is killed inside its side effect; the other one refuses to touch that plan while
//! its owner lives, and settles it after.
//!
//!     cargo run --example two_hosts
//!
//! It needs no network and ends in a second. The hosts are this program again; they talk over pipes.
#![allow(clippy::disallowed_methods, reason = "an example, with files of its own")]

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use countersign::{Approval, BoxError, ExecuteError, Gate, NewPlan, Outcome, Redeem};

const TOOL: &str = "send_money";

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("host") => host(Path::new(arguments.get(2).ok_or("a host needs a directory")?)),
        _ => story(),
    }
}

// ---- The story ------------------------------------------------------------------------------------------------------

fn story() -> Result<(), BoxError> {
    let directory = std::env::temp_dir().join(format!("countersign-two-hosts-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let ledger = Ledger(directory.join("ledger"));

    for dies_after_the_effect in [false, true] {
        println!("\nTwo hosts start on one file. Host A gets a proposal of its agent:");
        let mut a = Host::start("A", &directory)?;
        let mut b = Host::start("B", &directory)?;
        let token = a.ask("propose")?;
        let moment = if dies_after_the_effect { "after" } else { "before" };
        println!("Host A claims it and stands {moment} its side effect.");
        a.tell(&format!("run {moment} {token}"))?;
        a.expect("inside")?;

        println!("Host B starts up meanwhile. A lives, so B keeps its hands off:");
        b.ask("recover")?;
        b.ask(&format!("run now {token}"))?;
        b.ask(&format!("settle {token}"))?;

        println!("Host A is killed: kill -9, no goodbye");
        a.kill()?;

        println!("Host B recovers again. Now the owner is dead, and the ledger knows what happened:");
        b.ask("recover")?;
        if !dies_after_the_effect {
            println!("It had not happened, so the plan may run, once:");
        }
        b.ask(&format!("run now {token}"))?;
        let times = ledger.count(&token)?;
        println!("The side effect happened {times} time(s).");
        if times != 1 {
            return Err("a side effect has to happen once".into());
        }
        b.kill()?;
    }
    std::fs::remove_dir_all(&directory)?;
    println!("\nTwo hosts killed, two plans, each effect once.");
    Ok(())
}

/// A host process, and the pipes to it.
struct Host {
    name: &'static str,
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Host {
    fn start(name: &'static str, directory: &Path) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("host").arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let orders = process.stdin.take().ok_or("no pipe")?;
        let answers = BufReader::new(process.stdout.take().ok_or("no pipe")?).lines();
        let mut host = Self { name, process, orders, answers };
        host.expect("open")?;
        Ok(host)
    }

    fn tell(&mut self, order: &str) -> Result<(), BoxError> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    fn answer(&mut self) -> Result<String, BoxError> {
        Ok(self.answers.next().ok_or("the host is gone")??)
    }

    fn expect(&mut self, word: &str) -> Result<(), BoxError> {
        let said = self.answer()?;
        if said == word { Ok(()) } else { Err(format!("host {} said {said:?}", self.name).into()) }
    }

    /// Gives an order and shows it with its answer.
    fn ask(&mut self, order: &str) -> Result<String, BoxError> {
        self.tell(order)?;
        let answer = self.answer()?;
        let shown =
            |text: &str| text.split(' ').map(|word| word.get(..8).unwrap_or(word)).collect::<Vec<_>>().join(" ");
        println!(
            "  {}: {:24} {}",
            self.name,
            shown(order),
            if order == "propose" { shown(&answer) } else { answer.clone() }
        );
        Ok(answer)
    }

    fn kill(mut self) -> Result<(), BoxError> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

// ---- A host ---------------------------------------------------------------------------------------------------------

/// Where the side effect leaves its trace: one line a transfer, under the plan token.
#[derive(Clone)]
struct Ledger(PathBuf);

impl Ledger {
    fn transfer(&self, token: &str) -> Result<(), BoxError> {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0)?;
        Ok(file.write_all(format!("{token}\n").as_bytes())?)
    }

    fn count(&self, token: &str) -> Result<usize, BoxError> {
        let text = if self.0.exists() { std::fs::read_to_string(&self.0)? } else { String::new() };
        Ok(text.lines().filter(|line| *line == token).count())
    }
}

fn host(directory: &Path) -> Result<(), BoxError> {
    let ledger = Ledger(directory.join("ledger"));
    let looked_up = ledger.clone();
    let gate = Gate::builder(directory.join("gate.db"))
        .reconcile(move |stuck| {
            let happened = looked_up.count(stuck.plan_token.as_str())? > 0;
            Ok(if happened { Outcome::done(&"it stands in the ledger") } else { Outcome::NotDone })
        })
        .open()?;
    println!("open");
    let mut orders = std::io::stdin().lines();
    while let Some(order) = orders.next().transpose()? {
        let words: Vec<&str> = order.split(' ').collect();
        println!("{}", obey(&gate, &ledger, &words)?);
    }
    Ok(())
}

fn obey(gate: &Gate, ledger: &Ledger, order: &[&str]) -> Result<String, BoxError> {
    let agent = gate.agent("payments-agent")?;
    let operator = gate.operator("olga")?;
    Ok(match *order {
        ["propose"] => agent.create(NewPlan::new(TOOL, &100, Approval::NotNeeded))?.plan_token.as_str().to_owned(),
        ["run", moment, token] => {
            let done = agent.execute(Redeem::stored(token, TOOL), |claim| {
                let stand_still = |now: &str| {
                    if moment == now {
                        println!("inside");
                        // Nobody ever says that it may go on.
                        let _ = std::io::stdin().lines().next();
                    }
                };
                stand_still("before");
                ledger.transfer(claim.plan_token().as_str()).map_err(countersign::Failure::unknown)?;
                stand_still("after");
                Ok(())
            });
            match done {
                Ok(()) => "executed".to_owned(),
                Err(ExecuteError::Gate(no)) => format!("refused, {}: {no}", no.code()),
                Err(other) => return Err(other.into()),
            }
        }
        ["settle", token] => match operator.settle(token, &Outcome::NotDone) {
            Ok(settled) => format!("settled: {}", settled.state),
            Err(no) => format!("refused, {}: {no}", no.code()),
        },
        ["recover"] => {
            let report = operator.recover()?;
            let settled: Vec<_> = report.settled.iter().map(|(_, state)| state.as_str()).collect();
            format!("alive elsewhere: {}, settled: {settled:?}", report.alive.len())
        }
        _ => return Err(format!("no order: {order:?}").into()),
    })
}
