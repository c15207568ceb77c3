"""Which staged deployments are ours: noted before we ask for one, so that an agent that was killed in between knows it.

While a staging is under way, whatever appears with the image that we asked for is ours. When it has ended, only what
was seen to come of it: a person may stage the same image for a reason of their own later.

What is ours is not yet good. The daemon stages first and runs its own checks afterwards, so a transaction that fails,
or whose end nobody saw, may leave a deployment behind that must not boot. Good is what a transaction of ours left that
was seen to succeed.

In /run, like the staged deployment itself: both are gone after a boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeagent.core.config.image import content_id
from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.deployment import Deployment, OsTarget
from nodeagent.host.fs.atomic import temp_name
from nodeagent.host.fs.os_errors import translated

__all__ = ["Mark", "Own"]

_MAX = 1 << 20  # bytes


@dataclass(slots=True)
class Own:
    """Ids of deployments. ``good`` is a part of ``ours``: only these may be unlocked."""

    ours: set[str] = field(default_factory=set)
    good: set[str] = field(default_factory=set)

    def forget(self, deployment: str) -> None:
        """It is gone, and the same id may come again as that of another deployment."""
        self.ours.discard(deployment)
        self.good.discard(deployment)


class Mark:
    """All methods block for a small file in memory; call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._path = root / "run/nodeagent/staging.json"

    def open(self, target: OsTarget, booted: Deployment, others: Collection[str], own: Own) -> None:
        """``others``: ids of the deployments that are there and not ours."""
        self._put(booted.base if target.image is None else content_id(target.image), others, own)

    def close(self, own: Own) -> None:
        self._put("", (), own)

    def _put(self, image: str, others: Collection[str], own: Own) -> None:
        noted = {"image": image, "others": sorted(others), "ours": sorted(own.ours), "good": sorted(own.good)}
        with translated("note the staging at", str(self._path)):
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            temp = self._path.with_name(temp_name())
            temp.write_text(json.dumps(noted), encoding="utf-8")
            temp.replace(self._path)

    def good(self) -> frozenset[str]:
        return frozenset(map(str, self._read().get("good", ())))

    def owns(self, deployment: Deployment) -> bool:
        noted = self._read()
        if deployment.id in noted.get("ours", ()):
            return True
        image, others = noted.get("image", ""), noted.get("others", ())
        has = (deployment.digest, deployment.image.rpartition("@")[2], deployment.base, deployment.checksum)
        return image != "" and image in has and deployment.id not in others

    def _read(self) -> dict[str, Any]:
        """Empty where there is none or it cannot be understood: then nothing is ours."""
        try:
            with self._path.open("rb") as file:
                noted = plain_json.loads(file.read(_MAX))
            return {"image": str(noted["image"])} | {name: list(noted[name]) for name in ("others", "ours", "good")}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
