-- Indexes for heavy auditing: opt-in (`Operator::audit_index`, `countersign audit index on`), because each transition
-- pays for them. The chain, the gates and the listings never need them. Each with the queries that it is for.

-- everything about a tool, in order: WHERE tool = ? ORDER BY seq LIMIT ?
CREATE INDEX IF NOT EXISTS audit_events_by_tool ON audit_events (tool) WHERE tool IS NOT NULL;

-- a tool on a day, or in any span: WHERE tool = ? AND at >= ? AND at < ? (the views' `at` is at_iso)
CREATE INDEX IF NOT EXISTS audit_events_by_tool_at ON audit_events (tool, at_iso) WHERE tool IS NOT NULL;

-- what happened to a tool's plans: WHERE tool = ? AND event = ? ORDER BY seq; counts by event from the index alone
CREATE INDEX IF NOT EXISTS audit_events_by_tool_event ON audit_events (tool, event) WHERE tool IS NOT NULL;

-- everything about a caller, in order: WHERE caller = ? ORDER BY seq LIMIT ?
CREATE INDEX IF NOT EXISTS audit_events_by_caller ON audit_events (caller) WHERE caller IS NOT NULL;

-- a caller on a day: WHERE caller = ? AND at >= ? AND at < ?
CREATE INDEX IF NOT EXISTS audit_events_by_caller_at ON audit_events (caller, at_iso) WHERE caller IS NOT NULL;

-- what happened to a caller's plans: WHERE caller = ? AND event = ? ORDER BY seq; counts by event from the index alone
CREATE INDEX IF NOT EXISTS audit_events_by_caller_event ON audit_events (caller, event) WHERE caller IS NOT NULL;

-- a day: WHERE at >= ? AND at < ?
CREATE INDEX IF NOT EXISTS audit_events_by_at ON audit_events (at_iso);

-- refusals and failures: WHERE code = ? ORDER BY seq; counts by code from the index alone
CREATE INDEX IF NOT EXISTS audit_events_by_code ON audit_events (code, event) WHERE code IS NOT NULL;
