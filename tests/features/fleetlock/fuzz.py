# SPDX-License-Identifier: Apache-2.0
"""Answers of a FleetLock server."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from integration.fuzz.target import Target
from nodeagent.errors import AgentError
from nodeagent.features.fleetlock.client import FleetLock
from nodeagent.features.fleetlock.decide import Call
from nodeagent.host.http import Answer


def fleetlock(data: bytes) -> None:
    lock = FleetLock("https://fleetlock", "00" * 16)
    for status in (200, 400, 423, 500):
        for call in Call:
            with suppress(AgentError):
                lock._judge(call, Answer(status, data))


TARGETS: Final = (
    Target("fleetlock", fleetlock, [b"", b"[]", b'{"kind": "failed_lock", "value": "semaphore"}', b'{"kind": []}']),
)
