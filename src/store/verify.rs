//! Verifying the audit: the chain, its replay through the transition table, and the plans against it
//! (design section 7).
//!
//! The walk reads the chain in pieces, each in a snapshot of its own, so that it pins no log; the plans that are still
//! open are compared in the snapshot of the last piece. Memory holds the open plans alone.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::queries as q;
use super::read::Reader;
use super::rows::FullRow;
use super::walk::Lookups;
use crate::audit::{AuditEvent, FIRST_PREV_HASH, Head};
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
    };
    let mut total = 0;
    let mut difference = None;
    let mut done = false;
    while !done {
        read(&mut |reader| {
            total = reader.head()?.map_or(0, |head| u64::try_from(head.seq).unwrap_or(0));
            // The rest of the chain is taken in one snapshot once it is short: the open plans are compared in it.
            let piece = reader.audit_after(walk.next_seq - 1, PIECE)?;
            let mut plans = Lookups::new(reader)?;
            let last = piece.len() < PIECE as usize;
            for event in &piece {
                difference = walk.step(&mut plans, event, known)?;
                if difference.is_some() {
                    done = true;
                    return Ok(());
                }
            }
            if last {
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

fn at(event: &AuditEvent, what: impl Into<String>) -> Option<Difference> {
    Some(Difference { seq: Some(event.seq), plan_token: event.plan_token.clone(), what: what.into() })
}

fn about(plan: &str, what: impl Into<String>) -> Option<Difference> {
    Some(Difference { seq: None, plan_token: Some(plan.to_owned()), what: what.into() })
}

impl Walk {
    /// One row: its place, its hash, and what it does to its plan.
    fn step(
        &mut self,
        plans: &mut Lookups<'_>,
        event: &AuditEvent,
        known: Option<&Head>,
    ) -> Result<Option<Difference>> {
        if event.seq != self.next_seq {
            return Ok(at(event, format!("row {} is missing", self.next_seq)));
        }
        if event.prev_hash != self.prev_hash {
            return Ok(at(event, "its prev_hash is not the hash of the row before"));
        }
        if event.computed_hash() != event.hash {
            return Ok(at(event, "its hash does not match its columns: the row was edited"));
        }
        if event.seq == 1 {
            if event.event != "store_created" || event.plan_token.is_some() {
                return Ok(at(event, "the chain does not begin with store_created"));
            }
            self.store_id = event.detail.clone().unwrap_or_default();
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
        self.prev_hash.clone_from(&event.hash);
        match &event.plan_token {
            Some(token) => self.replay(plans, event, token),
            None => {
                if event.event == "purged" {
                    self.last_purge = event.seq;
                }
                if let ("rejection_lifted", Some(tool), Some(fingerprint)) =
                    (event.event.as_str(), &event.tool, &event.fingerprint)
                {
                    self.lifts.insert((tool.clone(), fingerprint.clone(), event.at, event.actor.clone()));
                }
                Ok(None)
            }
        }
    }

    fn replay(&mut self, plans: &mut Lookups<'_>, event: &AuditEvent, token: &str) -> Result<Option<Difference>> {
        let state = |name: &Option<String>| name.as_deref().map(State::parse);
        let (from, to) = match (state(&event.from_state), state(&event.to_state)) {
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
            let replayed = Replayed {
                state: to,
                tool: event.tool.clone().unwrap_or_default(),
                caller: event.caller.clone().unwrap_or_default(),
                seal: event.detail.clone().unwrap_or_default(),
                fingerprint: event.fingerprint.clone().unwrap_or_default(),
                approvals: Vec::new(),
                attempt: 0,
                gated: to == State::AwaitingApproval,
            };
            self.open.insert(token.to_owned(), replayed);
            return Ok(None);
        }
        let Some(plan) = self.open.get_mut(token) else {
            return Ok(at(event, "a transition of a plan that never began, or had ended"));
        };
        let transition = Event::parse(&event.event, event.code.as_deref(), to);
        let legal = transition.and_then(|transition| Some((transition, lifecycle::next(plan.state, transition).ok()?)));
        let Some((transition, next)) = legal.filter(|(_, next)| *next == to && from == Some(plan.state)) else {
            return Ok(at(event, format!("{} does not lead from {} to {to}", event.event, plan.state)));
        };
        plan.state = next;
        match transition {
            Event::Approved | Event::ApprovalRecorded => {
                if event.detail.as_deref() != Some(plan.seal.as_str()) {
                    return Ok(at(event, "the approval carries another seal than the plan"));
                }
                plan.approvals.push((event.actor.clone(), event.channel.clone(), event.at));
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

    /// A plan as the chain has it against its row and tombstone. `ended`: the row of the terminal event.
    fn compare(
        &mut self,
        plans: &mut Lookups<'_>,
        token: &str,
        said: &Replayed,
        ended: i64,
    ) -> Result<Option<Difference>> {
        if said.state.is_terminal() {
            let tombstone = plans.tombstone(token)?;
            let Some((_, fingerprint, tool, caller, attempt)) =
                tombstone.filter(|(kind, ..)| kind == said.state.as_str())
            else {
                return Ok(about(token, format!("it ended {}, and no tombstone of that kind stands", said.state)));
            };
            if (&fingerprint, &tool, &caller, attempt) != (&said.fingerprint, &said.tool, &said.caller, said.attempt) {
                return Ok(about(token, "its tombstone is about something else than the audit says"));
            }
        }
        let full = plans.row(token)?;
        let Some(full) = full else {
            if !said.state.is_terminal() {
                return Ok(about(token, format!("its row is gone while the audit says that it is {}", said.state)));
            }
            if ended > self.gone_at {
                self.gone_at = ended;
                self.gone_plan = Some(token.to_owned());
            }
            return Ok(None);
        };
        compare_row(plans, token, said, &full)
    }

    /// The end of the chain: the open plans, and what stands in the file without having been audited.
    fn close(
        &mut self,
        reader: &Reader<'_>,
        plans: &mut Lookups<'_>,
        known: Option<&Head>,
    ) -> Result<Option<Difference>> {
        if self.next_seq == 1 {
            return Ok(Some(Difference { seq: None, plan_token: None, what: "the audit is empty".to_owned() }));
        }
        if let Some(known) = known.filter(|known| known.seq >= self.next_seq) {
            let what =
                format!("the audit ends at row {}, before the exported head: its tail was cut", self.next_seq - 1);
            return Ok(Some(Difference { seq: Some(known.seq), plan_token: None, what }));
        }
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (token, said) in &open {
            if let Some(difference) = self.compare(plans, token, said, 0)? {
                return Ok(Some(difference));
            }
        }
        if let Some(token) = &self.gone_plan
            && self.last_purge < self.gone_at
        {
            return Ok(about(token, "its row is gone, and no purge was recorded after it ended"));
        }
        for statement in [q::PLANS_WITHOUT_AUDIT, q::TOMBSTONES_WITHOUT_AUDIT, q::APPROVALS_WITHOUT_PLAN] {
            let stray: Option<String> = reader.one(statement, &[], |row| row.get(0))?;
            if let Some(token) = stray {
                return Ok(about(&token, "a row stands in the file that no audit row accounts for"));
            }
        }
        let lifted = reader.all(q::TOMBSTONES_LIFTED, &[], |row| {
            let lift = (row.get("tool")?, row.get("fingerprint")?, row.get("lifted_at")?, row.get("lifted_by")?);
            Ok((row.get::<_, String>("plan_token")?, lift))
        })?;
        if let Some((token, _)) = lifted.iter().find(|(_, lift)| !self.lifts.contains(lift)) {
            return Ok(about(token, "its rejection was lifted, and no audit row accounts for that"));
        }
        Ok(None)
    }
}

fn compare_row(plans: &mut Lookups<'_>, token: &str, said: &Replayed, full: &FullRow) -> Result<Option<Difference>> {
    let row = &full.core;
    if row.state != said.state {
        return Ok(about(token, format!("it is {}, and the audit says {}", row.state, said.state)));
    }
    if row.seal != said.seal || row.seal_fields(full.extra.as_ref()).seal().as_str() != said.seal {
        return Ok(about(token, "its row does not match the seal that was recorded at its creation"));
    }
    if row.fingerprint != said.fingerprint || full.payload.fingerprint().to_string() != said.fingerprint {
        return Ok(about(token, "its payload does not match the fingerprint that was recorded at its creation"));
    }
    if row.gated != said.gated || i64::from(row.attempt) != said.attempt {
        return Ok(about(token, "its gate or its attempt is not what the audit says"));
    }
    let mut standing = plans.approvals(token)?;
    let mut expected: Vec<_> = said.approvals.iter().map(|given| (given.clone(), said.seal.clone())).collect();
    standing.sort();
    expected.sort();
    Ok(if standing == expected { None } else { about(token, "its approvals are not the ones in the audit") })
}
