//! After a crash, and housekeeping.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use countersign::{Liveness, Outcome as Verified, PlanToken, Settled, State, StuckPlan};
use serde_json::json;

use crate::args;
use crate::card;
use crate::decide::ask;
use crate::fail::{Failure, Outcome};
use crate::out::{Cell, Out};
use crate::progress::Progress;
use crate::session::Session;
use crate::when::relative;

pub(crate) fn executing(session: &Session, limit: u32, out: &mut Out) -> Outcome {
    let listing = session.operator(None)?.executing(limit)?;
    if out.is_json() {
        let plans: Vec<_> = listing
            .items
            .iter()
            .map(|stuck| {
                let mut plan = card::plan_json(&stuck.plan);
                plan["owner"] = json!(stuck.owner);
                plan["host_name"] = json!(stuck.host_name);
                plan["pid"] = json!(stuck.pid);
                plan
            })
            .collect();
        return out.json(&json!({"plans": plans, "total": listing.total}));
    }
    if listing.items.is_empty() && out.is_terminal() {
        return out.line("Nothing is claimed.");
    }
    let rows: Vec<_> = listing.items.iter().map(row).collect();
    out.table(&["plan", "tool", "caller", "state", "attempt", "claimed", "owner", "host", "pid"], &rows)?;
    if out.is_terminal() {
        if listing.total > listing.items.len() as u64 {
            out.line(&format!("{} of {}: raise --limit to see more.", listing.items.len(), listing.total))?;
        }
        out.line("uncertain: find out what happened, then settle. alive: leave it to its host. dead: recover, then settle. unknown: make sure that it is gone, then mark-interrupted.")?;
    }
    Ok(())
}

fn row(stuck: &StuckPlan) -> Vec<Cell> {
    let plan = &stuck.plan;
    let owner = match stuck.owner {
        Liveness::Alive => "alive",
        Liveness::Dead => "dead",
        // Recovered: its owner was found dead and forgotten, and only a person's word is missing.
        Liveness::Unknown if plan.state == State::Uncertain => "-",
        Liveness::Unknown => "unknown",
    };
    vec![
        Cell::text(plan.plan_token.as_str()),
        Cell::text(&plan.tool),
        Cell::text(&plan.caller),
        Cell::text(plan.state.as_str()),
        Cell::number(plan.attempt),
        Cell::number(plan.executing_since.map_or_else(String::new, relative)),
        Cell::text(owner),
        Cell::maybe(stuck.host_name.as_deref()),
        stuck.pid.map_or(Cell::text(""), Cell::number),
    ]
}

pub(crate) fn recover(session: &Session, by: Option<&str>, out: &mut Out) -> Outcome {
    let report = session.operator(by)?.recover()?;
    let tokens = |tokens: &[PlanToken]| tokens.iter().map(ToString::to_string).collect::<Vec<_>>();
    if out.is_json() {
        let settled: Vec<_> =
            report.settled.iter().map(|(token, state)| json!({"plan_token": token, "state": state.as_str()})).collect();
        let errors: Vec<_> =
            report.errors.iter().map(|(token, error)| json!({"plan_token": token, "error": error})).collect();
        out.json(&json!({
            "settled": settled,
            "uncertain": tokens(&report.uncertain),
            "alive": tokens(&report.alive),
            "unknown_owner": tokens(&report.unknown_owner),
            "errors": errors,
            "not_asked": tokens(&report.not_asked),
            "instances_removed": report.instances_removed,
        }))?;
    } else {
        let groups = [
            ("uncertain", &report.uncertain, "find out what happened to each, and settle it"),
            ("owner alive", &report.alive, "left to their hosts"),
            ("owner unknown", &report.unknown_owner, "make sure that their hosts are gone, then mark-interrupted"),
            ("not asked", &report.not_asked, "run recover again"),
        ];
        for (what, tokens, advice) in groups.into_iter().filter(|(_, tokens, _)| !tokens.is_empty()) {
            out.line(&format!("{} {what}: {advice}", tokens.len()))?;
            for token in tokens {
                out.line(&format!("  {token}"))?;
            }
        }
        for (token, state) in &report.settled {
            out.line(&format!("settled {token}: {state}"))?;
        }
        for (token, error) in &report.errors {
            out.line(&format!("not settled {token}: {}", countersign::escape::still_visible(error)))?;
        }
        out.line(&format!("{} dead instances forgotten.", report.instances_removed))?;
    }
    if report.errors.is_empty() { Ok(()) } else { Err(Failure::Found) }
}

