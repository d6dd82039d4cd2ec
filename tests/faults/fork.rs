//! A process that forks with a gate open.
#![allow(clippy::disallowed_methods, reason = "the child's answers, never a database")]

use std::path::Path;

use countersign::{Approval, NewPlan, Redeem};
use fork::Fork;
use serde_json::{Value, json};

use crate::common::child::{Child, hear, say};
use crate::common::tools::locks_of;
use crate::common::{self, host, invariants};

const TOOL: &str = "write_rows";

/// Forks with a claim open. The child of the fork tries everything, writes down what it heard, and lives until it is
/// told to end.
pub(crate) fn forking(args: &Value) {
    let path: &Path = args["path"].as_str().unwrap().as_ref();
    let answers = path.with_file_name("answers");
    let gate = common::builder(path).open().unwrap();
    let agent = gate.agent("agent").unwrap();
    let create = || agent.create(NewPlan::new(TOOL, &1, Approval::NotNeeded));
    let token = create().unwrap().plan_token;
    let other = create().unwrap().plan_token;
    let mut claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    let (wait, mut tell) = std::io::pipe().unwrap();
    let child = match fork::fork().unwrap() {
        Fork::Child => {
            drop(tell);
            let operator = gate.operator("op").unwrap();
            let heard = json!({
                "create": create().map(drop).map_err(|e| e.code()),
                "begin": agent.begin_execute(Redeem::stored(&other, TOOL)).map(drop).map_err(|e| e.code()),
                "plan": agent.plan(&token).map(drop).map_err(|e| e.code()),
                "confirm": claim.confirm_executed(&1).map(drop).map_err(|e| e.code()),
                "recover": operator.recover().map(drop).map_err(|e| e.code()),
                "close": gate.close().map_err(|e| e.code()),
                "open": common::builder(path).open().map(drop).map_err(|e| e.code()),
            });
            // What a fork inherited is dropped there, and that touches nothing of the parent's.
            drop((claim, agent, operator, gate));
            let part = answers.with_extension("part");
            std::fs::write(&part, heard.to_string()).unwrap();
            std::fs::rename(part, answers).unwrap();
            let mut end = Vec::new();
            std::io::Read::read_to_end(&mut { wait }, &mut end).unwrap();
            std::process::exit(0);
        }
        Fork::Parent(child) => child,
    };
    drop(wait);
    common::tools::until("the fork has tried everything", || answers.exists());
    say(&format!("heard {}", std::fs::read_to_string(&answers).unwrap()));
    assert!(locks_of(path), "the fork took the parent's locks along");
    claim.confirm_executed(&1).unwrap();
    // A second claim, open when the gate is closed.
    let token = create().unwrap().plan_token;
    let _claim = agent.begin_execute(Redeem::stored(&token, TOOL)).unwrap();
    gate.close().unwrap();
    say(&format!("closed {token}"));
    hear();
    std::io::Write::write_all(&mut tell, b".").unwrap();
    drop(tell);
    assert_eq!(fork::waitpid(child).unwrap(), 0);
}

#[test]
fn a_forked_child_gets_its_error_everywhere_and_the_parents_file_stays_sound() {
    let path = common::directory().join("gate.db");
    let mut parent = Child::start("forking", &json!({"path": path.to_str().unwrap()}));
    let heard: Value = serde_json::from_str(&parent.expect("heard")).unwrap();
    for (call, answer) in heard.as_object().unwrap() {
        assert_eq!(answer, &json!({"Err": "FORKED"}), "{call}");
    }
    assert_eq!(heard.as_object().unwrap().len(), 7);
    // The fork still has the parent's lock file open, and does not keep the closed instance alive.
    let token = parent.expect("closed");
    let mut other = host::start(&path);
    let report = other.ask(&json!({"op": "recover"}));
    assert_eq!(report["settled"], json!([[token, "previewed"]]), "{report}");
    other.finish();
    parent.tell("end");
    parent.finish();
    invariants::sound(&common::builder(&path).open().unwrap());
}
