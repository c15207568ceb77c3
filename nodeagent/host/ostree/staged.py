# SPDX-License-Identifier: Apache-2.0
"""The staged deployment: libostree's files in /run, and the record of the staged deployments of nodeagent.

Locks. A shutdown finalizes the staged deployment only if it has neither of two locks: the key ``locked`` in its state
(libostree 2023.8 and later), and the file of older versions, which newer versions still respect. The property
``finalization-locked`` of rpm-ostreed shows only the file.

Ownership. The record is written before a staging is requested, so that a restarted agent recognizes the result. While
the staging is under way, any new deployment with the requested image is owned. After its end only the deployments that
were observed are owned, because another program may stage the same image later. An owned deployment is not yet good: it
is checked after it was staged, so a failed or unobserved staging may leave a deployment that must not boot. A
deployment is good if nodeagent observed that its staging succeeded. The record is in /run, like the staged deployment:
both are gone after a boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeagent.core.config.image import content_id
from nodeagent.core.config.kargs import split
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.deployment import Deployment, OsTarget
from nodeagent.host.fs.atomic import temp_name
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.ostree.vardict import MAX_BYTES, boolean, read_vardict, string, strings


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
                state = read_vardict(file.read(MAX_BYTES))
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
                recorded = plain_json.loads(file.read(MAX_BYTES))
            return {"image": str(recorded["image"])} | {
                name: list(recorded[name]) for name in ("others", "ours", "good")
            }
        except (OSError, ValueError, KeyError, TypeError):
            return {}
