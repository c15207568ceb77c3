# SPDX-License-Identifier: Apache-2.0
"""The notes of the stand-in units of a host: every start, reload and stop, in order and over reboots."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

EVENTS = "/var/lib/stand-ins/events"


@dataclass(frozen=True, slots=True)
class UnitEvent:
    boot_id: str
    unit: str
    event: str  # start, reload or stop
    digest: str  # of the files that the unit watches as it found them then; "-" if it watches none
    uptime: float  # seconds, of the machine and so comparable between boots of a host


def parse(text: str) -> list[UnitEvent]:
    return [
        UnitEvent(boot_id, unit, event, digest, float(uptime))
        for boot_id, unit, event, digest, uptime in (line.split() for line in text.splitlines())
    ]


def digest(*contents: bytes) -> str:
    """Return the note of a unit when the files that it watches have these contents; a missing file counts as empty."""
    return hashlib.sha256(b"".join(contents)).hexdigest()[:12]
