"""The places in the file system that the actuators use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.fence.actuators.object_fsync import ObjectFsync
from nodeagent.fence.actuators.priorities import IoPriority
from nodeagent.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus

__all__ = ["DEFAULT", "SystemPaths"]


@dataclass(frozen=True, slots=True)
class SystemPaths:
    """Tests pass other places than those of the kernel."""

    cgroups: Path = Path("/sys/fs/cgroup")
    disks: Path = Path("/sys/dev/block")
    priorities: IoPriority | None = None
    proc: Path = Path("/proc")
    objects: Callable[[Bus, RestoreLog, str], ObjectFsync] = ObjectFsync


DEFAULT: Final = SystemPaths()
