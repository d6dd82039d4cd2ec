//! Every statement, by table. Parameters are named; rows are read by column name, or, where there are many of
//! them, in the order of the lists here with the names checked.

/// The narrow columns of a plan.
macro_rules! narrow_columns {
    () => {
        "plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, expires_at, decided_at, \
         executing_since, settled_at, attempt, claim_token, instance_id, idempotency_key, preview_count, data_digest, \
         reason, reject_reason, error"
    };
}

/// The columns of a plan that a transition needs: all but the wide ones. A plan that was never gated has no approvals, and
/// one that waits for its only one has none yet: to look them up would read a page for each plan of a listing.
macro_rules! core_columns {
    () => {
        concat!(
            narrow_columns!(),
            ", CASE WHEN gated = 0 OR (state = 'awaiting_approval' AND approvals_needed = 1) THEN 0
                    ELSE (SELECT count(*) FROM approvals a
                           WHERE a.plan_token = plans.plan_token AND a.seal = plans.seal) END AS approvals"
        )
    };
}

/// All of a plan.
macro_rules! full_columns {
    () => {
        concat!(core_columns!(), ", payload, extra, result")
    };
}

/// The condition of the partial index `plans_live`. SQLite does not infer it from a state, so every statement that means
/// the index repeats it, after the narrower condition: the first one is what the index is searched by.
macro_rules! live {
    () => {
        "settled_at IS NULL"
    };
}

// plans

pub(super) const PLAN_CORE: &str = concat!("SELECT ", core_columns!(), " FROM plans WHERE plan_token = :plan_token");
pub(super) const PLAN_FULL: &str = concat!("SELECT ", full_columns!(), " FROM plans WHERE plan_token = :plan_token");
/// For whoever reads the approvals themselves: a claim, and the walk.
pub(super) const PLAN_UNCOUNTED: &str = concat!(
    "SELECT ",
    narrow_columns!(),
    ", 0 AS approvals, payload, extra, result FROM plans WHERE plan_token = :plan_token"
);
/// In the order in which the chain begins them.
pub(super) const PLANS_VERIFIED_AFTER: &str = concat!(
    "SELECT ",
    narrow_columns!(),
    ", 0 AS approvals, payload, extra, result, rowid FROM plans WHERE rowid > :after ORDER BY rowid"
);
pub(super) const PLAN_BY_KEY: &str = concat!(
    "SELECT ",
    full_columns!(),
    " FROM plans WHERE caller = :caller AND tool = :tool AND idempotency_key = :key"
);
pub(super) const PLAN_INSERT: &str = "
INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, expires_at,
                   idempotency_key, preview_count, data_digest, reason, payload, extra)
VALUES (:plan_token, :tool, :caller, :state, :gated, :approvals_needed, :fingerprint, :seal, :created_at, :expires_at,
        :idempotency_key, :preview_count, :data_digest, :reason, :payload, :extra)";

/// The claim: every gate of design section 3 in one conditional UPDATE. `expires_at >= :now`: a plan is valid in the
/// millisecond in which it expires. A clock more than 2 s behind the plan's newest time claims nothing.
pub(super) const PLAN_CLAIM: &str = "
UPDATE plans
   SET state = 'executing', attempt = attempt + 1, claim_token = :claim_token, instance_id = :instance_id,
       executing_since = :now
 WHERE plan_token = :plan_token
   AND caller = :caller
   AND state IN ('previewed', 'approved')
   AND expires_at >= :now
   AND tool = :tool
   AND (:fingerprint IS NULL OR fingerprint = :fingerprint)
   AND (data_digest IS NULL OR data_digest = :data_digest)
   AND (gated = 0 OR (SELECT count(*) FROM approvals a
                       WHERE a.plan_token = plans.plan_token AND a.seal = plans.seal) >= approvals_needed)
   AND :now + 2000 >= max(created_at, ifnull(decided_at, created_at), ifnull(executing_since, created_at))";

/// Every other transition: the row as it was read, in the same transaction, is what the WHERE expects.
macro_rules! transition {
    ($more:literal) => {
        concat!(
            "UPDATE plans SET state = :to_state, ",
            $more,
            "decided_at = :decided_at, settled_at = :settled_at, claim_token = :claim_token, instance_id = :instance_id,
             reject_reason = :reject_reason, error = :error, result = :result
              WHERE plan_token = :plan_token AND state = :from_state AND attempt = :attempt"
        )
    };
}
pub(super) const PLAN_TRANSITION: &str = transition!("");
/// The plan becomes gated, for ever.
pub(super) const PLAN_TRANSITION_GATED: &str = transition!("gated = 1, ");

