//! Reviewing: what waits, one plan whole, and the decisions.

use std::io::{IsTerminal as _, Write as _};

use countersign::{AuditEvent, Decision, PendingPlan};
use serde_json::json;

use crate::args::{Decide, Lift, Reject};
use crate::audit;
use crate::card;
use crate::fail::{Failure, Outcome};
use crate::out::{Cell, Out, Style};
use crate::session::Session;
use crate::when::relative;

pub(crate) fn pending(session: &Session, limit: u32, out: &mut Out) -> Outcome {
    let listing = session.operator(None)?.name().to_owned();
    let listing = session.reviewer(&listing)?.pending(limit)?;
    if out.is_json() {
        let plans: Vec<_> = listing.items.iter().map(card::card_json).collect();
        return out.json(&json!({"plans": plans, "total": listing.total}));
    }
    if listing.items.is_empty() && out.is_terminal() {
        return out.line("Nothing waits for a decision.");
    }
    let rows: Vec<_> = listing.items.iter().map(row).collect();
    out.table(&["plan", "tool", "caller", "touches", "approvals", "expires", "reason"], &rows)?;
    if listing.total > listing.items.len() as u64 && out.is_terminal() {
        out.line(&format!("{} of {}: raise --limit to see more.", listing.items.len(), listing.total))?;
    }
    Ok(())
}

fn row(card: &PendingPlan) -> Vec<Cell> {
    let plan = &card.plan;
    vec![
        Cell::text(plan.plan_token.as_str()),
        Cell::text(&plan.tool),
        Cell::text(&plan.caller),
        plan.preview_count.map_or(Cell::text(""), Cell::number),
        Cell::number(format!("{}/{}", plan.approvals.len(), plan.approvals_needed)),
        Cell::number(relative(plan.expires_at)),
        Cell::maybe(plan.reason.as_deref()),
    ]
}

pub(crate) fn show(session: &Session, token: &str, out: &mut Out) -> Outcome {
    let operator = session.operator(None)?;
    let history = operator.history(token)?;
    let card = match session.reviewer(operator.name())?.card(token) {
        Ok(card) => Some(card),
        // Purged: the audit still tells its story.
        Err(error) if error.is_refused() => None,
        Err(error) => return Err(error.into()),
    };
    if out.is_json() {
        return out.json(&json!({"plan": card.as_ref().map(card::card_json), "timeline": history}));
    }
    match &card {
        Some(card) => {
            let lines = card::lines(card, out);
            out.line(&lines)?;
        }
        None => out.line(&format!("The row of plan {token} was purged; what is left is its timeline."))?,
    }
    out.line("")?;
    timeline(&history, out)
}

fn timeline(history: &[AuditEvent], out: &mut Out) -> Outcome {
    let rows: Vec<_> = history.iter().map(audit::timeline_row).collect();
    out.table(audit::TIMELINE, &rows)
}

pub(crate) fn approve(session: &Session, decide: &Decide, out: &mut Out) -> Outcome {
    let reviewer = session.reviewer(&decide.by)?;
    let card = reviewer.card(&decide.token)?;
    confirm(&card, decide.seal.is_some(), "Approve exactly this?", out)?;
    let seal = decide.seal.as_deref().unwrap_or(card.plan.seal.as_str());
    let decision = reviewer.approve(&decide.token, seal)?;
    decided(session, "approved", &decide.by, &decision, out)
}

pub(crate) fn reject(session: &Session, reject: &Reject, out: &mut Out) -> Outcome {
    let Reject { decision: decide, reason } = reject;
    let reviewer = session.reviewer(&decide.by)?;
    let card = reviewer.card(&decide.token)?;
    confirm(&card, decide.seal.is_some(), "Reject it? It can then never run.", out)?;
    let seal = decide.seal.as_deref().unwrap_or(card.plan.seal.as_str());
    let decision = reviewer.reject_sealed(&decide.token, seal, reason.as_deref())?;
    decided(session, "rejected", &decide.by, &decision, out)
}

