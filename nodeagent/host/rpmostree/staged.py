"""What libostree keeps in /run about the staged deployment: which one it is, and whether it is locked.

Two kinds of lock count, and a shutdown finalizes only if neither is there: the key ``locked`` in the state itself
(libostree 2023.8 and later), and the file of older versions, which newer ones still respect. The daemon's own
``finalization-locked`` shows only the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeagent.host.faults import translated
from nodeagent.host.rpmostree.gvariant import boolean, read_vardict, string

__all__ = ["Lock", "StagedState"]

_MAX = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Lock:
    """Of the staged deployment with this id: ``key`` is in the state, ``legacy`` is the file."""

    id: str
    key: bool
    legacy: bool

    @property
    def locked(self) -> bool:
        return self.key or self.legacy


class StagedState:
    """All methods block for a small file in memory; call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._state = root / "run/ostree/staged-deployment"
        self._legacy = root / "run/ostree/staged-deployment-locked"

    def lock(self) -> Lock | None:
        """None if nothing is staged, or if what is there cannot be understood."""
        try:
            with self._state.open("rb") as file:
                state = read_vardict(file.read(_MAX))
            kind, target = state.get("target", ("", b""))
            values = read_vardict(target) if kind == "a{sv}" else {}
            osname, name = string(values.get("osname")), string(values.get("name"))
            key = boolean(state.get("locked")) or False
        except (FileNotFoundError, ValueError):
            return None
        if not osname or not name:
            return None
        return Lock(f"{osname}-{name}", key=key, legacy=self._legacy.exists())

    def locks(self) -> Mapping[str, bool]:
        lock = self.lock()
        return {lock.id: lock.locked} if lock else {}

    def set_legacy(self) -> None:
        """Locks, for every version. Some versions of the daemon lose the lock of the second of two stagings, because
        libostree removes the file together with what was staged before."""
        with translated("lock", str(self._legacy)):
            self._legacy.touch(mode=0o640)

    def clear_legacy(self) -> None:
        with translated("unlock", str(self._legacy)):
            self._legacy.unlink(missing_ok=True)
