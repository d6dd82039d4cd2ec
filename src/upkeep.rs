//! What keeps a store in good order: sweep, purge, backup, indexes for auditors, and figures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::audit::Head;
use crate::error::Result;
use crate::lifecycle::State;
use crate::operator::Operator;
use crate::store::tx::Draft;

/// How many plans one housekeeping transaction touches at most.
const BATCH: u32 = 100;

/// How long one transaction of a purge goes on deleting: other writers wait for it.
const SLICE: Duration = Duration::from_millis(5);

/// The pause between two of them. Whoever waits for the lock asks for it about every millisecond: without a pause it would
/// find it taken again, and with a purge of a thousand batches it would wait for many of them in a row.
const PAUSE: Duration = Duration::from_millis(2);

impl Operator {
    /// Turns unused plans that are past their time into `expired`, in small transactions. Deletes nothing. Answers how
    /// many.
    ///
    /// # Errors
    /// Busy and storage errors; what was swept before stays swept.
    pub fn sweep(&self) -> Result<u64> {
        let _span = crate::report::span("sweep", "");
        let mut swept = 0;
        for state in [State::Previewed, State::AwaitingApproval, State::Approved] {
            loop {
                let batch = self.inner.write(&self.actor, |tx| {
                    let mut rows = tx.overdue(state, BATCH)?;
                    for row in &mut rows {
                        tx.notice_expiry(row)?;
                    }
                    Ok(Ok(rows.len()))
                })?;
                swept += batch as u64;
                if batch < BATCH as usize {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(swept)
    }

    /// Deletes the rows of plans that were settled longer ago than this, in small transactions; their tombstones and
    /// audit rows stay, and every verb goes on to answer as before. Answers how many.
    ///
    /// # Errors
    /// Busy and storage errors; what was purged before stays purged.
    pub fn purge(&self, older_than: Duration) -> Result<u64> {
        self.purge_with(older_than, &mut |_, _| {})
    }

    /// As [`purge`](Operator::purge); `progress` is told after each transaction how many plans were purged, and how many
    /// were looked at.
    ///
    /// ```
    /// # let gate = countersign::Gate::ephemeral()?;
    /// let ninety_days = std::time::Duration::from_secs(90 * 24 * 60 * 60);
    /// let purged = gate.operator("olga")?.purge_with(ninety_days, &mut |purged, seen| eprintln!("{purged} of {seen}"))?;
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`purge`](Operator::purge).
    pub fn purge_with(&self, older_than: Duration, progress: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        let _span = crate::report::span("purge", "");
        self.inner.standing()?;
        let age = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX);
        let before = self.inner.store.now().saturating_sub(age);
        let (mut after, mut purged, mut seen) = (i64::MIN, 0, 0);
        loop {
            // The walk reads without a lock; each deletion asks again under it.
            let rows = self.inner.read(|reader| reader.settled_before(before, after, BATCH * 5))?;
            let Some(&(last, _)) = rows.last() else { return Ok(purged) };
            after = last;
            seen += rows.len() as u64;
            let settled: Vec<i64> = rows.into_iter().filter(|(_, settled)| *settled).map(|(rowid, _)| rowid).collect();
            let mut left = settled.as_slice();
            while !left.is_empty() {
                let (deleted, looked_at) = self.inner.write(&self.actor, |tx| {
                    let (started, mut deleted, mut looked_at) = (Instant::now(), 0_u64, 0);
                    for rowid in &left[..left.len().min(BATCH as usize)] {
                        deleted += u64::from(tx.purge(*rowid, before)?);
                        looked_at += 1;
                        if started.elapsed() >= SLICE {
                            break;
                        }
                    }
                    if deleted > 0 {
                        let detail = format!("{{\"plans\":{deleted},\"settled_before\":{before}}}");
                        tx.audit(Draft { detail: Some(detail), ..Draft::new("purged") })?;
                    }
                    Ok(Ok((deleted, looked_at)))
                })?;
                (purged, left) = (purged + deleted, &left[looked_at..]);
                progress(purged, seen);
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Copies the whole store to a new file (mode 0600), through SQLite's backup API, while hosts go on.
    ///
    /// The copy is one moment of the store and one file. It is marked as a backup: whoever opens it can read it, and
    /// every writing verb answers `rolled back` until an operator calls [`accept_restore`](Operator::accept_restore),
    /// because plans that ran after the backup look open in it. The mark is the `application_id` of its header
    /// (0x43534742), so its audit is the original's to the last byte.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use countersign::Gate;
    /// let gate = Gate::open(dir.path().join("gate.db"))?;
    /// let backup = gate.operator("olga")?.backup(dir.path().join("monday.db"))?;
    /// assert_eq!(backup.head, gate.operator("olga")?.audit().head()?);
    ///
    /// let copy = Gate::open(&backup.path)?.operator("olga")?;
    /// assert!(copy.sweep().unwrap_err().is_rolled_back());
    /// copy.accept_restore()?;
    /// copy.sweep()?;
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Invalid input for a target that exists. Storage errors of either file.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<BackupReport> {
        self.inner.usable()?;
        let (path, bytes, head) = self.inner.store.backup(target.as_ref())?;
        Ok(BackupReport { path, bytes, head })
    }

    /// Makes (or drops) the indexes for heavy auditing: with them, questions that name a tool, a caller, a code or a day
    /// answer fast on millions of rows. They are opt-in because every transition pays for them. Answers true when
    /// nothing had to change.
    ///
    /// Each index is made in one transaction of its own, and other writers wait for it: on millions of rows some
    /// seconds each. Hosts and older shells need no change.
    ///
    /// ```
    /// # let gate = countersign::Gate::ephemeral()?;
    /// let operator = gate.operator("auditor")?;
    /// assert!(!operator.audit_index(true)?);
    /// assert!(operator.audit_index(true)?);
    /// operator.audit_index(false)?;
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Busy and storage errors; the indexes that were made before stay.
    pub fn audit_index(&self, on: bool) -> Result<bool> {
        self.inner.standing()?;
        self.inner.store.audit_index(&self.actor, on)
    }

    /// Whether all of them are on.
    #[cfg(feature = "approval-server")]
    pub(crate) fn has_audit_index(&self) -> Result<bool> {
        self.inner.read(|reader| reader.has_audit_index())
    }

    /// Figures of the store: plans by state, how long decisions took, refusals by code, sizes.
    ///
    /// It walks all plans and all audit rows once, in one read: on millions of rows that takes seconds, and the log
    /// cannot be reset meanwhile.
    ///
    /// ```
    /// # let gate = countersign::Gate::ephemeral()?;
    /// let stats = gate.operator("auditor")?.stats()?;
    /// assert_eq!((stats.audit_rows, stats.purged), (1, 0));
    /// # Ok::<(), countersign::Error>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors; `moved` when the file is no longer there.
    pub fn stats(&self) -> Result<Stats> {
        let file_bytes = self.inner.store.pools().stat()?.size;
        let wal_bytes = self.inner.store.pools().wal_bytes()?;
        self.inner.read(|reader| {
            Ok(Stats {
                plans: reader.plans_by_state()?.into_iter().map(|(state, plans)| StateCount { state, plans }).collect(),
                overdue: reader.overdue_total()?,
                purged: reader.purged_total()?,
                decision_time: DecisionTime::of(reader.decision_times()?),
                refusals: reader
                    .refusals_by_code()?
                    .into_iter()
                    .map(|(code, refusals)| CodeCount { code, refusals })
                    .collect(),
                audit_rows: reader.audit_head()?.seq.unsigned_abs(),
                audit_index: reader.has_audit_index()?,
                file_bytes,
                wal_bytes,
            })
        })
    }
}

/// What a backup made.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BackupReport {
    /// The copy's absolute path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Where its audit stands.
    pub head: Head,
}

/// Figures of a store.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// How many plans are in each state, as stored: those past their time and not yet swept count in their old one.
    /// States without a plan are left out.
    pub plans: Vec<StateCount>,
    /// How many of the open ones are past their time: `sweep` turns them into `expired`.
    pub overdue: u64,
    /// How many plans were purged and live on as tombstones.
    pub purged: u64,
    /// How long people took from the plan's creation to its decision, over the plans that stand and were decided.
    pub decision_time: DecisionTime,
    /// How often each refusal was given, the most frequent first; over the whole audit.
    pub refusals: Vec<CodeCount>,
    /// How many audit rows there are.
    pub audit_rows: u64,
    /// True while the indexes for heavy auditing are on.
    pub audit_index: bool,
    /// The main file's size.
    pub file_bytes: u64,
    /// The write-ahead log's size.
    pub wal_bytes: u64,
}

/// How many plans are in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateCount {
    /// The state's name.
    pub state: String,
    /// How many.
    pub plans: u64,
}

/// How often a refusal was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CodeCount {
    /// The refusal's code.
    pub code: String,
    /// How often.
    pub refusals: u64,
}

