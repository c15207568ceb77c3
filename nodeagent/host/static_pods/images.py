"""Pull the images of a static pod before its manifest is taken away, with crictl.

Otherwise the pod does not run while its image is pulled. A host without crictl, or a crictl that does not reach the
runtime, is no failure: then the kubelet pulls the image.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from nodeagent.errors import Terminal
from nodeagent.reasons import Reason

__all__ = ["CrictlImages"]

log = logging.getLogger(__name__)

SEARCH_PATH: Final = "/usr/bin:/usr/sbin:/usr/local/bin:/opt/bin"
ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
QUERY: Final = 20.0
# Seconds. An image of etcd has 60 MB, one of a control plane up to a gigabyte.
PULL: Final = 900.0


class CrictlImages:
    """``search_path`` is where crictl is expected."""

    def __init__(self, *, search_path: str = SEARCH_PATH) -> None:
        self._search_path = search_path

    async def ensure(self, images: Mapping[str, str]) -> None:
        """Pull the images that are missing. ``images`` is image to pull policy.

        Raises ``Terminal`` (``StaticPodImage``) for an image that is missing and cannot be pulled.
        """
        program = await asyncio.to_thread(shutil.which, "crictl", path=self._search_path)
        if program is None or await _run(program, "version", limit=QUERY):
            log.debug("crictl does not answer; the images of static pods are not checked")
            return
        for image, policy in images.items():
            if policy != "Always" and not await _run(program, "inspecti", "--quiet", image, limit=QUERY):
                continue
            why = "it is not on this host, and its policy is Never"
            if policy != "Never" and not (why := await _run(program, "pull", image, limit=PULL)):
                continue
            raise Terminal(f"the image {image} cannot be used: {why}", reason=Reason.STATIC_POD_IMAGE)


async def _run(*command: str, limit: float) -> str:
    """Return "" if the command succeeds, otherwise the last line of its errors."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit):
            _, errors = await process.communicate()
    except TimeoutError:
        return f"crictl {command[1]} did not end within {limit:.0f} s"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    lines = errors.decode(errors="replace").strip().splitlines()
    return "" if process.returncode == 0 else (lines[-1][:500] if lines else f"exit status {process.returncode}")