fn decided(session: &Session, what: &str, by: &str, decision: &Decision, out: &mut Out) -> Outcome {
    if out.is_json() {
        return out.json(&json!({
            "plan_token": decision.plan_token,
            "state": decision.state.as_str(),
            "already": decision.already,
            "approvals": decision.approvals,
            "approvals_needed": decision.approvals_needed,
            "reviewer": by,
            "channel": session.channel(),
        }));
    }
    let said = if decision.already {
        format!("Nothing changed: it is {} already.", decision.state)
    } else if what == "approved" && decision.approvals < decision.approvals_needed {
        format!(
            "Recorded: {} of {} approvals; it is {}.",
            decision.approvals, decision.approvals_needed, decision.state
        )
    } else {
        format!("It is {} now.", decision.state)
    };
    if decision.already {
        return out.line(&out.paint(Style::Good, &said));
    }
    let said = out.paint(if what == "approved" { Style::Good } else { Style::Bad }, &said);
    out.line(&format!("{said} Recorded as {by} via {}.", session.channel()))
}

/// Ends the memory of a "no". It lives on the tombstone, so it can be lifted after a purge too.
pub(crate) fn lift(session: &Session, lift: &Lift, out: &mut Out) -> Outcome {
    let Lift { decision: decide, reason } = lift;
    let reviewer = session.reviewer(&decide.by)?;
    let question =
        "Forget that this was rejected? Later plans of this tool and payload are gated only when the host asks.";
    let (tool, fingerprint) = match reviewer.card(&decide.token) {
        Ok(card) => {
            confirm(&card, decide.seal.is_some(), question, out)?;
            if decide.seal.as_deref().is_some_and(|seal| seal != card.plan.seal.as_str()) {
                let hint = "Read the card again and give the seal that it shows.";
                return Err(Failure::usage("APPROVAL_MISMATCH", "the seal is not the one of this plan", hint));
            }
            (card.plan.tool, card.plan.fingerprint)
        }
        Err(error) if error.is_refused() && error.code() != "UNKNOWN_TOKEN" => {
            let history = session.operator(Some(&decide.by))?.history(&decide.token)?;
            let first = history.iter().find_map(|event| event.tool.clone().zip(event.fingerprint.clone()));
            let Some((tool, fingerprint)) = first else { return Err(error.into()) };
            let on_terminal = human_terminal(out);
            let mut shown = String::new();
            for event in &history {
                shown.push_str(&audit::line(event));
                shown.push('\n');
            }
            display(&format!("The plan was purged. Its timeline:\n{shown}"), out)?;
            ask(on_terminal, question, out)?;
            (tool, fingerprint)
        }
        Err(error) => return Err(error.into()),
    };
    let already = reviewer.lift_rejection(&tool, &fingerprint, reason)?;
    if out.is_json() {
        return out.json(
            &json!({"tool": tool, "fingerprint": fingerprint, "already": already, "channel": session.channel()}),
        );
    }
    if already {
        return out.line("Nothing changed: no rejection of this tool and payload stands.");
    }
    out.line(&format!("Lifted, recorded as {} via {}.", decide.by, session.channel()))
}

/// Shows the whole card; then, unless the seal was given in full, asks.
fn confirm(card: &PendingPlan, sealed: bool, question: &str, out: &mut Out) -> Outcome {
    let lines = card::lines(card, out);
    let on_terminal = human_terminal(out);
    display(&lines, out)?;
    if sealed { Ok(()) } else { ask(on_terminal, question, out) }
}

/// Where a person reads: standard output, or with --json standard error, which is then not parsed.
fn display(text: &str, out: &mut Out) -> Outcome {
    if out.is_json() {
        return out.stderr(&format!("{text}\n"));
    }
    out.line(text)?;
    out.flush()
}

/// A person can read the card and answer.
fn human_terminal(out: &Out) -> bool {
    let reads = if out.is_json() { std::io::stderr().is_terminal() } else { out.is_terminal() };
    reads && std::io::stdin().is_terminal()
}

/// Goes on after a yes, in full.
pub(crate) fn ask(on_terminal: bool, question: &str, out: &mut Out) -> Outcome {
    if !on_terminal {
        return Err(Failure::usage(
            "NEEDS_TERMINAL",
            "a decision is made by a person at a terminal, and this is none",
            "Run it at a terminal, or give --seal in full: the seal of the card that was read.",
        ));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{} [yes/no] ", out.paint_err(Style::Attention, question))?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("yes") { Ok(()) } else { Err(Failure::NotConfirmed) }
}
