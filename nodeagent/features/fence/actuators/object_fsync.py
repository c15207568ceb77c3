# SPDX-License-Identifier: Apache-2.0
"""``core.per-object-fsync`` of the repository of the OS, for one unit alone and until it is restored.

The file of the repository stays unchanged: a change would survive a power cut, and a truncated file there would block
all updates. Instead, a drop-in below /run mounts a copy over the file for the unit, at most until the next boot. The
repository is read when it is opened, so a running daemon is restarted, unless it works for another program. It keeps
the option until it exits.

Without the option a whole layer is written and then synced at once, and all users of the disk wait for that. With it
each object is synced when it is written, and the sync at the end finds little. Measured: ``docs/research/fence.md``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from nodeagent.errors import Retryable
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.systemd import Systemd

_KEY = "objects-"
_CONFIG = Path("/sysroot/ostree/repo/config")
_UNITS = Path("/run/systemd/system")
_COPY = Path("/run/nodeagent/ostree-repo.config")
_DROP_IN = "50-nodeagent-fence.conf"
# Seconds.
_RELOAD = 90.0
_RESTART = 120.0
_ACTIVE = ("active", "reloading", "activating")

# Whether the unit works for another program.
IsBusy = Callable[[], Awaitable[bool]]

_OPTION = "per-object-fsync"
_SECTION = re.compile(r"\s*\[(.*)\]\s*")
# GLib accepts no other values.
_TRUE = ("true", "1")


class ObjectFsync:
    """All methods raise ``AgentError``."""

    def __init__(
        self,
        bus: Bus,
        restore_log: RestoreLog,
        unit: str,
        *,
        config: Path = _CONFIG,
        units: Path = _UNITS,
        copy: Path = _COPY,
    ) -> None:
        self._systemd = Systemd(bus)
        self._restore_log = restore_log
        self._unit = unit
        self._key = f"{_KEY}{unit}"
        self._config = config
        self._drop_in = units / f"{unit}.d" / _DROP_IN
        self._copy = copy

    async def begin(self, is_busy: IsBusy) -> None:
        """Set the option from the next staging on; no effect if it is set. ``Retryable`` (``UpdaterBusy``) while the
        unit is busy."""
        text = with_object_fsync(await asyncio.to_thread(self._read))
        if text is None:
            return
        running = (await self._systemd.state(self._unit)).active in _ACTIVE
        if running and await is_busy():
            message = f"{self._unit} works for another client; its objects are not synced one by one"
            raise Retryable(message, reason=FenceReason.UPDATER_BUSY)
        # The entry exists before the drop-in does: a kill in between leaves an entry without effect, never the reverse.
        await self._restore_log.save(self._key, "")
        await asyncio.to_thread(self._write, text)
        await self._systemd.daemon_reload(_RELOAD)
        if running:
            await self._systemd.restart(self._unit, _RESTART)

    async def end(self) -> None:
        """Remove the option from the next start of the unit on; no effect without ``begin``."""
        if self._key not in await self._restore_log.load():
            return
        # A daemon is not restarted at the end: it may work for another program.
        await asyncio.to_thread(self._remove)
        await self._systemd.daemon_reload(_RELOAD)
        await self._restore_log.clear(self._key)

    def _read(self) -> str:
        with translated("read the repository's", str(self._config)):
            return self._config.read_text()

    def _write(self, text: str) -> None:
        with translated("write the drop-in of", self._unit):
            self._copy.parent.mkdir(parents=True, exist_ok=True)
            self._copy.write_text(text)
            self._copy.chmod(0o644)
            self._drop_in.parent.mkdir(parents=True, exist_ok=True)
            # "-": the unit also starts without the copy.
            self._drop_in.write_text(f"[Service]\nBindReadOnlyPaths=-{self._copy}:{self._config}\n")
            self._drop_in.chmod(0o644)

    def _remove(self) -> None:
        with translated("remove the drop-in of", self._unit):
            self._drop_in.unlink(missing_ok=True)
            self._copy.unlink(missing_ok=True)


def units_left(keys: Iterable[str]) -> Sequence[str]:
    """Return the units for which a killed agent left the option set, from the keys of the restore log."""
    return [key.removeprefix(_KEY) for key in keys if key.startswith(_KEY)]


def with_object_fsync(text: str) -> str | None:
    """Return the configuration (ostree.repo-config(5)) with the option; None if there is nothing to change.

    That is the case if the option is set, if the admin has turned all syncs off, or if it is not a repository.
    """
    lines: list[str] = []
    core, at = False, None
    for line in text.splitlines():
        key, equals, value = (part.strip() for part in line.partition("="))
        if section := _SECTION.fullmatch(line):
            core = section[1] == "core"
        elif core and equals and key == _OPTION:
            if value in _TRUE:
                return None
            continue
        elif core and equals and key == "fsync" and value not in _TRUE:
            return None
        lines.append(line)
        if section and core:
            at = len(lines)
    if at is None:
        return None
    lines.insert(at, f"{_OPTION}=true")
    return "\n".join(lines) + "\n"
