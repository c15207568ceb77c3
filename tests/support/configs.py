# SPDX-License-Identifier: Apache-2.0
"""Short ways to write MachineConfigs in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry


def config(
    name: str = "rendered-worker-1",
    *,
    files: Mapping[str, bytes] | None = None,
    units: Mapping[str, str] | None = None,
    keys: tuple[str, ...] = (),
    password: str | None = None,
    **fields: Any,
) -> MachineConfig:
    return MachineConfig(
        name,
        files={path: FileEntry(path, content) for path, content in (files or {}).items()},
        units={unit: UnitEntry(unit, contents) for unit, contents in (units or {}).items()},
        users={"core": UserEntry("core", keys, password)} if keys or password else {},
        **fields,
    )
