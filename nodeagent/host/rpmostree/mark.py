"""Which staged deployments are ours: noted before we ask for one, so that an agent that was killed in between knows it.

While a staging is under way, whatever appears with the image that we asked for is ours. When it has ended, only what
was seen to come of it: a person may stage the same image for a reason of their own later.

In /run, like the staged deployment itself: both are gone after a boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from nodeagent.core import plainjson
from nodeagent.core.deployment import Deployment, OsTarget
from nodeagent.core.image import content_id
from nodeagent.host.atomic import temp_name
from nodeagent.host.faults import translated

__all__ = ["Mark"]

_MAX = 1 << 20  # bytes


class Mark:
    """All methods block for a small file in memory; call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._path = root / "run/nodeagent/staging.json"

    def open(self, target: OsTarget, booted: Deployment, others: Collection[str], ours: Collection[str]) -> None:
        """``others`` and ``ours``: ids of the deployments that are there."""
        image = booted.base if target.image is None else content_id(target.image)
        self._put({"image": image, "others": sorted(others), "ours": sorted(ours)})

    def close(self, ours: Collection[str]) -> None:
        self._put({"image": "", "others": [], "ours": sorted(ours)})

    def _put(self, noted: Mapping[str, Any]) -> None:
        with translated("note the staging at", str(self._path)):
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            temp = self._path.with_name(temp_name())
            temp.write_text(json.dumps(noted), encoding="utf-8")
            temp.replace(self._path)

    def owns(self, deployment: Deployment) -> bool:
        try:
            with self._path.open("rb") as file:
                noted = plainjson.loads(file.read(_MAX))
            image, others, ours = str(noted["image"]), list(noted["others"]), list(noted["ours"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if deployment.id in ours:
            return True
        has = (deployment.digest, deployment.image.rpartition("@")[2], deployment.base, deployment.checksum)
        return image != "" and image in has and deployment.id not in others