pub(crate) fn settle(session: &Session, settle: &args::Settle, out: &mut Out) -> Outcome {
    let misplaced = match settle.outcome {
        args::Verified::Done => settle.error.as_ref().map(|_| "--error goes with --outcome failed"),
        args::Verified::NotDone => (settle.error.is_some() || settle.result.is_some())
            .then_some("--outcome not-done takes no --result or --error"),
        args::Verified::Failed => settle.result.as_ref().map(|_| "--result goes with --outcome done"),
    };
    if let Some(misplaced) = misplaced {
        return Err(Failure::usage("USAGE", misplaced, "Leave it out, or name the other outcome."));
    }
    let outcome = match settle.outcome {
        args::Verified::Done => Verified::Done(settle.result.clone().unwrap_or_default()),
        args::Verified::NotDone => Verified::NotDone,
        args::Verified::Failed => {
            Verified::Failed(settle.error.clone().unwrap_or_else(|| "settled as failed by an operator".to_owned()))
        }
    };
    let settled = session.operator(Some(&settle.by))?.settle(&settle.token, &outcome)?;
    settlement(session, &settle.token, &settle.by, settled, out)
}

fn settlement(session: &Session, token: &str, by: &str, settled: Settled, out: &mut Out) -> Outcome {
    if out.is_json() {
        return out.json(&json!({
            "plan_token": token, "state": settled.state.as_str(), "already": settled.already,
            "operator": by, "channel": session.channel(),
        }));
    }
    if settled.already {
        return out.line(&format!("Nothing changed: it is {} already.", settled.state));
    }
    out.line(&format!("It is {} now. Recorded as {by} via {}.", settled.state, session.channel()))
}

pub(crate) fn mark(session: &Session, token: &str, attempt: u32, by: &str, out: &mut Out) -> Outcome {
    let settled = session.operator(Some(by))?.mark_interrupted_as_uncertain(token, attempt)?;
    settlement(session, token, by, settled, out)
}

pub(crate) fn accept_restore(session: &Session, by: &str, yes: bool, out: &mut Out) -> Outcome {
    let operator = session.operator(Some(by))?;
    if !yes {
        let on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !on_terminal {
            let hint = "Run it at a terminal, or add --yes.";
            return Err(Failure::usage("NEEDS_TERMINAL", "nobody is there to answer", hint));
        }
        ask(true, "Accept the file as it is? Every open plan expires, every executing one becomes uncertain.", out)?;
    }
    let report = operator.accept_restore()?;
    if out.is_json() {
        return out.json(&json!({
            "expired": report.expired, "uncertain": report.uncertain, "already": report.already,
            "operator": by, "channel": session.channel(),
        }));
    }
    if report.already {
        return out.line("Nothing changed: the file is not behind what was seen of it, and no backup.");
    }
    out.line(&format!(
        "Accepted: {} plans expired, {} are uncertain. Reopen every host that has the file open.",
        report.expired, report.uncertain
    ))
}

pub(crate) fn sweep(session: &Session, by: Option<&str>, out: &mut Out) -> Outcome {
    let swept = session.operator(by)?.sweep()?;
    if out.is_json() {
        return out.json(&json!({"expired": swept}));
    }
    out.line(&format!("{swept} plans past their time are expired now."))
}

pub(crate) fn purge(session: &Session, older_than: Duration, by: Option<&str>, out: &mut Out) -> Outcome {
    let mut progress = Progress::new("purge", out);
    let purged = session.operator(by)?.purge_with(older_than, &mut |purged, seen| {
        progress.show(|| format!("{purged} plans purged, {seen} looked at"));
    })?;
    drop(progress);
    if out.is_json() {
        return out.json(&json!({"purged": purged}));
    }
    out.line(&format!("{purged} settled plans purged; their tombstones and audit rows stay."))
}

pub(crate) fn backup(session: &Session, file: &Path, out: &mut Out) -> Outcome {
    let report = session.operator(None)?.backup(file)?;
    if out.is_json() {
        return out.json(&json!({"path": report.path.to_string_lossy(), "bytes": report.bytes, "head": report.head}));
    }
    let path = report.path.to_string_lossy();
    out.line(&format!("{}: {} bytes, marked as a backup.", countersign::escape::visible(&path), report.bytes))?;
    out.line(&format!("audit head {}", report.head))?;
    out.line("Before a host can write to it: countersign --db FILE accept-restore --as NAME")
}

pub(crate) fn cell_row(label: &str, value: impl ToString) -> Vec<Cell> {
    vec![Cell::text(label), Cell::number(value)]
}
