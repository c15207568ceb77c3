"""What we are staging, noted before we ask for it: so an agent that was killed in between knows its own deployment.

In /run, like the staged deployment itself: both are gone after a boot.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from nodeagent.core.deployment import Deployment, OsTarget
from nodeagent.core.image import content_id
from nodeagent.host.faults import translated

__all__ = ["Mark"]

_MAX = 1 << 20  # bytes


class Mark:
    """All methods block for a small file in memory; call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._path = root / "run/nodeagent/staging.json"

    def put(self, target: OsTarget, booted: Deployment, others: Collection[str]) -> None:
        """``others``: ids of the deployments that are there and not ours."""
        image = booted.base if target.image is None else content_id(target.image)
        with translated("note the staging at", str(self._path)):
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            temp = self._path.with_suffix(".tmp")
            temp.write_text(json.dumps({"image": image, "others": sorted(others)}), encoding="utf-8")
            temp.replace(self._path)

    def owns(self, deployment: Deployment) -> bool:
        """It was not there when we began, and it has the image that we asked for."""
        try:
            with self._path.open("rb") as file:
                noted = json.loads(file.read(_MAX))
            image, others = str(noted["image"]), list(noted["others"])
        except (OSError, ValueError, KeyError, TypeError):
            return False
        mine = (deployment.digest, deployment.image.rpartition("@")[2], deployment.base, deployment.checksum)
        return image in mine and deployment.id not in others
