# SPDX-License-Identifier: Apache-2.0
"""The note of the feature in the store, which may be damaged."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from integration.fuzz.target import Target, choices, document
from nodeagent.errors import Terminal
from nodeagent.features.reboot_on_request.decide import from_text

REQUEST: Final = {
    "id": "3f2b",
    "source": "file",
    "requester": "/run/nodeagent/reboot",
    "since": "2026-11-21T03:00:00.000Z",
    "boot_id": "b",
}
NOTE: Final = {"pending": REQUEST, "ended_boot": "", "by_file": "2026-11-21T03:00:00.000Z", "answered": ""}


def note(data: bytes) -> None:
    found = document(NOTE, data)
    with suppress(Terminal):
        from_text(data.decode(errors="replace") if found is None else json.dumps(found))


TARGETS: Final = (Target("reboot-request-note", note, [b"", b"{}", json.dumps(NOTE).encode(), *choices(20)]),)
