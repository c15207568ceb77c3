# SPDX-License-Identifier: Apache-2.0
"""Settings in sysctl.d that the kernel of this host does not have: systemd-sysctl leaves them out without an error.

A missing name is looked for in the listing of its directory, so that one that cannot be read counts as there. The
listings are patterns of the view: the directory of a name, and the ones above it until one is not empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from nodeagent.core.config.problems import similar
from nodeagent.core.plan.sides import HostView

PROC: Final = "/proc/sys"
SWAP: Final = str.maketrans("./", "/.")
# Every kernel has it. It shows that the view is one of a host, after the first round.
SIGN: Final = f"{PROC}/kernel/ostype"
# Listings in one round of the view.
MAX_LISTINGS: Final = 20
# Below them, the names are those of interfaces, which may come later.
INTERFACES: Final = ("conf", "neigh")


def first_separator(text: str) -> str:
    return next((letter for letter in text if letter in "./"), "")


def dotted(name: str) -> str:
    """Return the usual form of a name with slashes, which systemd-sysctl reads as the same name."""
    return f"/{name}" if first_separator(name) == "." else name.translate(SWAP)


def reads(host: HostView, names: Iterable[str]) -> Collection[str]:
    """Return the paths to read next for the check that ``names`` exist."""
    if SIGN not in host.files:
        return (SIGN,)
    wanted: dict[str, None] = {}
    for name in names:
        if f"{PROC}/{name}" not in host.files and (unknown := _unknown(host, name)):
            wanted[unknown] = None
    return list(wanted)[:MAX_LISTINGS]


def _unknown(host: HostView, name: str) -> str:
    """Return the first listing on the way up that the view does not have, "" if one on the way is not empty."""
    for listing, _ in _levels(name):
        if listing not in host.files:
            return listing
        if host.files[listing]:
            return ""
    return ""


def _levels(name: str) -> Iterator[tuple[str, str]]:
    """Yield the listing and the path of each part of a name, the last part first."""
    parts = name.split("/")
    for size in range(len(parts), 0, -1):
        yield "/".join((PROC, *parts[: size - 1], "*")), "/".join((PROC, *parts[:size]))


def doubt(host: HostView, name: str, *, brings: bool) -> str:
    """Return why a setting has no effect on this host, "" if it is there or if that is not known.

    ``brings``: the config loads modules, so a name without a similar one is not missed.
    """
    if f"{PROC}/{name}" in host.files:
        return ""
    for listing, path in _levels(name):
        if listing not in host.files:
            return ""
        if not (there := host.files[listing].decode(errors="replace").split("\n")) or there == [""]:
            continue
        if path in there:
            # It cannot be read, or it is an empty directory.
            return "" if path == f"{PROC}/{name}" else _absent(name, brings=brings)
        directory, _, last = path.rpartition("/")
        near = ""
        if directory.rpartition("/")[2] not in INTERFACES:
            near = similar(last, [sibling.rpartition("/")[2] for sibling in there])
        return (
            f"{dotted(name)} is no setting of this kernel, so it has no effect{near}"
            if near
            else _absent(name, brings=brings)
        )
    return ""


def _absent(name: str, *, brings: bool) -> str:
    if brings:
        return ""
    return f"{dotted(name)} is no setting of this kernel now: it has no effect until a module or an interface brings it"
