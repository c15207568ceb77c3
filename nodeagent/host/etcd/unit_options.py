"""The options of etcd's unit, and those with which a process started whose environment cannot be read.

An update changes the files of a unit before it restarts the unit. Until then the process has the options of the
previous files, and the other members are found with those only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.core.plan.change import ETCD_UNIT
from nodeagent.core.plan.sides import Sides
from nodeagent.domains.kubelet.unit import UNIT_DIRS, read_unit, unit_paths
from nodeagent.host.etcd.options import from_environment, kept
from nodeagent.host.view import read_files

# Processes of which the options are remembered. More than one or two of them is no real host.
REMEMBERED: Final = 16

# In memory only: a daemon that starts after the files have changed does not know the previous options.
_at_start: dict[tuple[str, int, int], Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """``environment`` is that of the unit, ``flags`` those of its command; ``sources`` are the files that they are
    from. Values with a specifier of systemd are left out, because it is not expanded."""

    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


def unit_options(root: Path) -> UnitOptions:
    """Return the options of the unit as its files are now. Blocks: it reads files."""
    files = read_files(_reads, root=root)
    unit = read_unit(files, ETCD_UNIT, "etcd")
    return UnitOptions(
        from_environment(_expanded(unit.environment)),
        kept(_expanded(unit.flags)),
        (*unit_paths(files, ETCD_UNIT), *unit.environment_files),
    )


def _reads(sides: Sides) -> Collection[str]:
    found = {path for directory in UNIT_DIRS for path in (f"{directory}/{ETCD_UNIT}", f"{directory}/{ETCD_UNIT}.d/")}
    files = read_unit(sides.before, ETCD_UNIT, "etcd").environment_files
    return found | {path for path in files if path.startswith("/")}


def _expanded(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in values.items() if "%" not in value)


def options_at_start(
    root: Path, pid: int, flags: Mapping[str, str], sources: Collection[str] | None
) -> Mapping[str, str]:
    """Return the options with which process ``pid`` started: ``flags``, or what they were when it was found first.

    They are remembered only if none of ``sources``, the files that they are from, is newer than the process; None if a
    file is missing.
    """
    started = _start_of(root, pid)
    if started is None:
        return flags
    ticks, moment = started
    key = (str(root), pid, ticks)
    known = sources is not None and all(_modified(root / path.lstrip("/")) <= moment for path in sources if path)
    if known and key not in _at_start:
        while len(_at_start) >= REMEMBERED:
            _at_start.pop(next(iter(_at_start)), None)
        _at_start[key] = flags
    return _at_start.get(key, flags)


def _start_of(root: Path, pid: int) -> tuple[int, float] | None:
    """Return the start of a process in ticks since the boot, and as seconds since the epoch; None if it is unknown."""
    with suppress(OSError, ValueError, IndexError):
        # Field 22 of proc_pid_stat(5); the name of the program may have blanks and parentheses.
        ticks = int((root / f"proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        boot = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
        return ticks, boot + ticks / os.sysconf("SC_CLK_TCK")
    return None


def _modified(path: Path) -> float:
    """Return when a file was modified, 0 if there is none: a file that a unit may lack."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
