# SPDX-License-Identifier: Apache-2.0
"""The staged deployment: libostree's files in /run, and the record of the staged deployments of nodeagent.

Locks. A shutdown finalizes the staged deployment only if it has neither of two locks: the key ``locked`` in its state
(libostree 2023.8 and later), and the file of older versions, which newer versions still respect. The property
``finalization-locked`` of the daemon shows only the file.

Ownership. The record is written before a staging is requested, so that a restarted agent recognizes the result. While
the staging is under way, any new deployment with the requested image is owned. After its end only the deployments that
were observed are owned, because another client may stage the same image later. An owned deployment is not yet good: the
daemon runs its checks after staging, so a failed or unobserved transaction may leave a deployment that must not boot.
A deployment is good if an observed transaction of nodeagent succeeded. The record is in /run, like the staged
deployment: both are gone after a boot.

GVariant. libostree and rpm-ostree write dictionaries of the type ``a{sv}``. In the GVariant specification, values are
adjacent, each aligned as its type requires. A container ends with the end offsets of its members of variable size, in
little-endian words of 1, 2, 4 or 8 bytes, depending on the size of the container. A variant is its value, a zero byte
and its type. root wrote the data, but perhaps with a later version: data that does not fit raises ``ValueError``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeagent.core.config.image import content_id
from nodeagent.core.config.kargs import split
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.deployment import Deployment, OsTarget
from nodeagent.host.fs.atomic import temp_name
from nodeagent.host.fs.os_errors import translated

# Type and serialized value.
Variant = tuple[str, bytes]

# Bytes that are read of a file of a staging; the state of a staged deployment has a few hundred.
_MAX = 1 << 20


def read_vardict(data: bytes) -> Mapping[str, Variant]:
    """Read an ``a{sv}``. The values stay serialized; ``string``, ``strings`` and ``boolean`` read them."""
    if len(data) > _MAX:
        raise ValueError("too large")
    entries: dict[str, Variant] = {}
    start = 0
    for end in _element_ends(data):
        # Entries are aligned to 8, like variants.
        start = _aligned(start)
        if end < start:
            raise ValueError("an entry ends before it begins")
        key, value = _entry(data[start:end])
        entries[key] = value
        start = end
    return entries


def string(value: Variant | None) -> str | None:
    """Return a string, or None if the value has another type."""
    if value is None or value[0] != "s":
        return None
    return _string(value[1])


def strings(value: Variant | None) -> tuple[str, ...] | None:
    """Return an ``as``, or None if the value has another type."""
    if value is None or value[0] != "as":
        return None
    texts, start = [], 0
    for end in _element_ends(value[1]):
        if end < start:
            raise ValueError("a string ends before it begins")
        texts.append(_string(value[1][start:end]))
        start = end
    return tuple(texts)


def boolean(value: Variant | None) -> bool | None:
    """Return a boolean, or None if the value has another type."""
    if value is None or value[0] != "b":
        return None
    if value[1] not in (b"\0", b"\1"):
        raise ValueError("neither true nor false")
    return value[1] == b"\1"


def device_and_inode(value: Variant | None) -> tuple[int, int] | None:
    """Return a pair of numbers, ``(tt)``, or None if the value has another type."""
    if value is None or value[0] != "(tt)" or len(value[1]) != 16:
        return None
    return _number(value[1], 0, 8), _number(value[1], 8, 8)


def _element_ends(data: bytes) -> list[int]:
    """Return the end offsets of an array whose elements have a variable size."""
    if not data:
        return []
    word = _word(len(data))
    # The last offset is where the offsets begin.
    first = _number(data, len(data) - word, word)
    table = data[first:]
    if first > len(data) or not table or len(table) % word:
        raise ValueError("the table of offsets does not fit")
    return [_number(table, at, word) for at in range(0, len(table), word)]


def _entry(data: bytes) -> tuple[str, Variant]:
    word = _word(len(data))
    if len(data) < word:
        raise ValueError("an entry without an offset")
    end = _number(data, len(data) - word, word)
    return _string(data[:end]), _variant(data[_aligned(end) : len(data) - word])


def _variant(data: bytes) -> Variant:
    # A variant is its value, a zero byte, and the type.
    value, zero, kind = data.rpartition(b"\0")
    if not zero or not kind:
        raise ValueError("a variant without a type")
    return kind.decode("ascii", "replace"), value


def _string(data: bytes) -> str:
    if data[-1:] != b"\0":
        raise ValueError("a string without an end")
    return data[:-1].decode("utf-8", "replace")


def _number(data: bytes, at: int, word: int) -> int:
    return int.from_bytes(data[at : at + word], "little")


def _word(size: int) -> int:
    # Offsets of GVariant are as wide as the size of their container requires.
    return 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4


def _aligned(offset: int) -> int:
    return (offset + 7) & ~7


@dataclass(frozen=True, slots=True)
class Lock:
    """The locks of the staged deployment ``id``: ``key`` in the state, ``legacy`` as a file.

    ``kernel_arguments`` is None if it was staged without its own; a shutdown then uses those of the booted deployment.
    """

    id: str
    key: bool
    legacy: bool
    kernel_arguments: tuple[str, ...] | None = None

    @property
    def locked(self) -> bool:
        return self.key or self.legacy


class StagedState:
    """The files of libostree in /run. All methods block for a small file in memory; call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._state = root / "run/ostree/staged-deployment"
        self._legacy = root / "run/ostree/staged-deployment-locked"

    def lock(self) -> Lock | None:
        """Return None if no deployment is staged, or if its state cannot be read."""
        try:
            with self._state.open("rb") as file:
                state = read_vardict(file.read(_MAX))
            kind, target = state.get("target", ("", b""))
            values = read_vardict(target) if kind == "a{sv}" else {}
            osname, name = string(values.get("osname")), string(values.get("name"))
            # Older versions of ostree have the file only, newer ones the key.
            key = boolean(state.get("locked")) or False
            arguments = strings(state.get("kargs"))
        except (FileNotFoundError, ValueError):
            return None
        if not osname or not name:
            return None
        tokens = None if arguments is None else tuple(split(" ".join(arguments)))
        return Lock(f"{osname}-{name}", key=key, legacy=self._legacy.exists(), kernel_arguments=tokens)

    def set_legacy(self) -> None:
        """Lock the staged deployment, for all versions of libostree.

        Some versions of the daemon lose the lock of the second of two stagings, because libostree removes the file with
        the deployment that was staged before.
        """
        with translated("lock", str(self._legacy)):
            self._legacy.touch(mode=0o640)

    def clear_legacy(self) -> None:
        """Remove the lock of older versions."""
        with translated("unlock", str(self._legacy)):
            self._legacy.unlink(missing_ok=True)


