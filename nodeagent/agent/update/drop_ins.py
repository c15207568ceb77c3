"""Drop-ins for units that do not exist: a typing error in the name leaves a change silently without effect.

Only the host knows its units, so this is part of the checks before an update. What cannot be known before is let pass:
a new operating system may bring units, and so may a file that a generator of systemd reads. A drop-in that only sets
conditions switches a unit off, and those that the machine-config-operator renders are for every host, whatever units
it has.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import did_you_mean, template_of
from nodeagent.core.update.ports.host import Units
from nodeagent.domains import changed_contents
from nodeagent.errors import Problem

_DROPIN: Final = re.compile(rf"{UNIT_DIR}/([^/]+)\.d/(?!(?:\d\d-)?mco-)[^/]+\.conf")
# Lines with which a drop-in starts nothing: no setting at all, or a condition that may switch the unit off.
_SWITCH: Final = re.compile(r"\s*(?:$|[#;]|\[[^\]]*\]\s*$|(?:Condition|Assert)\w*\s*=)")
# Generators read these files and make units of them at the next daemon-reload.
GENERATED: Final = (
    "/etc/containers/systemd/",
    "/etc/crypttab",
    "/etc/fstab",
    "/etc/init.d/",
    "/etc/rc.d/init.d/",
    "/etc/systemd/system-generators/",
    "/etc/systemd/zram-generator.conf",
)


async def check_dropins(units: Units, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """New or changed drop-ins of which neither the host nor the new config has the unit."""
    changed = changed_contents(old, new, (f"{UNIT_DIR}/",))
    dropins = {path: found[1] for path in changed if (found := _DROPIN.fullmatch(path)) and _sets(changed[path])}
    # Which units a generator makes of a changed file is known only after the daemon-reload.
    if not dropins or any(path.startswith(GENERATED) for path in new.files):
        return ()
    brought = {path.rpartition("/")[2] for path in expand(new) if path.rpartition("/")[0] == UNIT_DIR}
    missing = {unit for unit in set(dropins.values()) if not await _exists(units, unit, brought)}
    if not missing:
        return ()
    known = brought | set(await units.files())
    return tuple(Problem(path, _absence(unit, known)) for path, unit in sorted(dropins.items()) if unit in missing)


def _sets(content: bytes) -> bool:
    """Whether the drop-in does anything but keep its unit from being started."""
    return not all(_SWITCH.match(line) for line in content.decode(errors="replace").splitlines())


async def _exists(units: Units, unit: str, brought: Collection[str]) -> bool:
    if unit in brought or template_of(unit) in brought:
        return True
    if unit.rpartition(".")[0].endswith("-"):
        # It applies to all units with this prefix: systemd.unit(5).
        return True
    return (await units.state(unit)).load != "not-found"


def _absence(unit: str, known: Collection[str]) -> str:
    return f"there is no unit {unit} on this host or in the config{did_you_mean(unit, known)}"
