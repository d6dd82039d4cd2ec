//! Verifying the audit: the chain, its replay through the transition table, and the plans against it
//! (design section 7).
//!
//! The walk reads the chain in pieces, each in a snapshot of its own, so that it pins no log; the plans that are still
//! open are compared in the snapshot of the last piece. Memory holds the open plans alone.

mod compare;

use std::collections::{HashMap, HashSet};

use rusqlite::named_params;
use serde::Serialize;

use super::queries as q;
use super::read::Reader;
use super::walk::{Lookups, Place, Places, Scans};
use super::{map_sql, rows};
use crate::audit::{AuditRow, FIRST_PREV_HASH, Head};
use crate::error::Result;
use crate::lifecycle::{self, Event, State};

/// Rows a piece.
const PIECE: u32 = 2_000;

/// What a verify found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// How many audit rows were walked.
    pub rows: u64,
    /// How many plans were compared with their audit, those that were purged included.
    pub plans: u64,
    /// Where the walk ended; none for an empty audit.
    pub head: Option<Head>,
    /// True when a head that was exported earlier was compared. Without one, a cut or replaced tail is not found.
    pub tail_checked: bool,
    /// The first difference; none: intact.
    pub difference: Option<Difference>,
}

impl VerifyReport {
    /// True when no difference was found. See [`tail_checked`](VerifyReport::tail_checked) for what that covers.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.difference.is_none()
    }
}

/// The first place where the file contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The audit row, when it is about one.
    pub seq: Option<i64>,
    /// The plan, when it is about one.
    pub plan_token: Option<String>,
    /// What is wrong, in words.
    pub what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(seq) = self.seq {
            write!(f, "audit row {seq}: ")?;
        }
        if let Some(token) = &self.plan_token {
            write!(f, "plan {}: ", crate::escape::visible_cut(token, 48))?;
        }
        f.write_str(&self.what)
    }
}

/// What the chain says of a plan that is not terminal.
struct Replayed {
    state: State,
    tool: String,
    caller: String,
    seal: String,
    fingerprint: String,
    /// Reviewer, channel and time.
    approvals: Vec<(String, String, i64)>,
    attempt: i64,
    gated: bool,
    /// The walk met the plan's row in its place.
    met: bool,
    /// State, gate and attempt of that row, if it was settled then (so that it changes no more) and everything that is
    /// fixed at creation is what the chain says.
    settled: Option<(State, bool, i64)>,
}

struct Walk {
    next_seq: i64,
    prev_hash: String,
    store_id: String,
    open: HashMap<String, Replayed>,
    /// The newest terminal event of a plan whose row is gone; a `purged` row must follow it.
    gone_at: i64,
    gone_plan: Option<String>,
    last_purge: i64,
    /// Tool, fingerprint, time and actor of each lift.
    lifts: HashSet<(String, String, i64, String)>,
    plans: u64,
    places: Places,
    /// How many approvals stand of plans whose rows were met.
    approvals: u64,
    /// The newest row when the walk began.
    began_at: i64,
    /// A buffer.
    line: String,
}