@dataclass(slots=True)
class OwnDeployments:
    """Ids of owned deployments. ``good`` is a subset of ``ours``; only good deployments may be unlocked."""

    ours: set[str] = field(default_factory=set)
    good: set[str] = field(default_factory=set)

    def forget(self, deployment: str) -> None:
        """Remove a deployment that is gone. Another deployment may get the same id."""
        self.ours.discard(deployment)
        self.good.discard(deployment)


class Ownership:
    """The record of ownership. All methods block for a small file in memory; call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._path = root / "run/nodeagent/staging.json"

    def open(self, target: OsTarget, booted: Deployment, others: Collection[str], own: OwnDeployments) -> None:
        """Record that a staging of ``target`` begins. ``others`` are the ids of deployments that are not owned."""
        self._put(booted.base if target.image is None else content_id(target.image), others, own)

    def close(self, own: OwnDeployments) -> None:
        """Record that no staging is under way."""
        self._put("", (), own)

    def _put(self, image: str, others: Collection[str], own: OwnDeployments) -> None:
        recorded = {"image": image, "others": sorted(others), "ours": sorted(own.ours), "good": sorted(own.good)}
        with translated("record the staging at", str(self._path)):
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            temp = self._path.with_name(temp_name())
            temp.write_text(json.dumps(recorded), encoding="utf-8")
            # /run is in memory, so a sync would have no effect. The rename keeps the file complete.
            temp.replace(self._path)

    def good(self) -> frozenset[str]:
        """Return the ids of the good deployments."""
        return frozenset(map(str, self._read().get("good", ())))

    def may_own(self, deployment: str) -> bool:
        """Return whether nodeagent staged the deployment with this id, or may be staging it now."""
        recorded = self._read()
        under_way = recorded.get("image", "") != "" and deployment not in recorded.get("others", ())
        return under_way or deployment in recorded.get("ours", ())

    def owns(self, deployment: Deployment) -> bool:
        """Return whether nodeagent staged this deployment."""
        recorded = self._read()
        if deployment.id in recorded.get("ours", ()):
            return True
        # After a kill the new deployment is in no list yet. Its image, and that it is not among the others, identify
        # it.
        image, others = recorded.get("image", ""), recorded.get("others", ())
        has = (deployment.digest, deployment.image.rpartition("@")[2], deployment.base, deployment.checksum)
        return image != "" and image in has and deployment.id not in others

    def _read(self) -> dict[str, Any]:
        """Return the record, empty if it is missing or cannot be read: then no deployment is owned."""
        try:
            with self._path.open("rb") as file:
                recorded = plain_json.loads(file.read(_MAX))
            return {"image": str(recorded["image"])} | {
                name: list(recorded[name]) for name in ("others", "ours", "good")
            }
        except (OSError, ValueError, KeyError, TypeError):
            return {}
