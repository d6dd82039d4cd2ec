#!/usr/bin/env python3
"""Recomputes the audit chain of a countersign file, with nothing but the standard library.

usage: verify_audit.py GATE.DB [STORE:SEQ:HASH]      the head that was exported earlier, if there is one
"""
import hashlib
import json
import pathlib
import sqlite3
import sys

HASHED = ("seq", "at", "plan_token", "event", "from_state", "to_state", "tool", "caller", "reason", "actor", "channel",
          "code", "detail", "preview_count", "fingerprint", "attempt", "instance_id", "duration_us")


def verify(path, known=None):
    file = sqlite3.connect(pathlib.Path(path).resolve().as_uri() + "?mode=ro", uri=True)
    seq, previous, store, known_seen = 0, "0" * 64, None, known is None
    for *row, prev_hash, stored in file.execute(
            f"SELECT {', '.join(HASHED)}, prev_hash, hash FROM audit_events ORDER BY seq"):
        seq += 1
        line = previous + json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        computed = hashlib.sha256(line.encode()).hexdigest()
        if (row[0], prev_hash, stored) != (seq, previous, computed):
            raise SystemExit(f"BROKEN at audit row {seq}")
        if seq == 1:
            store = row[HASHED.index("detail")]
        previous = stored
        known_seen = known_seen or known == f"{store}:{seq}:{stored}"
    if not known_seen:
        raise SystemExit(f"BROKEN: the exported head {known} is not in this chain")
    print(f"intact: {seq} rows, head {store}:{seq}:{previous}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    verify(*sys.argv[1:])