pub(super) const PLANS_TWINS: &str = concat!(
    "SELECT plan_token FROM plans INDEXED BY plans_live
      WHERE state IN ('previewed', 'awaiting_approval', 'approved', 'executing', 'uncertain') AND ",
    live!(),
    " AND fingerprint = :fingerprint AND tool = :tool AND plan_token <> :plan_token ORDER BY plan_token"
);
pub(super) const PLANS_WAITING_OF_CALLER: &str = concat!(
    "SELECT count(*) FROM plans WHERE state = 'awaiting_approval' AND expires_at >= :now AND caller = :caller AND ",
    live!()
);
pub(super) const PLANS_WAITING_OF_TOOL: &str = concat!(
    "SELECT count(*) FROM plans
      WHERE state = 'awaiting_approval' AND expires_at >= :now AND caller = :caller AND tool = :tool AND ",
    live!()
);
pub(super) const PLANS_PENDING: &str = concat!(
    "SELECT ",
    full_columns!(),
    " FROM plans WHERE state = 'awaiting_approval' AND expires_at >= :now AND ",
    live!(),
    " ORDER BY expires_at, rowid LIMIT :limit"
);
pub(super) const PLANS_PENDING_TOTAL: &str =
    concat!("SELECT count(*) FROM plans WHERE state = 'awaiting_approval' AND expires_at >= :now AND ", live!());
pub(super) const PLANS_STUCK: &str = concat!(
    "SELECT ",
    full_columns!(),
    " FROM plans WHERE state IN ('executing', 'uncertain') AND ",
    live!(),
    " ORDER BY executing_since, rowid LIMIT :limit"
);
pub(super) const PLANS_STUCK_KEYS: &str = concat!(
    "SELECT plan_token, state, attempt, instance_id FROM plans WHERE state IN ('executing', 'uncertain') AND ",
    live!(),
    " ORDER BY executing_since, rowid"
);
pub(super) const PLANS_STUCK_TOTAL: &str =
    concat!("SELECT count(*) FROM plans WHERE state IN ('executing', 'uncertain') AND ", live!());
pub(super) const PLANS_OVERDUE: &str = concat!(
    "SELECT ",
    core_columns!(),
    " FROM plans WHERE state = :state AND expires_at < :now AND ",
    live!(),
    " ORDER BY expires_at LIMIT :limit"
);
pub(super) const PLANS_IN_STATE: &str =
    concat!("SELECT ", core_columns!(), " FROM plans WHERE state = :state AND ", live!(), " ORDER BY rowid");
pub(super) const PLANS_SETTLED_BEFORE: &str = "
SELECT rowid, settled_at < :before AND state IN ('executed', 'failed', 'rejected', 'expired') AS settled
  FROM plans WHERE rowid > :after ORDER BY rowid LIMIT :limit";
pub(super) const PLAN_PURGE_APPROVALS: &str = "
DELETE FROM approvals WHERE plan_token =
  (SELECT plan_token FROM plans WHERE rowid = :rowid AND settled_at < :before
      AND state IN ('executed', 'failed', 'rejected', 'expired'))";
pub(super) const PLAN_PURGE: &str = "
DELETE FROM plans
 WHERE rowid = :rowid AND settled_at < :before AND state IN ('executed', 'failed', 'rejected', 'expired')";
pub(super) const PLANS_BY_LIVE_STATE: &str =
    concat!("SELECT state, count(*) FROM plans WHERE ", live!(), " GROUP BY state");
pub(super) const PLANS_OLDEST_EXECUTING: &str =
    concat!("SELECT min(executing_since) FROM plans WHERE state IN ('executing', 'uncertain') AND ", live!());
pub(super) const PLANS_BY_STATE: &str = "SELECT state, count(*) FROM plans GROUP BY state ORDER BY state";
pub(super) const PLANS_OVERDUE_TOTAL: &str = concat!(
    "SELECT count(*) FROM plans
      WHERE state IN ('previewed', 'awaiting_approval', 'approved') AND expires_at < :now AND ",
    live!()
);
pub(super) const PLANS_PURGED_TOTAL: &str = "
SELECT (SELECT count(*) FROM tombstones)
     - (SELECT count(*) FROM plans WHERE state IN ('executed', 'failed', 'rejected', 'expired'))";
pub(super) const PLANS_DECISION_TIMES: &str = "
SELECT max(decided_at - created_at, 0) FROM plans WHERE decided_at IS NOT NULL";
pub(super) const PLANS_TOTAL: &str = "SELECT count(*) FROM plans";
pub(super) const TOMBSTONES_TOTAL: &str = "SELECT count(*) FROM tombstones";
pub(super) const APPROVALS_TOTAL: &str = "SELECT count(*) FROM approvals";
pub(super) const PLANS_WITHOUT_AUDIT: &str = "
SELECT plan_token FROM plans
 WHERE NOT EXISTS (SELECT 1 FROM audit_events a
                    WHERE a.plan_token = plans.plan_token AND a.event IN ('previewed', 'awaiting_approval')) LIMIT 1";
