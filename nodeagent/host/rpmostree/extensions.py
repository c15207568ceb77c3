"""The extensions image as a local repository of packages, from before a staging until its end.

    await extensions.fetch(image, credentials)    # pulled and unpacked by nodeagent-extensions.service
    async with extensions.repository(image):      # rpm-ostree finds the packages
        ...
    extensions.sweep()

The image is identified by its digest, so packages of an interrupted staging are used again. Other files in
/etc/yum.repos.d are never touched.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodeagent.core.config.image import ContainerImage
from nodeagent.core.update.ports.system import FencedUnit
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.rpmostree.failures import failure, one_line
from nodeagent.host.rpmostree.guards import Services
from nodeagent.reasons import Reason

_UNIT: Final = FencedUnit.EXTENSIONS
# The same directory as in nodeagent-extensions.service.
_RUN: Final = "run/nodeagent/extensions"
_REPO: Final = "etc/yum.repos.d/nodeagent-extensions.repo"
# As for rpm-ostree: the first file that exists is the only one.
_HOST_CREDENTIALS: Final = ("etc/ostree/auth.json", "usr/lib/ostree/auth.json")
# Seconds; as long as a transaction may be silent.
_DEADLINE: Final = 3600.0
_STOP: Final = 30.0
_MAX_ERROR: Final = 4096
_DOING: Final = "fetch the extensions image"
# The content was verified with the digest of the image, and its packages need not be signed.
_TEXT: Final = """\
# Written by nodeagent for the staging of an update, and removed at its end.
[nodeagent-extensions]
name=Packages of the extensions image
baseurl=file://{directory}
enabled=1
gpgcheck=0
skip_if_unavailable=0
metadata_expire=1
"""


class ExtensionsRepository:
    """``state`` is the directory for the packages, on a disk. ``root`` is for tests."""

    def __init__(self, jobs: Services, state: Path, root: Path) -> None:
        self._jobs = jobs
        self._state = state / "extensions"
        self._run = root / _RUN
        self._repo = root / _REPO
        self._host_credentials = [root / path for path in _HOST_CREDENTIALS]

    async def fetch(self, image: ContainerImage, credentials: bytes | None) -> None:
        """Pull and unpack ``image``. Returns at once if that was done before.

        Raises ``Retryable`` (``RegistryUnreachable``) or ``Terminal`` (``ImageNotFound``, ``Unauthorized``, ...).
        """
        if await asyncio.to_thread(self._target(image).is_dir):
            return
        await asyncio.to_thread(self._prepare, image, credentials)
        try:
            await self._jobs.start(_UNIT, _DEADLINE)
        except AgentError as error:
            text = await asyncio.to_thread(self._error)
            if text:
                raise failure(text, _DOING) from error
            raise type(error)(f"cannot {_DOING}: {error.message}", reason=error.reason) from error
        except asyncio.CancelledError:
            # The next attempt would otherwise wait for a job with another request.
            await asyncio.shield(self._jobs.stop(_UNIT, _STOP))
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, self._run, ignore_errors=True)
        if not await asyncio.to_thread(self._target(image).is_dir):
            raise Terminal(f"cannot {_DOING}: {_UNIT} left no packages", reason=Reason.STAGE_INCOMPLETE)

    @asynccontextmanager
    async def repository(self, image: ContainerImage | None) -> AsyncIterator[None]:
        """Show the packages to rpm-ostree inside the context, if ``fetch`` has left any."""
        if image is None or not await asyncio.to_thread(self._target(image).is_dir):
            yield
            return
        await asyncio.to_thread(self._show, image)
        try:
            yield
        finally:
            await asyncio.to_thread(self._hide)

    def sweep(self) -> None:
        """Remove everything, also that of a killed run. Blocks."""
        self._hide()
        for directory in (self._run, self._state):
            if directory.exists():
                with translated("remove", str(directory)):
                    shutil.rmtree(directory)

    def _target(self, image: ContainerImage) -> Path:
        return self._state / image.digest.partition(":")[2]

    def _prepare(self, image: ContainerImage, credentials: bytes | None) -> None:
        with translated("prepare the packages at", str(self._state)):
            # What is there belongs to another image.
            shutil.rmtree(self._state, ignore_errors=True)
            shutil.rmtree(self._run, ignore_errors=True)
            self._state.mkdir(parents=True, mode=0o700)
            self._run.mkdir(parents=True, mode=0o700)
            auth = ""
            if credentials is not None:
                auth = str(self._run / "auth.json")
                self._write("auth.json", credentials)
            else:
                auth = next((str(path) for path in self._host_credentials if path.exists()), "")
            # Only here: with what unpacks the image in the unit's process, it would be in the memory of each daemon.
            from nodeagent.host.rpmostree.extensions_image import FetchRequest

            request = FetchRequest(f"{image.name}@{image.digest}", auth, str(self._target(image)))
            self._write("request.json", request.to_json())

    def _write(self, name: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._run / name, flags, 0o600), "wb") as file:
            file.write(content)

    def _error(self) -> str:
        try:
            with (self._run / "error").open("rb") as file:
                return one_line(file.read(_MAX_ERROR).decode("utf-8", "replace"))
        except FileNotFoundError:
            return ""

    def _show(self, image: ContainerImage) -> None:
        with translated("write", str(self._repo)):
            self._repo.parent.mkdir(mode=0o755, exist_ok=True)
            self._repo.write_text(_TEXT.format(directory=self._target(image)), encoding="utf-8")
            self._repo.chmod(0o644)

    def _hide(self) -> None:
        with translated("remove", str(self._repo)):
            self._repo.unlink(missing_ok=True)
