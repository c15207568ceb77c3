# SPDX-License-Identifier: Apache-2.0
"""What this host stored: rows of the store."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.host.store import rows
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry

# The errors that the store makes ``StoreCorrupt``.
DAMAGE: Final = (ValueError, KeyError, TypeError)
RECORD: Final[dict[str, Any]] = {
    "version": 1,
    "phase": "Degraded",
    "since": "2026-11-01T10:00:00.000Z",
    "reason": "Reverted",
    "message": "restart app.service: job failed",
    "update_id": "0123456789abcdef",
    "started": "2026-11-01T09:59:00.000Z",
    "from_digest": "aa",
    "to_digest": "bb",
    "from_name": "good",
    "to_name": "bad",
    "plan": {"changes": []},
    "writes": [["WritePath", "/etc/app/x"]],
    "newly_managed": ["path:/etc/app/x"],
    "leg": {"type": "Rest"},
    # Fields of the other rows.
    "name": "nodeagent",
    "operation": "op",
    "digest": "aa",
    "requester": "jane",
    "claim": {"holder": "nodeagent", "operation": "op", "reason": "r", "instance": "i"},
    "uid": "u",
    "transitions": 1,
    "outcome": "done",
    "type": "file",
    "mode": 420,
    "member": "1",
    "cluster": "2",
    "left": False,
    "id": "op",
    "kind": "join",
    "begun": False,
    "remove": "1",
    "added": "",
    "failed": None,
}


def stored(data: bytes) -> None:
    found = document(RECORD, data)
    row = data.decode(errors="replace") if found is None else json.dumps(found)
    with suppress(*DAMAGE):
        rows.record_from_row(row, rows.checksum(row))
    for kind in (Holder, ApplyRequest, HistoryEntry):
        with suppress(*DAMAGE):
            rows.from_json(kind, row)
    with suppress(*DAMAGE):
        rows.snapshot_from_row("path:/etc/x", row, rows.checksum("path:/etc/x", row, b"x"), b"x")
    # A damaged record is salvaged, whatever it is.
    rows.salvage_record(row, row)


TARGETS: Final = (Target("rows", stored, [b"", b"{}", b"[]", json.dumps(RECORD).encode(), *choices(40)]),)