pub(super) const TOMBSTONES_WITHOUT_AUDIT: &str = "
SELECT plan_token FROM tombstones
 WHERE NOT EXISTS (SELECT 1 FROM audit_events a
                    WHERE a.plan_token = tombstones.plan_token AND a.to_state = tombstones.kind
                      AND a.from_state <> a.to_state) LIMIT 1";
pub(super) const TOMBSTONES_LIFTED: &str = "
SELECT plan_token, tool, fingerprint, lifted_at, lifted_by FROM tombstones WHERE lifted_at IS NOT NULL";

pub(super) const APPROVALS_WITHOUT_PLAN: &str = "
SELECT plan_token FROM approvals
 WHERE NOT EXISTS (SELECT 1 FROM plans p WHERE p.plan_token = approvals.plan_token) LIMIT 1";

// approvals

pub(super) const APPROVAL_INSERT: &str = "
INSERT INTO approvals (plan_token, reviewer, seal, channel, approved_at)
VALUES (:plan_token, :reviewer, :seal, :channel, :approved_at)";
pub(super) const APPROVAL_OF: &str =
    "SELECT seal FROM approvals WHERE plan_token = :plan_token AND reviewer = :reviewer";
/// In the order of the reviewers, which the primary key gives.
pub(super) const APPROVALS_OF_PLAN: &str =
    "SELECT reviewer, seal, channel, approved_at FROM approvals WHERE plan_token = :plan_token ORDER BY reviewer";
pub(super) const APPROVALS_VERIFIED: &str =
    "SELECT reviewer, seal, channel, approved_at FROM approvals WHERE plan_token = :plan_token";
pub(super) const APPROVALS_DELETE: &str = "DELETE FROM approvals WHERE plan_token = :plan_token";

// tombstones

pub(super) const TOMBSTONE_INSERT: &str = "
INSERT INTO tombstones (plan_token, kind, caller, tool, idempotency_key, fingerprint, attempt, reason, actor, at)
VALUES (:plan_token, :kind, :caller, :tool, :idempotency_key, :fingerprint, :attempt, :reason, :actor, :at)";
/// What answers for a plan after its purge. Its seal stands in the row of its creation.
macro_rules! tombstone_columns {
    () => {
        "plan_token, kind, caller, tool, fingerprint, attempt, reason, at, \
         ifnull((SELECT a.detail FROM audit_events a WHERE a.plan_token = tombstones.plan_token \
                  AND a.event IN ('previewed', 'awaiting_approval') ORDER BY a.seq LIMIT 1), '') AS seal"
    };
}
pub(super) const TOMBSTONE: &str =
    concat!("SELECT ", tombstone_columns!(), " FROM tombstones WHERE plan_token = :plan_token");
pub(super) const TOMBSTONE_VERIFIED: &str =
    "SELECT kind, fingerprint, tool, caller, attempt FROM tombstones WHERE plan_token = :plan_token";
/// In the order in which the chain ends their plans.
pub(super) const TOMBSTONES_VERIFIED_AFTER: &str = "
SELECT kind, fingerprint, tool, caller, attempt, plan_token, rowid FROM tombstones WHERE rowid > :after ORDER BY rowid";
pub(super) const TOMBSTONE_BY_KEY: &str = concat!(
    "SELECT ",
    tombstone_columns!(),
    " FROM tombstones WHERE caller = :caller AND tool = :tool AND idempotency_key = :key"
);
pub(super) const TOMBSTONE_REJECTED: &str = "
SELECT plan_token, kind, caller, tool, fingerprint, attempt, reason, actor, at FROM tombstones
 WHERE kind = 'rejected' AND lifted_at IS NULL AND tool = :tool AND fingerprint = :fingerprint AND plan_token <> :except
 ORDER BY rowid DESC LIMIT 1";
pub(super) const TOMBSTONES_LIFT: &str = "
UPDATE tombstones SET lifted_at = :now, lifted_by = :actor
 WHERE kind = 'rejected' AND lifted_at IS NULL AND tool = :tool AND fingerprint = :fingerprint";

// audit_events