pub(crate) fn verify(
    read: impl Fn(&mut dyn FnMut(&Reader<'_>) -> Result<()>) -> Result<()>,
    known: Option<&Head>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport> {
    let mut walk = Walk {
        next_seq: 1,
        prev_hash: FIRST_PREV_HASH.to_owned(),
        store_id: String::new(),
        open: HashMap::new(),
        gone_at: 0,
        gone_plan: None,
        last_purge: 0,
        lifts: HashSet::new(),
        plans: 0,
        places: Places { plans: Place::START, tombstones: Place::START },
        approvals: 0,
        began_at: i64::MAX,
        line: String::new(),
    };
    let mut total = 0;
    let mut difference = None;
    let mut done = false;
    while !done {
        read(&mut |reader| {
            let head = reader.head()?.map_or(0, |head| head.seq);
            total = u64::try_from(head).unwrap_or(0);
            walk.began_at = walk.began_at.min(head);
            let mut scans = Scans::new(reader)?;
            let mut plans = Lookups::new(reader, &mut scans, walk.places)?;
            let mut statement = map_sql(reader.sql.prepare_cached(q::AUDIT_AFTER), reader.started)?;
            let after = named_params! {":after": walk.next_seq - 1, ":limit": PIECE};
            let mut piece = map_sql(statement.query(after), reader.started)?;
            let mut taken = 0;
            while let Some(row) = map_sql(piece.next(), reader.started)? {
                let event = map_sql(rows::audit_row(row), reader.started)?;
                difference = walk.step(&mut plans, &event, known)?;
                if difference.is_some() {
                    done = true;
                    return Ok(());
                }
                taken += 1;
            }
            walk.places = plans.places();
            // The chain ends in this snapshot: the open plans are compared in it too.
            if taken < PIECE {
                difference = walk.close(reader, &mut plans, known)?;
                done = true;
            }
            Ok(())
        })?;
        progress(u64::try_from(walk.next_seq - 1).unwrap_or(0), total);
    }
    let rows = u64::try_from(walk.next_seq - 1).unwrap_or(0);
    let head = (rows > 0).then(|| Head { store_id: walk.store_id, seq: walk.next_seq - 1, hash: walk.prev_hash });
    Ok(VerifyReport { rows, plans: walk.plans, head, tail_checked: known.is_some(), difference })
}

fn at(event: &AuditRow<'_>, what: impl Into<String>) -> Option<Difference> {
    Some(Difference { seq: Some(event.seq), plan_token: event.plan_token.map(str::to_owned), what: what.into() })
}

fn about(plan: &str, what: impl Into<String>) -> Option<Difference> {
    Some(Difference { seq: None, plan_token: Some(plan.to_owned()), what: what.into() })
}

impl Walk {
    /// One row: its place, its hash, and what it does to its plan.
    fn step(
        &mut self,
        plans: &mut Lookups<'_>,
        event: &AuditRow<'_>,
        known: Option<&Head>,
    ) -> Result<Option<Difference>> {
        if event.seq != self.next_seq {
            return Ok(at(event, format!("row {} is missing", self.next_seq)));
        }
        if event.prev_hash != self.prev_hash {
            return Ok(at(event, "its prev_hash is not the hash of the row before"));
        }
        if !event.is_hashed(&mut self.line) {
            return Ok(at(event, "its hash does not match its columns: the row was edited"));
        }
        if event.seq == 1 {
            if event.event != "store_created" || event.plan_token.is_some() {
                return Ok(at(event, "the chain does not begin with store_created"));
            }
            event.detail.unwrap_or_default().clone_into(&mut self.store_id);
            if known.is_some_and(|known| known.store_id != self.store_id) {
                return Ok(at(event, "this is another store than the one of the exported head"));
            }
        }
        if let Some(known) = known.filter(|known| known.seq == event.seq)
            && known.hash != event.hash
        {
            return Ok(at(event, "its hash is not the one of the exported head: the chain was replaced"));
        }
        self.next_seq += 1;
        event.hash.clone_into(&mut self.prev_hash);
        match event.plan_token {
            Some(token) => self.replay(plans, event, token),
            None => {
                if event.event == "purged" {
                    self.last_purge = event.seq;
                }
                if let ("rejection_lifted", Some(tool), Some(fingerprint)) =
                    (event.event, event.tool, event.fingerprint)
                {
                    self.lifts.insert((tool.to_owned(), fingerprint.to_owned(), event.at, event.actor.to_owned()));
                }
                Ok(None)
            }
        }
    }

    fn replay(&mut self, plans: &mut Lookups<'_>, event: &AuditRow<'_>, token: &str) -> Result<Option<Difference>> {
        let (from, to) = match (event.from_state.map(State::parse), event.to_state.map(State::parse)) {
            (Some(None), _) | (_, Some(None)) => return Ok(at(event, "it names a state that does not exist")),
            (from, to) => (from.flatten(), to.flatten()),
        };
        let unchanged = event.event == "refused" || event.event.starts_with("host:");
        if unchanged {
            // An unknown or purged plan has no state to compare; an open one has.
            return Ok(match self.open.get(token) {
                Some(plan) if from.is_some_and(|from| from != plan.state) || from != to => {
                    at(event, format!("the plan was {} then", plan.state))
                }
                _ => None,
            });
        }
        let Some(to) = to else { return Ok(at(event, "a transition without a state")) };
        if event.event == "previewed" || event.event == "awaiting_approval" {
            if self.open.contains_key(token)
                || from.is_some()
                || to.as_str() != event.event
                || to != lifecycle::first(to == State::AwaitingApproval)
            {
                return Ok(at(event, "a plan begins twice, or in another state than its event"));
            }
            self.plans += 1;
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            let mut replayed = Replayed {
                state: to,
                tool: text(event.tool),
                caller: text(event.caller),
                seal: text(event.detail),
                fingerprint: text(event.fingerprint),
                approvals: Vec::new(),
                attempt: 0,
                gated: to == State::AwaitingApproval,
                met: false,
                settled: None,
            };
            if let Some(full) = plans.meet_plan(token)? {
                let row = &full.core;
                replayed.met = true;
                replayed.settled = (row.state.is_terminal() && compare::changed(&replayed, &full).is_none())
                    .then(|| (row.state, row.gated, i64::from(row.attempt)));
            }
            self.open.insert(token.to_owned(), replayed);
            return Ok(None);
        }
        let Some(plan) = self.open.get_mut(token) else {
            return Ok(at(event, "a transition of a plan that never began, or had ended"));
        };
        let transition = Event::parse(event.event, event.code, to);
        let legal = transition.and_then(|transition| Some((transition, lifecycle::next(plan.state, transition).ok()?)));
        let Some((transition, next)) = legal.filter(|(_, next)| *next == to && from == Some(plan.state)) else {
            return Ok(at(event, format!("{} does not lead from {} to {to}", event.event, plan.state)));
        };
        plan.state = next;
        match transition {
            Event::Approved | Event::ApprovalRecorded => {
                if event.detail != Some(plan.seal.as_str()) {
                    return Ok(at(event, "the approval carries another seal than the plan"));
                }
                plan.approvals.push((event.actor.to_owned(), event.channel.to_owned(), event.at));
            }
            Event::Regated => {
                plan.approvals.clear();
                plan.gated = true;
            }
            Event::Executing => {
                plan.attempt += 1;
                if event.attempt != Some(plan.attempt) {
                    return Ok(at(event, format!("the claim should be attempt {}", plan.attempt)));
                }
            }
            _ => {}
        }
        if !next.is_terminal() {
            return Ok(None);
        }
        let Some(ended) = self.open.remove(token) else { return Ok(None) };
        self.compare(plans, token, &ended, event.seq)
    }
}
