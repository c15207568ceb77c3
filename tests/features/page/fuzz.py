# SPDX-License-Identifier: Apache-2.0
"""The page that is made of an entry of the history."""

from __future__ import annotations

import json
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.features.page.view.page import page

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
# Indexes of boots that do not exist, and numbers of no use.
FOUND: Final = [
    b'{"trail": {"boots": [{"id": "a", "seen": 0, "last": 9, "offset": 1}], "phases":'
    b' [{"name": "Acting", "at": "", "boot": 1180591620717411303424, "mono": 1.0}]}}',
    b'{"trail": {"boots": [{"id": "a", "seen": NaN, "last": 1e308, "offset": 1}], "phases":'
    b' [{"name": "Acting", "at": "", "boot": 0, "mono": Infinity}]}}',
    b'{"trail": {"\\ud800": {}}}',
]


def report(data: bytes) -> None:
    # The store checks the types of the fields, and nothing below them.
    odd = document(PAGE, data) or {}
    parts = {key: odd[key] for key in ("plan", "trail", "etcd_disk") if isinstance(odd.get(key), dict)}
    page({**ENTRY, **parts}, host="h", version="1")


TARGETS: Final = (
    Target(
        "report", report, [b"{}", json.dumps(PAGE).encode(), b'{"plan": {"changes": [null]}}', *FOUND, *choices(60)]
    ),
)
