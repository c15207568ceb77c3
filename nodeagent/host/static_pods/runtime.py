"""The container runtime, by crictl: images are pulled before a manifest is taken away, and running containers show
whether a pod has ended.

Otherwise the pod does not run while its image is pulled. A host without crictl, or a crictl that does not reach the
runtime, is no failure: then the kubelet pulls the image, and its directories alone show the end of a pod.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.errors import Terminal
from nodeagent.host.checkers.job import CheckerLate, run_program
from nodeagent.reasons import Reason

__all__ = ["Crictl"]

log = logging.getLogger(__name__)

SEARCH_PATH: Final = "/usr/bin:/usr/sbin:/usr/local/bin:/opt/bin"
QUERY: Final = 20.0
# Seconds. An image of etcd has 60 MB, one of a control plane up to a gigabyte.
PULL: Final = 900.0

# Ids of containers. crictl mixes warnings into its output.
_ID: Final = re.compile(r"[0-9a-f]{64}")
LABEL: Final = "io.kubernetes.pod.uid"


class Crictl:
    """``search_path`` is where crictl is expected."""

    def __init__(self, *, search_path: str = SEARCH_PATH) -> None:
        self._search_path = search_path

    async def ensure(self, images: Mapping[str, str]) -> None:
        """Pull the images that are missing. ``images`` is image to pull policy.

        Raises ``Terminal`` (``StaticPodImage``) for an image that is missing and cannot be pulled.
        """
        if (await self._run("version"))[0]:
            log.debug("crictl does not answer; the images of static pods are not checked")
            return
        for image, policy in images.items():
            if policy != "Always" and not (await self._run("inspecti", "--quiet", image))[0]:
                continue
            why = "it is not on this host, and its policy is Never"
            if policy != "Never" and not (why := (await self._run("pull", image, limit=PULL))[0]):
                continue
            raise Terminal(f"the image {image} cannot be used: {why}", reason=Reason.STATIC_POD_IMAGE)

    async def runs(self, uid: str) -> bool:
        """Return whether a container of the pod with this UID runs; False if the runtime does not answer."""
        why, lines = await self._run("ps", "--quiet", "--no-trunc", "--label", f"{LABEL}={uid}")
        return not why and any(map(_ID.fullmatch, lines))

    async def _run(self, *arguments: str, limit: float = QUERY) -> tuple[str, Sequence[str]]:
        """Return "" and the lines of the output if the command succeeds, otherwise the last line and nothing."""
        program = await asyncio.to_thread(shutil.which, "crictl", path=self._search_path)
        if program is None:
            return "there is no crictl", ()
        try:
            status, lines = await run_program(program, arguments, Path("/"), limit)
        except (OSError, CheckerLate) as error:
            return f"crictl {arguments[0]}: {error}", ()
        if status:
            return (lines[-1][:500] if lines else f"exit status {status}"), ()
        return "", lines
