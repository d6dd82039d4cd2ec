//! What the chain says of a plan, against the rows that stand.

use super::super::queries as q;
use super::super::read::Reader;
use super::super::rows::FullRow;
use super::super::walk::Lookups;
use super::{Difference, Replayed, Walk, about};
use crate::audit::Head;
use crate::error::Result;
use crate::names::is_hex_of;

impl Walk {
    /// A plan as the chain has it against its row and tombstone. `ended`: the row of the terminal event.
    pub(super) fn compare(
        &mut self,
        plans: &mut Lookups<'_>,
        token: &str,
        said: &Replayed,
        ended: i64,
    ) -> Result<Option<Difference>> {
        let buried = (said.state.as_str(), &*said.fingerprint, &*said.tool, &*said.caller, said.attempt);
        if said.state.is_terminal() && !plans.meets_tombstone(token, buried)? {
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
        let as_met = said.settled == Some((said.state, said.gated, said.attempt));
        if as_met && plans.are_approved(token, &said.approvals, &said.seal)? {
            self.approvals += said.approvals.len() as u64;
            return Ok(None);
        }
        // It was open when the walk met it, or it differs, or it was purged since.
        let Some(full) = plans.row(token)? else {
            if !said.state.is_terminal() {
                return Ok(about(token, format!("its row is gone while the audit says that it is {}", said.state)));
            }
            if ended > self.gone_at {
                self.gone_at = ended;
                self.gone_plan = Some(token.to_owned());
            }
            return Ok(None);
        };
        let difference = compare_row(plans, token, said, &full)?;
        if said.met && difference.is_none() {
            self.approvals += said.approvals.len() as u64;
        }
        Ok(difference)
    }

    /// The end of the chain: the open plans, and what stands in the file without having been audited.
    pub(super) fn close(
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
        // Each row that the walk met is the row of a plan in the chain. Where a table holds as many, it holds no other;
        // unless a purge since the walk began made room for one.
        let purged = self.last_purge > self.began_at;
        for (total, met, strays) in [
            (q::PLANS_TOTAL, self.places.plans.met, q::PLANS_WITHOUT_AUDIT),
            (q::TOMBSTONES_TOTAL, self.places.tombstones.met, q::TOMBSTONES_WITHOUT_AUDIT),
            (q::APPROVALS_TOTAL, self.approvals, q::APPROVALS_WITHOUT_PLAN),
        ] {
            if !purged && reader.count(total, &[])? == met {
                continue;
            }
            let stray: Option<String> = reader.one(strays, &[], |row| row.get(0))?;
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

/// What of a row is fixed at its creation, and not as the chain says.
pub(super) fn changed(said: &Replayed, full: &FullRow) -> Option<&'static str> {
    let row = &full.core;
    if row.seal != said.seal || row.seal_fields(full.extra.as_ref()).seal().as_str() != said.seal {
        return Some("its row does not match the seal that was recorded at its creation");
    }
    if row.fingerprint != said.fingerprint || !is_hex_of(&said.fingerprint, full.payload.fingerprint().as_bytes()) {
        return Some("its payload does not match the fingerprint that was recorded at its creation");
    }
    None
}

fn compare_row(plans: &mut Lookups<'_>, token: &str, said: &Replayed, full: &FullRow) -> Result<Option<Difference>> {
    let row = &full.core;
    if row.state != said.state {
        return Ok(about(token, format!("it is {}, and the audit says {}", row.state, said.state)));
    }
    if let Some(what) = changed(said, full) {
        return Ok(about(token, what));
    }
    if row.gated != said.gated || i64::from(row.attempt) != said.attempt {
        return Ok(about(token, "its gate or its attempt is not what the audit says"));
    }
    if !plans.are_approved(token, &said.approvals, &said.seal)? {
        return Ok(about(token, "its approvals are not the ones in the audit"));
    }
    Ok(None)
}
