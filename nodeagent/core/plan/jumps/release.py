"""What an update of the OS goes from and to, and the answer to the question whether it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeagent.core.plan.jumps.version import version_key

__all__ = ["Jump", "JumpAnswer", "Release", "goes_up"]


@dataclass(frozen=True, slots=True)
class Release:
    """A version of the OS, "" if it is not known. ``contents`` are digests and checksums that identify it, too."""

    version: str
    contents: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.version or next(iter(sorted(self.contents)), "an unknown version")


@dataclass(frozen=True, slots=True)
class Jump:
    """An update of the OS to another image.

    ``kernel_arguments`` are those after the update. ``managed`` has the content of each file that the new config
    brings, and None for each file that the update removes. ``staged``: the image is on the host, so that its version is
    known if it has one.
    """

    booted: Release
    target: Release
    kernel_arguments: tuple[str, ...] = ()
    managed: Mapping[str, bytes | None] = field(default_factory=dict)
    staged: bool = False


@dataclass(frozen=True, slots=True)
class JumpAnswer:
    """The answer for a jump that nothing forbids. ``notes`` are for a plan, ``warnings`` for the history, too."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def goes_up(jump: Jump) -> bool:
    """Return whether the update may go to a newer version. One to an older version is a way back."""
    booted, target = jump.booted, jump.target
    if booted.contents & target.contents:
        return False
    if not (booted.version and target.version):
        return True
    return version_key(booted.version) < version_key(target.version)
