# SPDX-License-Identifier: Apache-2.0
"""What this host stored: rows of the store, and the page that is made of an entry of the history."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

import msgspec

from integration.fuzz.target import Target, choices, document
from nodeagent.core.coordination.lease import LeaseToken
from nodeagent.features.page.view.page import page
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
SPAN: Final[dict[str, Any]] = {
    "name": "Acting",
    "at": "2026-11-01T09:59:00.000Z",
    "boot": 0,
    "mono": 1.0,
    "seconds": 2.0,
    "result": "",
    "reason": "",
    "message": "",
    "phase": "",
}
PAGE: Final[dict[str, Any]] = {
    "plan": {
        "changes": [{"domain": "file", "key": "/etc/a", "change": "changed", "actions": ["restart a.service"]}],
        "more": 2,
        "actions": ["restart a.service"],
        "drain": True,
        "os": "x",
    },
    "trail": {
        "boots": [
            {"id": "a", "seen": 0.0, "last": 9.0, "offset": 1.7e9, "accepted": None, "clock_steps": []},
            {"id": "b", "seen": 1.0, "last": 5.0, "offset": 1.7e9, "accepted": 3.0, "clock_steps": [[1.0, 2.0]]},
        ],
        "phases": [{**SPAN, "name": "Staging"}, SPAN],
        "steps": [SPAN],
        "waits": [SPAN],
    },
    "etcd_disk": {"before": 0.1},
    "seconds": 9.0,
    "fallback": False,
    "reboots": 1,
}
ENTRY: Final[dict[str, Any]] = {
    "schema": "nodeagent/update/v1",
    "update_id": "84af7045edd74549",
    "from_name": "worker-1",
    "to_name": "worker-2",
    "started": "2026-11-01T09:59:00.000Z",
    "finished": "2026-11-01T10:00:00.000Z",
    "outcome": "done",
    "disruption": "restart",
    "reboots": 0,
    "boots": 0,
    "reboot_avoided": False,
    "seconds": 60.0,
    "reason": "",
    "message": "",
    "fallback": False,
    "to_digest": "",
    "successor": "",
    "etcd_disk": {},
    "plan": {},
    "trail": {},
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
        rows.maintenance_from_row(row)
    with suppress(*DAMAGE):
        rows.snapshot_from_row("path:/etc/x", row, rows.checksum("path:/etc/x", row, b"x"), b"x")
    # A damaged record is salvaged, whatever it is.
    rows.salvage_record(row, row)
    if found is not None:
        with suppress(*DAMAGE):
            msgspec.convert(found, LeaseToken)


def report(data: bytes) -> None:
    # The store checks the types of the fields, and nothing below them.
    odd = document(PAGE, data) or {}
    parts = {key: odd[key] for key in ("plan", "trail", "etcd_disk") if isinstance(odd.get(key), dict)}
    page({**ENTRY, **parts}, host="h", version="1")


TARGETS: Final = (
    Target("rows", stored, [b"", b"{}", b"[]", json.dumps(RECORD).encode(), *choices(40)]),
    Target("report", report, [b"{}", json.dumps(PAGE).encode(), b'{"plan": {"changes": [null]}}', *choices(60)]),
)
