# SPDX-License-Identifier: Apache-2.0
"""The unit of the daemon: from systemd, and from its files where systemd does not run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from nodeagent.features.selfcheck.decide.bus import UNIT, UNIT_FILE, UnitFacts
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, SERVICE

_UNIT: Final = "org.freedesktop.systemd1.Unit"
# Directories of systemd.unit(5) that replace files of the package, in their order.
_BEFORE: Final = (
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "etc/systemd/system",
    "run/systemd/system",
)
# The image layer has a link here, because presets apply to a first boot only.
_OF_THE_IMAGE: Final = "usr/lib/systemd/system"


def is_booted(root: Path = Path("/")) -> bool:
    """Return whether systemd runs here, as sd_booted(3) does."""
    return (root / "run/systemd/system").is_dir()


async def read_unit(bus: Bus, root: Path = Path("/")) -> UnitFacts:
    """Raises ``AgentError``."""
    # LoadUnit returns a path for a unit that does not exist as well.
    (path,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (UNIT,))
    wanted = ("LoadState", "FragmentPath", "UnitFileState", "UnitFilePreset", "ActiveState", "NeedDaemonReload")
    load, fragment, enabled, preset, active, outdated = await asyncio.gather(
        *(bus.get(NAME, path, _UNIT, name) for name in wanted)
    )
    if load == "not-found":
        return UnitFacts("", "")
    pid = await bus.get(NAME, path, SERVICE, "MainPID") if load == "loaded" else 0
    masked = load == "masked"
    linked = await asyncio.to_thread(_linked, root / _OF_THE_IMAGE)
    return UnitFacts(fragment or UNIT, enabled, preset, active, bool(outdated), int(pid), masked, linked)


def read_unit_files(root: Path = Path("/")) -> UnitFacts:
    """Return the facts of the unit in the files of a host that is not booted. Blocks."""
    places = [*(root / place / UNIT for place in _BEFORE), root / UNIT_FILE[1:]]
    unit_file = next((path for path in places if path.is_symlink() or path.exists()), None)
    if unit_file is None:
        return UnitFacts("", "")
    masked = unit_file.is_symlink() and str(unit_file.readlink()) == "/dev/null"
    enabled = _linked(root / "etc/systemd/system")
    wanted = _linked(root / _OF_THE_IMAGE)
    path = f"/{unit_file.relative_to(root)}"
    return UnitFacts(path, "enabled" if enabled else "disabled", masked=masked, wanted=wanted)


def _linked(units: Path) -> bool:
    """Return whether a target in this directory wants the unit. The link leads out of a root that is another host's."""
    return any((wants / UNIT).is_symlink() for wants in units.glob("*.wants"))


async def read_systemd_version(bus: Bus) -> str:
    return str(await bus.get(NAME, PATH, MANAGER, "Version"))


async def proxies(bus: Bus, updater: str) -> bool:
    """Return whether OS updates use a proxy, which is in the environment of the manager or of the unit ``updater``."""
    (path,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (updater,))
    everywhere, own = await asyncio.gather(
        bus.get(NAME, PATH, MANAGER, "Environment"), bus.get(NAME, path, SERVICE, "Environment")
    )
    return any(entry.partition("=")[0].lower().endswith("_proxy") for entry in (*everywhere, *own))