/// Percentiles, in milliseconds, each one of the times that were measured (nearest rank); null without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DecisionTime {
    /// How many decisions.
    pub decisions: u64,
    /// Half of them took no longer.
    pub p50_ms: Option<i64>,
    /// Nine of ten took no longer.
    pub p90_ms: Option<i64>,
    /// 99 of 100 took no longer.
    pub p99_ms: Option<i64>,
    /// The longest.
    pub max_ms: Option<i64>,
}

impl DecisionTime {
    fn of(mut times: Vec<i64>) -> Self {
        times.sort_unstable();
        let rank = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        Self {
            decisions: times.len() as u64,
            p50_ms: rank(50),
            p90_ms: rank(90),
            p99_ms: rank(99),
            max_ms: times.last().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DecisionTime;

    #[test]
    fn percentiles_are_measured_times_by_nearest_rank() {
        let of = |times: &[i64]| {
            let found = DecisionTime::of(times.to_vec());
            (found.decisions, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms)
        };
        assert_eq!(of(&[]), (0, None, None, None, None));
        assert_eq!(of(&[7]), (1, Some(7), Some(7), Some(7), Some(7)));
        assert_eq!(of(&[4, 1, 3, 2]), (4, Some(2), Some(4), Some(4), Some(4)));
        let hundred: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), (100, Some(50), Some(90), Some(99), Some(100)));
    }
}