macro_rules! audit_columns {
    () => {
        "seq, at, plan_token, event, from_state, to_state, tool, caller, reason, actor, channel, code, detail, \
         preview_count, fingerprint, attempt, instance_id, duration_us, prev_hash, hash"
    };
}
pub(super) const AUDIT_COLUMNS: &str = audit_columns!();
pub(super) const AUDIT_INSERT: &str = concat!(
    "INSERT INTO audit_events (",
    audit_columns!(),
    ") VALUES (:seq, :at, :plan_token, :event, :from_state, :to_state, :tool, :caller, :reason, :actor, :channel, :code, \
     :detail, :preview_count, :fingerprint, :attempt, :instance_id, :duration_us, :prev_hash, :hash)"
);
pub(super) const AUDIT_HEAD: &str = "SELECT seq, hash FROM audit_events ORDER BY seq DESC LIMIT 1";
pub(super) const AUDIT_TOKENS_FROM: &str =
    "SELECT seq, plan_token FROM audit_events WHERE seq >= :seq ORDER BY seq LIMIT :limit";
pub(super) const AUDIT_HASH_AT: &str = "SELECT hash FROM audit_events WHERE seq = :seq";
pub(super) const AUDIT_STORE_ID: &str = "SELECT detail FROM audit_events WHERE seq = 1 AND event = 'store_created'";
pub(super) const AUDIT_OF_PLAN: &str =
    concat!("SELECT ", audit_columns!(), " FROM audit_events WHERE plan_token = :plan_token ORDER BY seq");
/// Only a claim's own report says how long the claim took.
pub(super) const AUDIT_REPORT_OF_CLAIM: &str = "
SELECT 1 FROM audit_events
 WHERE plan_token = :plan_token AND attempt = :attempt AND event IN ('executed', 'failed') AND duration_us IS NOT NULL
 LIMIT 1";
pub(super) const AUDIT_AFTER: &str =
    concat!("SELECT ", audit_columns!(), " FROM audit_events WHERE seq > :after ORDER BY seq LIMIT :limit");
pub(super) const AUDIT_REFUSALS: &str = "
SELECT code, count(*) FROM audit_events WHERE event = 'refused' AND code IS NOT NULL GROUP BY code
 ORDER BY count(*) DESC, code";
pub(super) const AUDIT_NEWEST_TIME: &str =
    "SELECT max(at) FROM (SELECT at FROM audit_events ORDER BY seq DESC LIMIT 100)";

// the schema

pub(super) const INDEX_EXISTS: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name = :name";

// instances

pub(super) const INSTANCE_INSERT: &str = "
INSERT INTO instances (instance_id, lock_dev, lock_ino, boot_id, host_name, pid, opened_at)
VALUES (:instance_id, :lock_dev, :lock_ino, :boot_id, :host_name, :pid, :opened_at)
ON CONFLICT (instance_id) DO NOTHING";
pub(super) const INSTANCE: &str = "
SELECT instance_id, lock_dev, lock_ino, boot_id, host_name, pid, opened_at FROM instances
 WHERE instance_id = :instance_id";
pub(super) const INSTANCES: &str = "
SELECT instance_id, lock_dev, lock_ino, boot_id, host_name, pid, opened_at FROM instances ORDER BY opened_at";
/// Goes only while it owns no executing plan.
pub(super) const INSTANCE_DELETE: &str = concat!(
    "DELETE FROM instances
      WHERE instance_id = :instance_id
        AND NOT EXISTS (SELECT 1 FROM plans WHERE state = 'executing' AND plans.instance_id = :instance_id AND ",
    live!(),
    ")"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_the_live_plans_is_searched_by_state_and_never_scanned() {
        let connection = rusqlite::Connection::open_in_memory().expect("in memory");
        connection.execute_batch(include_str!("../../migrations/0001_init.sql")).expect("schema");
        let statements = [
            PLANS_TWINS,
            PLANS_WAITING_OF_CALLER,
            PLANS_WAITING_OF_TOOL,
            PLANS_PENDING,
            PLANS_PENDING_TOTAL,
            PLANS_STUCK,
            PLANS_STUCK_KEYS,
            PLANS_STUCK_TOTAL,
            PLANS_OVERDUE,
            PLANS_IN_STATE,
            PLANS_OLDEST_EXECUTING,
            INSTANCE_DELETE,
        ];
        for statement in statements {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).expect(statement);
            // Unbound parameters are NULL: the plan does not depend on them.
            let steps: Vec<String> =
                explain.raw_query().mapped(|row| row.get("detail")).collect::<Result<_, _>>().expect("an explanation");
            let plans: Vec<_> = steps.iter().filter(|step| step.contains(" plans")).collect();
            assert!(
                !plans.is_empty() && plans.iter().all(|step| step.contains("SEARCH") && step.contains("plans_live")),
                "{statement}: {steps:?}"
            );
        }
    }
}
