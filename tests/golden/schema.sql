CREATE TABLE approvals (
  plan_token  TEXT    NOT NULL,
  reviewer    TEXT    NOT NULL COLLATE NOCASE
              CONSTRAINT reviewer_is_a_name
              CHECK (length(reviewer) BETWEEN 1 AND 128 AND reviewer NOT GLOB '*[^A-Za-z0-9._@:/+-]*'
                     AND lower(reviewer) <> 'unknown'),
  seal        TEXT    NOT NULL,
  channel     TEXT    NOT NULL,
  approved_at INTEGER NOT NULL,
  approved_at_iso TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', approved_at / 1000.0, 'unixepoch')) VIRTUAL,
  PRIMARY KEY (plan_token, reviewer)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_events (
  seq           INTEGER NOT NULL PRIMARY KEY CONSTRAINT seq_is_positive CHECK (seq >= 1),
  at            INTEGER NOT NULL,
  plan_token    TEXT,
  event         TEXT    NOT NULL CONSTRAINT event_is_named CHECK (length(event) BETWEEN 1 AND 133),
  from_state    TEXT,
  to_state      TEXT,
  tool          TEXT,
  caller        TEXT    COLLATE NOCASE,
  reason        TEXT,
  actor         TEXT    NOT NULL COLLATE NOCASE,
  channel       TEXT    NOT NULL,
  code          TEXT,
  detail        TEXT,
  preview_count INTEGER,
  fingerprint   TEXT,
  attempt       INTEGER,
  instance_id   TEXT    NOT NULL,
  duration_us   INTEGER,
  prev_hash     TEXT    NOT NULL CONSTRAINT prev_hash_is_sha256 CHECK (length(prev_hash) = 64),
  hash          TEXT    NOT NULL CONSTRAINT hash_is_sha256 CHECK (length(hash) = 64),
  at_iso        TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch')) VIRTUAL
) STRICT;

CREATE TABLE instances (
  instance_id TEXT    NOT NULL PRIMARY KEY,
  lock_dev    INTEGER NOT NULL,
  lock_ino    INTEGER NOT NULL,
  boot_id     TEXT    NOT NULL,
  host_name   TEXT    NOT NULL,
  pid         INTEGER NOT NULL,
  opened_at   INTEGER NOT NULL,
  opened_at_iso TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', opened_at / 1000.0, 'unixepoch')) VIRTUAL
) STRICT;

CREATE TABLE plans (
  plan_token       TEXT    NOT NULL PRIMARY KEY
                   CONSTRAINT plan_token_is_48_lower_hex
                   CHECK (length(plan_token) = 48 AND plan_token NOT GLOB '*[^0-9a-f]*'),
  tool             TEXT    NOT NULL
                   CONSTRAINT tool_is_a_name
                   CHECK (length(tool) BETWEEN 1 AND 128 AND tool NOT GLOB '*[^A-Za-z0-9._@:/+-]*'),
  caller           TEXT    NOT NULL COLLATE NOCASE
                   CONSTRAINT caller_is_a_name
                   CHECK (length(caller) BETWEEN 1 AND 128 AND caller NOT GLOB '*[^A-Za-z0-9._@:/+-]*'),
  state            TEXT    NOT NULL
                   CONSTRAINT state_is_known
                   CHECK (state = 'previewed' OR state = 'awaiting_approval' OR state = 'approved' OR
                          state = 'executing' OR state = 'uncertain' OR
                          state = 'executed' OR state = 'failed' OR state = 'rejected' OR state = 'expired'),
  gated            INTEGER NOT NULL CONSTRAINT gated_is_a_flag CHECK (gated IN (0, 1)),
  approvals_needed INTEGER NOT NULL CONSTRAINT approvals_needed_is_positive CHECK (approvals_needed >= 1),
  fingerprint      TEXT    NOT NULL
                   CONSTRAINT fingerprint_is_sha256
                   CHECK (length(fingerprint) = 64 AND fingerprint NOT GLOB '*[^0-9a-f]*'),
  seal             TEXT    NOT NULL
                   CONSTRAINT seal_is_sha256
                   CHECK (length(seal) = 64 AND seal NOT GLOB '*[^0-9a-f]*'),
  created_at       INTEGER NOT NULL,
  expires_at       INTEGER NOT NULL CONSTRAINT expires_after_creation CHECK (expires_at > created_at),
  decided_at       INTEGER,
  executing_since  INTEGER,
  settled_at       INTEGER,
  attempt          INTEGER NOT NULL DEFAULT 0 CONSTRAINT attempt_is_counted CHECK (attempt >= 0),
  claim_token      TEXT,
  instance_id      TEXT,
  idempotency_key  TEXT
                   CONSTRAINT idempotency_key_is_printable
                   CHECK (idempotency_key IS NULL OR
                          (length(idempotency_key) BETWEEN 1 AND 256 AND idempotency_key NOT GLOB '*[^ -~]*')),
  preview_count    INTEGER CONSTRAINT preview_count_is_a_count CHECK (preview_count IS NULL OR preview_count >= 0),
  data_digest      TEXT,
  reason           TEXT,
  reject_reason    TEXT,
  payload          TEXT    NOT NULL,
  extra            TEXT,
  result           TEXT,
  error            TEXT,
  created_at_iso      TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch')) VIRTUAL,
  expires_at_iso      TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch')) VIRTUAL,
  decided_at_iso      TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', decided_at / 1000.0, 'unixepoch')) VIRTUAL,
  executing_since_iso TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', executing_since / 1000.0, 'unixepoch')) VIRTUAL,
  settled_at_iso      TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', settled_at / 1000.0, 'unixepoch')) VIRTUAL,
  CONSTRAINT a_claim_is_whole
    CHECK (state <> 'executing' OR
           (attempt >= 1 AND claim_token IS NOT NULL AND instance_id IS NOT NULL AND executing_since IS NOT NULL)),
  CONSTRAINT a_settled_plan_has_its_time
    CHECK ((state = 'executed' OR state = 'failed' OR state = 'rejected' OR state = 'expired')
           = (settled_at IS NOT NULL)),
  CONSTRAINT waiting_and_approved_are_gated
    CHECK (state NOT IN ('awaiting_approval', 'approved') OR gated = 1),
  CONSTRAINT previewed_is_not_gated
    CHECK (state <> 'previewed' OR gated = 0)
) STRICT;

CREATE TABLE tombstones (
  plan_token      TEXT    NOT NULL PRIMARY KEY,
  kind            TEXT    NOT NULL
                  CONSTRAINT kind_is_terminal
                  CHECK (kind = 'rejected' OR kind = 'executed' OR kind = 'failed' OR kind = 'expired'),
  caller          TEXT    NOT NULL COLLATE NOCASE,
  tool            TEXT    NOT NULL,
  idempotency_key TEXT,
  fingerprint     TEXT    NOT NULL,
  attempt         INTEGER NOT NULL,
  reason          TEXT,
  actor           TEXT    NOT NULL,
  at              INTEGER NOT NULL,
  lifted_at       INTEGER,
  lifted_by       TEXT,
  at_iso          TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch')) VIRTUAL,
  lifted_at_iso   TEXT GENERATED ALWAYS AS (strftime('%Y-%m-%dT%H:%M:%fZ', lifted_at / 1000.0, 'unixepoch')) VIRTUAL,
  CONSTRAINT only_a_rejection_is_lifted
    CHECK ((lifted_at IS NULL) = (lifted_by IS NULL) AND (lifted_at IS NULL OR kind = 'rejected'))
) STRICT;

CREATE INDEX audit_events_plan ON audit_events (plan_token) WHERE plan_token IS NOT NULL;

CREATE UNIQUE INDEX plans_idempotency ON plans (caller, tool, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

CREATE INDEX plans_live ON plans (state, expires_at, fingerprint) WHERE settled_at IS NULL;

CREATE INDEX tombstones_idempotency ON tombstones (caller, tool, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

CREATE INDEX tombstones_rejected ON tombstones (tool, fingerprint)
  WHERE kind = 'rejected' AND lifted_at IS NULL;

CREATE TRIGGER audit_events_no_delete BEFORE DELETE ON audit_events
BEGIN
  SELECT RAISE(ABORT, 'audit_events rows are never deleted');
END;

CREATE TRIGGER audit_events_no_update BEFORE UPDATE ON audit_events
BEGIN
  SELECT RAISE(ABORT, 'audit_events rows are never changed');
END;

CREATE TRIGGER plans_delete_settled BEFORE DELETE ON plans
WHEN OLD.state NOT IN ('executed', 'failed', 'rejected', 'expired')
BEGIN
  SELECT RAISE(ABORT, 'only a settled plan is purged');
END;

CREATE TRIGGER plans_first_state AFTER INSERT ON plans
WHEN NEW.state NOT IN ('previewed', 'awaiting_approval')
BEGIN
  SELECT RAISE(ABORT, 'a plan begins previewed or awaiting_approval');
END;

CREATE TRIGGER plans_gated_for_ever BEFORE UPDATE OF gated ON plans
WHEN OLD.gated = 1 AND NEW.gated = 0
BEGIN
  SELECT RAISE(ABORT, 'a gated plan stays gated');
END;

CREATE TRIGGER plans_immutable BEFORE UPDATE OF
  plan_token, tool, caller, payload, fingerprint, seal, idempotency_key, reason, preview_count, data_digest, extra,
  approvals_needed, created_at, expires_at ON plans
BEGIN
  SELECT RAISE(ABORT, 'this column of a plan is fixed at creation');
END;

CREATE TRIGGER plans_state_pair AFTER UPDATE OF state ON plans
WHEN NOT CASE OLD.state
  WHEN 'previewed' THEN
    NEW.state = 'executing' OR NEW.state = 'awaiting_approval' OR NEW.state = 'rejected' OR NEW.state = 'expired'
  WHEN 'awaiting_approval' THEN
    NEW.state = 'approved' OR NEW.state = 'awaiting_approval' OR NEW.state = 'rejected' OR NEW.state = 'expired'
  WHEN 'approved' THEN
    NEW.state = 'executing' OR NEW.state = 'awaiting_approval' OR NEW.state = 'rejected' OR NEW.state = 'expired'
  WHEN 'executing' THEN
    NEW.state = 'executed' OR NEW.state = 'failed' OR NEW.state = 'uncertain' OR NEW.state = 'executing' OR
    NEW.state = 'previewed' OR NEW.state = 'approved' OR NEW.state = 'awaiting_approval'
  WHEN 'uncertain' THEN
    NEW.state = 'executed' OR NEW.state = 'failed' OR NEW.state = 'uncertain' OR
    NEW.state = 'previewed' OR NEW.state = 'approved' OR NEW.state = 'awaiting_approval'
  ELSE 0
END
BEGIN
  SELECT RAISE(ABORT, 'this state does not follow that one');
END;

CREATE VIEW audit_log AS
  SELECT seq, at_iso AS at, event, from_state, to_state, plan_token, tool, caller, actor, channel, code, reason, detail,
         preview_count, attempt, duration_us, fingerprint, instance_id
    FROM audit_events
   ORDER BY seq;

CREATE VIEW pending_plans AS
  SELECT p.plan_token, p.tool, p.caller,
         (SELECT a.reason FROM audit_events a WHERE a.plan_token = p.plan_token ORDER BY a.seq LIMIT 1) AS reason,
         p.preview_count,
         (SELECT count(*) FROM approvals v WHERE v.plan_token = p.plan_token AND v.seal = p.seal) AS approvals,
         p.approvals_needed, p.created_at_iso AS created_at, p.expires_at_iso AS expires_at,
         (p.expires_at - CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) / 1000 AS seconds_left,
         p.fingerprint, p.seal
    FROM plans p
   WHERE p.state = 'awaiting_approval' AND p.settled_at IS NULL
     AND p.expires_at >= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
   ORDER BY p.expires_at, p.rowid;

CREATE VIEW plan_timeline AS
  SELECT a.plan_token, a.seq, a.at_iso AS at, a.event, a.from_state, a.to_state, a.actor, a.channel, a.code, a.reason,
         a.detail, a.attempt, a.duration_us,
         (a.at - (SELECT min(b.at) FROM audit_events b WHERE b.plan_token = a.plan_token)) AS ms_since_creation
    FROM audit_events a
   WHERE a.plan_token IS NOT NULL
   ORDER BY a.plan_token, a.seq;

CREATE VIEW stuck_plans AS
  SELECT p.plan_token, p.tool, p.caller, p.state, p.attempt, p.executing_since_iso AS executing_since,
         (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - p.executing_since) / 1000 AS seconds_stuck,
         p.instance_id, i.host_name, i.pid, p.fingerprint
    FROM plans p LEFT JOIN instances i ON i.instance_id = p.instance_id
   WHERE p.state IN ('executing', 'uncertain') AND p.settled_at IS NULL
   ORDER BY p.executing_since, p.rowid;
