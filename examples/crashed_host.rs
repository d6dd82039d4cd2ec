//! A file as a crash leaves it, to try the terminal on: one plan waits for a person, one ran, and one was claimed by a
//! host that died inside its side effect.
//!
//!     cargo run --example crashed_host [-- DIRECTORY]
//!
//! It needs no network and ends in a second. The host that dies is this program again.
#![allow(clippy::disallowed_methods, reason = "an example, with files of its own")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersign::{Approval, BoxError, Claim, Failure, Gate, NewPlan, Redeem};
use serde_json::json;

const TOOL: &str = "send_money";

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["host", directory] => host(Path::new(directory)),
        [] => crash(&std::env::temp_dir().join(format!("countersign-crashed-host-{}", std::process::id()))),
        [directory] => crash(Path::new(directory)),
        _ => Err("give at most one argument: a new directory".into()),
    }
}

fn crash(directory: &Path) -> Result<(), BoxError> {
    std::fs::create_dir(directory)?;
    let directory = directory.canonicalize()?;
    let status = Command::new(std::env::current_exe()?).arg("host").arg(&directory).status()?;
    if status.code().is_some() {
        return Err(format!("the host was to die in the middle: {status}").into());
    }
    println!("A host died inside its side effect ({status}). What left the bank before stands in the ledger:");
    println!("  cat {}", ledger(&directory).display());
    println!("Find out what became of its plan, and record it. With the program `countersign` (feature `cli`):");
    println!("  countersign doctor, recover, executing, settle; pending, approve; audit verify");
    println!("  export COUNTERSIGN_DB={}", directory.join("gate.db").display());
    Ok(())
}

/// Proposes three payments as an agent would, runs two of them, and dies in the second.
fn host(directory: &Path) -> Result<(), BoxError> {
    let gate = Gate::open(directory.join("gate.db"))?;
    let agent = gate.agent("payments-agent")?;
    let waiting = json!({"to": "ACME Ltd", "cents": 250_000});
    agent.create(NewPlan::new(TOOL, &waiting, Approval::required()).reason("invoice 4711 is due"))?;
    for (to, dies) in [("Bloggs & Sons", false), ("Cafe Central", true)] {
        let payment = json!({"to": to, "cents": 1_990});
        let plan = agent.create(NewPlan::new(TOOL, &payment, Approval::NotNeeded).reason("office supplies"))?;
        agent.execute(Redeem::stored(&plan.plan_token, TOOL), |claim| {
            pay(directory, claim).map_err(Failure::unknown)?;
            if dies {
                std::process::abort();
            }
            Ok(json!({"sent": 1_990}))
        })?;
    }
    Ok(())
}

fn pay(directory: &Path, claim: &Claim) -> std::io::Result<()> {
    let mut ledger = OpenOptions::new().create(true).append(true).open(ledger(directory))?;
    writeln!(ledger, "{} {}", claim.plan_token(), claim.payload())
}

fn ledger(directory: &Path) -> PathBuf {
    directory.join("bank-ledger.txt")
}
