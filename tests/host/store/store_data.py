# SPDX-License-Identifier: Apache-2.0
"""Data for tests of the store: update number N in all its parts, each different from those of any other number."""

from __future__ import annotations

import hashlib

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.update.ports.store import HistoryEntry, Snapshot
from nodeagent.update.record import Record
from nodeagent.update.states import Apply, Phase


def config(number: int) -> ConfigSource:
    text = f"config {number}\n".encode() * (200 + number % 50)
    return ConfigSource(f"rendered-{number}", hashlib.sha256(text).hexdigest(), text)


def record(number: int, phase: Phase = Phase.RELEASING) -> Record:
    return Record(
        phase,
        Apply(done=frozenset({"a", str(number)})),
        update_id=f"u{number}",
        from_digest=config(number - 1).digest if number else "",
        to_digest=config(number).digest,
        plan={"actions": [{"type": "Reload", "unit": f"{number}.service"}]},
    )


def entry(number: int) -> HistoryEntry:
    return HistoryEntry(f"u{number}", "a", "b", "", "", "done", "reload", 0, True, float(number))


def snapshots(number: int) -> list[Snapshot]:
    size = (number * 997) % 20_000
    return [
        Snapshot(f"path:/etc/{number}", RegularFile(bytes([number % 256]) * size, 0o640, 1, 2, "a:b:c:s0", 0o700, 3)),
        Snapshot("path:/etc/link", SymbolicLink("/dev/null", 5, 6, None)),
        Snapshot("path:/etc/none"),
        Snapshot("unit:x.service", text="enabled"),
        Snapshot("password:core", text=f"$6${number}"),
    ]
