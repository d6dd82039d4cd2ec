//! What is read: the same statements serve the read transaction and the write transaction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use rusqlite::{Connection, Row, Statement, ToSql, named_params};

use super::map_sql;
use super::queries as q;
use super::rows::{self, FullRow, InstanceRow, PlanRow};
use super::sql_error::sql_error;
use super::tx::Seen;
use crate::audit::{AuditEvent, AuditQuery, Head};
use crate::clock::utc;
use crate::error::{Error, Result};
use crate::lifecycle::State;
use crate::names::PlanToken;
use crate::plan::{ApprovalGiven, EarlierRejection, Listing, PendingPlan, Plan};

/// A claimed plan that nobody has settled.
#[derive(Clone, Debug)]
pub(crate) struct StuckKey {
    pub(crate) plan_token: String,
    pub(crate) executing: bool,
    pub(crate) attempt: u32,
    pub(crate) owner: Option<String>,
}

/// One open transaction, as far as it reads.
pub(crate) struct Reader<'c> {
    pub(super) sql: &'c Connection,
    pub(crate) now: i64,
    pub(super) started: Instant,
}

impl Reader<'_> {
    /// The plan of that token, or what its tombstone says of it. `caller`: an agent sees its own plans alone.
    pub(crate) fn find(&self, token: &str, caller: Option<&str>) -> Result<Option<PlanRow>> {
        if PlanToken::parse(token).is_none() {
            return Ok(None);
        }
        let params = named_params! {":plan_token": token};
        let row = match self.one(q::PLAN_CORE, params, PlanRow::read)? {
            Some(row) => Some(row),
            None => self.one(q::TOMBSTONE, params, PlanRow::read_tombstone)?,
        };
        let row = row.transpose()?;
        Ok(row.filter(|row| caller.is_none_or(|caller| caller.eq_ignore_ascii_case(&row.caller))))
    }

    pub(crate) fn full_by_key(&self, caller: &str, tool: &str, key: &str) -> Result<Option<FullRow>> {
        let params = named_params! {":caller": caller, ":tool": tool, ":key": key};
        self.one(q::PLAN_BY_KEY, params, FullRow::read)?.transpose()
    }

    pub(crate) fn full(&self, token: &str) -> Result<Option<FullRow>> {
        self.one(q::PLAN_FULL, named_params! {":plan_token": token}, FullRow::read)?.transpose()
    }

    pub(crate) fn tombstone_by_key(&self, caller: &str, tool: &str, key: &str) -> Result<Option<PlanRow>> {
        let params = named_params! {":caller": caller, ":tool": tool, ":key": key};
        self.one(q::TOMBSTONE_BY_KEY, params, PlanRow::read_tombstone)?.transpose()
    }

    pub(crate) fn earlier_rejection(
        &self,
        tool: &str,
        fingerprint: &str,
        except: &str,
    ) -> Result<Option<EarlierRejection>> {
        let params = named_params! {":tool": tool, ":fingerprint": fingerprint, ":except": except};
        self.one(q::TOMBSTONE_REJECTED, params, rows::earlier_rejection)
    }

    pub(crate) fn waiting_of_caller(&self, caller: &str) -> Result<u64> {
        self.count(q::PLANS_WAITING_OF_CALLER, named_params! {":now": self.now, ":caller": caller})
    }

    /// True when this reviewer's approval of the plan's seal stands.
    pub(crate) fn has_voted(&self, row: &PlanRow, reviewer: &str) -> Result<bool> {
        let params = named_params! {":plan_token": row.plan_token, ":reviewer": reviewer};
        let seal: Option<String> = self.one(q::APPROVAL_OF, params, |row| row.get("seal"))?;
        Ok(seal.is_some_and(|seal| seal == row.seal))
    }

    /// True when the claim of this attempt reported the end of its work itself.
    pub(crate) fn was_reported(&self, token: &str, attempt: u32) -> Result<bool> {
        let params = named_params! {":plan_token": token, ":attempt": attempt};
        Ok(self.one(q::AUDIT_REPORT_OF_CLAIM, params, |_| Ok(()))?.is_some())
    }

    /// Unfinished plans of the same tool and payload.
    pub(crate) fn twins(&self, row: &PlanRow) -> Result<Vec<String>> {
        let params = named_params! {
            ":fingerprint": row.fingerprint, ":tool": row.tool, ":plan_token": row.plan_token,
        };
        self.all(q::PLANS_TWINS, params, |row| row.get("plan_token"))
    }

    pub(crate) fn overdue(&self, state: State, limit: u32) -> Result<Vec<PlanRow>> {
        let params = named_params! {":state": state.as_str(), ":now": self.now, ":limit": limit};
        self.all(q::PLANS_OVERDUE, params, PlanRow::read)?.into_iter().collect()
    }

    pub(super) fn audit_hash_at(&self, seq: i64) -> Result<Option<String>> {
        self.one(q::AUDIT_HASH_AT, named_params! {":seq": seq}, |row| row.get("hash"))
    }

    /// The row at the remembered head must still carry the remembered hash.
    pub(super) fn check_not_rolled_back(&self, seen: Option<&Seen>) -> Result<()> {
        let Some(seen) = seen else { return Ok(()) };
        if self.audit_hash_at(seen.seq)?.is_some_and(|hash| hash == seen.hash) {
            return Ok(());
        }
        Err(Error::rolled_back(format!("audit row {} is not the one that was written", seen.seq)))
    }

    /// The plan as readers see it, its approvals included.
    pub(crate) fn plan(&self, full: FullRow) -> Result<Plan> {
        let approvals = match full.core.approvals {
            0 => Vec::new(),
            _ => self.approvals(&full.core.plan_token, &full.core.seal)?,
        };
        Ok(full.into_plan(approvals, self.now))
    }

    pub(super) fn approvals(&self, token: &str, seal: &str) -> Result<Vec<ApprovalGiven>> {
        let params = named_params! {":plan_token": token};
        let all = self.all(q::APPROVALS_OF_PLAN, params, |row| {
            let given = ApprovalGiven { reviewer: row.get(0)?, channel: row.get(2)?, at: utc(row.get(3)?) };
            Ok((row.get::<_, String>(1)?, given))
        })?;
        let mut given: Vec<_> = all.into_iter().filter(|(given, _)| given == seal).map(|(_, given)| given).collect();
        given.sort_by_key(|given: &ApprovalGiven| given.at);
        Ok(given)
    }

    /// Plans that wait, soonest-expiring first; those past their time are left out.
    pub(crate) fn pending(&self, limit: u32) -> Result<Listing<PendingPlan>> {
        let params = named_params! {":now": self.now, ":limit": limit};
        let rows: Vec<FullRow> =
            self.all(q::PLANS_PENDING, params, FullRow::read)?.into_iter().collect::<Result<_>>()?;
        // Many plans of few callers: each caller's are counted once.
        let mut waiting = HashMap::new();
        let items = rows
            .into_iter()
            .map(|full| {
                let key = (full.core.caller.to_ascii_lowercase(), full.core.tool.clone());
                let waiting = match waiting.entry(key) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => *new.insert(self.waiting_of_tool(&full.core)?),
                };
                self.card(full, waiting)
            })
            .collect::<Result<_>>()?;
        let total = self.count(q::PLANS_PENDING_TOTAL, named_params! {":now": self.now})?;
        Ok(Listing { items, total })
    }

    /// A plan with everything that a reviewer's card shows.
    pub(crate) fn pending_plan(&self, full: FullRow) -> Result<PendingPlan> {
        let waiting = self.waiting_of_tool(&full.core)?;
        self.card(full, waiting)
    }

    /// Plans of the same caller and tool that wait.
    fn waiting_of_tool(&self, core: &PlanRow) -> Result<u64> {
        let params = named_params! {":now": self.now, ":caller": core.caller, ":tool": core.tool};
        self.count(q::PLANS_WAITING_OF_TOOL, params)
    }

    fn card(&self, full: FullRow, waiting: u64) -> Result<PendingPlan> {
        let core = &full.core;
        let earlier_rejection = self.earlier_rejection(&core.tool, &core.fingerprint, &core.plan_token)?;
        let itself = u64::from(core.state_at(self.now) == State::AwaitingApproval);
        Ok(PendingPlan { earlier_rejection, others_waiting: waiting.saturating_sub(itself), plan: self.plan(full)? })
    }

    /// Claimed plans that nobody has settled, oldest claim first, also past their time.
    pub(crate) fn stuck(&self, limit: u32) -> Result<(Vec<Plan>, u64)> {
        let rows = self.all(q::PLANS_STUCK, named_params! {":limit": limit}, FullRow::read)?;
        let items = rows.into_iter().map(|full| self.plan(full?)).collect::<Result<_>>()?;
        Ok((items, self.count(q::PLANS_STUCK_TOTAL, &[])?))
    }

    pub(crate) fn plans_by_state(&self) -> Result<Vec<(String, u64)>> {
        self.all(q::PLANS_BY_STATE, &[], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))
    }

    pub(crate) fn overdue_total(&self) -> Result<u64> {
        self.count(q::PLANS_OVERDUE_TOTAL, named_params! {":now": self.now})
    }

    pub(crate) fn purged_total(&self) -> Result<u64> {
        self.count(q::PLANS_PURGED_TOTAL, &[])
    }

    /// From creation to decision, in milliseconds, in no order.
    pub(crate) fn decision_times(&self) -> Result<Vec<i64>> {
        self.all(q::PLANS_DECISION_TIMES, &[], |row| row.get(0))
    }

    pub(crate) fn refusals_by_code(&self) -> Result<Vec<(String, u64)>> {
        self.all(q::AUDIT_REFUSALS, &[], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))
    }

    /// True when all indexes for heavy auditing stand.
    pub(crate) fn has_audit_index(&self) -> Result<bool> {
        let (standing, all) = self.audit_indexes()?;
        Ok(standing == all)
    }

    /// How many indexes for heavy auditing stand, of how many.
    pub(super) fn audit_indexes(&self) -> Result<(usize, usize)> {
        let (mut standing, mut all) = (0, 0);
        for (name, _) in super::audit_index::indexes() {
            standing += usize::from(self.has_index(name)?);
            all += 1;
        }
        Ok((standing, all))
    }

    pub(super) fn has_index(&self, name: &str) -> Result<bool> {
        Ok(self.count(q::INDEX_EXISTS, named_params! {":name": name})? > 0)
    }

    /// Every claimed plan that nobody has settled: token, state, attempt, owner; oldest claim first. A row that cannot be
    /// read stands among them with its error.
    pub(crate) fn stuck_keys(&self) -> Result<Vec<Result<StuckKey, (String, Error)>>> {
        self.all(q::PLANS_STUCK_KEYS, &[], |row| {
            let key = || {
                let state: String = row.get("state")?;
                Ok(StuckKey {
                    plan_token: row.get("plan_token")?,
                    executing: state == State::Executing.as_str(),
                    attempt: row.get("attempt")?,
                    owner: row.get("instance_id")?,
                })
            };
            let token = || match row.get_ref("plan_token") {
                Ok(token) => {
                    token.as_bytes().map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
                }
                Err(_) => String::new(),
            };
            Ok(match key() {
                Ok(key) => Ok(key),
                Err(error) => Err((token(), sql_error(error, self.started))),
            })
        })
    }

    /// Every plan in a live state.
    pub(crate) fn in_state(&self, state: State) -> Result<Vec<PlanRow>> {
        self.all(q::PLANS_IN_STATE, named_params! {":state": state.as_str()}, PlanRow::read)?.into_iter().collect()
    }

    pub(crate) fn instance(&self, instance_id: &str) -> Result<Option<InstanceRow>> {
        self.one(q::INSTANCE, named_params! {":instance_id": instance_id}, InstanceRow::read)
    }

    pub(crate) fn instances(&self) -> Result<Vec<InstanceRow>> {
        self.all(q::INSTANCES, &[], InstanceRow::read)
    }

    pub(crate) fn live_counts(&self) -> Result<Vec<(String, u64)>> {
        self.all(q::PLANS_BY_LIVE_STATE, &[], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))
    }

    pub(crate) fn oldest_executing(&self) -> Result<Option<i64>> {
        Ok(self.one(q::PLANS_OLDEST_EXECUTING, &[], |row| row.get(0))?.flatten())
    }

    /// The next rows of `plans` after this rowid, and whether each was settled before that time.
    pub(crate) fn settled_before(&self, before: i64, after: i64, limit: u32) -> Result<Vec<(i64, bool)>> {
        let params = named_params! {":before": before, ":after": after, ":limit": limit};
        self.all(q::PLANS_SETTLED_BEFORE, params, |row| {
            Ok((row.get(0)?, row.get::<_, Option<bool>>(1)?.unwrap_or(false)))
        })
    }

    /// True for a copy that `backup` made and nobody accepted.
    pub(crate) fn is_backup(&self) -> Result<bool> {
        let id: Option<i32> = self.one("PRAGMA application_id", &[], |row| row.get(0))?;
        Ok(id == Some(super::schema::BACKUP_ID))
    }

    /// The value of a pragma as text.
    pub(crate) fn pragma(&self, pragma: &str) -> Result<String> {
        let value: Option<rusqlite::types::Value> = self.one(&format!("PRAGMA {pragma}"), &[], |row| row.get(0))?;
        Ok(match value {
            Some(rusqlite::types::Value::Text(text)) => text,
            Some(rusqlite::types::Value::Integer(number)) => number.to_string(),
            _ => String::new(),
        })
    }

    pub(crate) fn count(&self, statement: &str, params: &[(&str, &dyn ToSql)]) -> Result<u64> {
        let count: i64 = self.one(statement, params, |row| row.get(0))?.unwrap_or(0);
        Ok(count.cast_unsigned())
    }

    /// A plan's audit rows.
    pub(crate) fn history(&self, token: &str) -> Result<Vec<AuditEvent>> {
        self.all(q::AUDIT_OF_PLAN, named_params! {":plan_token": token}, rows::audit_event)
    }

    pub(crate) fn audit_query(&self, query: &AuditQuery) -> Result<Vec<AuditEvent>> {
        let limit = query.limit.unwrap_or(1_000).min(10_000);
        let mut conditions = vec!["1 = 1"];
        let mut params: Vec<(&str, &dyn ToSql)> = Vec::new();
        let texts = [
            ("plan_token = :plan_token", ":plan_token", &query.plan_token),
            ("tool = :tool", ":tool", &query.tool),
            ("caller = :caller", ":caller", &query.caller),
            ("event = :event", ":event", &query.event),
            ("code = :code", ":code", &query.code),
        ];
        for (condition, name, value) in &texts {
            if let Some(value) = value {
                conditions.push(condition);
                params.push((name, value));
            }
        }
        // By the text column, which is what the indexes for auditors hold; its order is that of the milliseconds.
        let (since, until) = (query.since_ms.map(iso), query.until_ms.map(iso));
        for (condition, name, value) in [("at_iso >= :since", ":since", &since), ("at_iso < :until", ":until", &until)]
        {
            if let Some(value) = value {
                conditions.push(condition);
                params.push((name, value));
            }
        }
        let numbers = [("seq > :after", ":after", &query.after_seq), ("seq < :before", ":before", &query.before_seq)];
        for (condition, name, value) in &numbers {
            if let Some(value) = value {
                conditions.push(condition);
                params.push((name, value));
            }
        }
        params.push((":limit", &limit));
        let order = if query.newest_first { "DESC" } else { "ASC" };
        let statement = format!(
            "SELECT {} FROM audit_events WHERE {} ORDER BY seq {order} LIMIT :limit",
            q::AUDIT_COLUMNS,
            conditions.join(" AND ")
        );
        self.all(&statement, &params, rows::audit_event)
    }

    pub(super) fn head(&self) -> Result<Option<Seen>> {
        self.one(q::AUDIT_HEAD, &[], |row| Ok(Seen { seq: row.get(0)?, hash: row.get(1)? }))
    }

    /// The audit's head with the store's id.
    pub(crate) fn audit_head(&self) -> Result<Head> {
        let store_id: Option<Option<String>> = self.one(q::AUDIT_STORE_ID, &[], |row| row.get("detail"))?;
        match (store_id.flatten(), self.head()?) {
            (Some(store_id), Some(Seen { seq, hash })) => Ok(Head { store_id, seq, hash }),
            _ => Err(Error::corrupt("the audit does not begin with the store_created row")),
        }
    }

    pub(super) fn one<T>(
        &self,
        statement: &str,
        params: &[(&str, &dyn ToSql)],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let row = self.sql.prepare_cached(statement).and_then(|mut statement| {
            bind(&mut statement, params)?;
            statement.raw_query().next()?.map(read).transpose()
        });
        map_sql(row, self.started)
    }

    pub(super) fn all<T>(
        &self,
        statement: &str,
        params: &[(&str, &dyn ToSql)],
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = self.sql.prepare_cached(statement).and_then(|mut statement| {
            bind(&mut statement, params)?;
            statement.raw_query().mapped(read).collect()
        });
        map_sql(rows, self.started)
    }
}

/// Binds the parameters in the order in which the statement names them first. To look each name up costs more than to
/// bind its value, so the names are compared in debug builds, where the tests run.
pub(super) fn bind(statement: &mut Statement<'_>, params: &[(&str, &dyn ToSql)]) -> rusqlite::Result<()> {
    if statement.parameter_count() != params.len() {
        return Err(rusqlite::Error::InvalidParameterCount(params.len(), statement.parameter_count()));
    }
    for (at, (name, value)) in params.iter().enumerate() {
        debug_assert_eq!(statement.parameter_name(at + 1), Some(*name));
        statement.raw_bind_parameter(at + 1, value)?;
    }
    Ok(())
}

/// A time as the `_iso` columns write it, within the years that they can write.
pub(super) fn iso(ms: i64) -> String {
    const YEAR_0: i64 = -62_167_219_200_000;
    const END_OF_YEAR_9999: i64 = 253_402_300_799_999;
    utc(ms.clamp(YEAR_0, END_OF_YEAR_9999)).format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
