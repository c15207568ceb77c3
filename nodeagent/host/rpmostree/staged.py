"""What libostree keeps in /run about the staged deployment: its id, its kernel arguments, and whether it is locked.

Two kinds of lock count, and a shutdown finalizes only if neither is there: the key ``locked`` in the state itself
(libostree 2023.8 and later), and the file of older versions, which newer ones still respect. The daemon's own
``finalization-locked`` shows only the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeagent.core.config.kargs import split
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.rpmostree.gvariant import boolean, read_vardict, string, strings

__all__ = ["Lock", "StagedState"]

_MAX = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Lock:
    """Of the staged deployment with this id: ``key`` is in the state, ``legacy`` is the file. ``kernel_arguments`` is
    None where it was staged without any of its own: the shutdown then takes those of the booted deployment."""

    id: str
    key: bool
    legacy: bool
    kernel_arguments: tuple[str, ...] | None = None

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
            arguments = strings(state.get("kargs"))
        except (FileNotFoundError, ValueError):
            return None
        if not osname or not name:
            return None
        tokens = None if arguments is None else tuple(split(" ".join(arguments)))
        return Lock(f"{osname}-{name}", key=key, legacy=self._legacy.exists(), kernel_arguments=tokens)

    def set_legacy(self) -> None:
        """Locks, for every version. Some versions of the daemon lose the lock of the second of two stagings, because
        libostree removes the file together with what was staged before."""
        with translated("lock", str(self._legacy)):
            self._legacy.touch(mode=0o640)

    def clear_legacy(self) -> None:
        with translated("unlock", str(self._legacy)):
            self._legacy.unlink(missing_ok=True)
