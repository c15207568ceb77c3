# SPDX-License-Identifier: Apache-2.0
"""The extensions image as a local repository of packages, from before a staging until its end.

    await extensions.fetch(image, credentials)    # pulled and unpacked by nodeagent-extensions.service
    async with extensions.repository(image):      # rpm-ostree finds the packages
        ...
    extensions.sweep()

The image is identified by its digest, so packages of an interrupted staging are used again. Other files in
/etc/yum.repos.d are never touched.

The service has a user of its own (DynamicUser=), who is not trusted: what it leaves is taken over only if it consists
of files and directories, and belongs to the daemon from then on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodeagent.core.config.image import ContainerImage
from nodeagent.errors import AgentError, Terminal
from nodeagent.features.rpmostree.extensions_image import AUTH, REQUEST, FetchRequest
from nodeagent.features.rpmostree.failures import failure
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.read_inside import read_inside, read_regular
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.ostree.programs import Services
from nodeagent.reasons import Reason

UNIT: Final = "nodeagent-extensions.service"
# The files that systemd passes to nodeagent-extensions.service, and the directory that the service may write. Its path
# for other programs, /var/lib/nodeagent-extensions, is a link of systemd.
_RUN: Final = "run/nodeagent/extensions"
_STATE: Final = "var/lib/private/nodeagent-extensions"
_REPO: Final = "etc/yum.repos.d/nodeagent-extensions.repo"
# As for rpm-ostree: the first file that exists is the only one.
_HOST_CREDENTIALS: Final = ("etc/ostree/auth.json", "usr/lib/ostree/auth.json")
# Seconds; as long as a transaction may be silent.
_DEADLINE: Final = 3600.0
_STOP: Final = 30.0
_MAX_ERROR: Final = 64 * 1024
# systemd passes no larger credential.
_MAX_AUTH: Final = 1 << 20
_NO_AUTH: Final = b"{}"
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
    """``root`` is for tests."""

    def __init__(self, jobs: Services, root: Path) -> None:
        self._jobs = jobs
        self._state = root / _STATE
        self._run = root / _RUN
        self._repo = root / _REPO
        self._host_credentials = [root / path for path in _HOST_CREDENTIALS]

    async def fetch(self, image: ContainerImage, credentials: bytes | None) -> None:
        """Pull and unpack ``image``. Returns at once if that was done before.

        Raises ``Retryable`` (``RegistryUnreachable``) or ``Terminal`` (``ImageNotFound``, ``Unauthorized``, ...).
        """
        if await asyncio.to_thread(self._is_ours, image):
            return
        await asyncio.to_thread(self._prepare, image, credentials)
        try:
            await self._jobs.start(UNIT, _DEADLINE)
        except AgentError as error:
            text = await asyncio.to_thread(self._error)
            if text:
                raise failure(text, _DOING) from error
            raise type(error)(f"cannot {_DOING}: {error.message}", reason=error.reason) from error
        except asyncio.CancelledError:
            # The next attempt would otherwise wait for a job with another request.
            await asyncio.shield(self._jobs.stop(UNIT, _STOP))
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, self._run, ignore_errors=True)
        await asyncio.to_thread(self._take_over, image)

    @asynccontextmanager
    async def repository(self, image: ContainerImage | None) -> AsyncIterator[None]:
        """Show the packages to rpm-ostree inside the context, if ``fetch`` has left any."""
        if image is None or not await asyncio.to_thread(self._is_ours, image):
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
        with translated("remove", str(self._run)):
            if self._run.exists():
                shutil.rmtree(self._run)
        with translated("remove", str(self._state)):
            self._clear()

    def _clear(self) -> None:
        """Remove what is in the directory of the service. systemd keeps the directory."""
        if not self._state.is_dir():
            return
        for path in self._state.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _is_ours(self, image: ContainerImage) -> bool:
        """Return whether the packages of the image were taken over."""
        try:
            info = self._target(image).lstat()
        except OSError:
            return False
        return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()

    def _take_over(self, image: ContainerImage) -> None:
        """Make the packages those of the daemon. The service has ended, so that nothing changes at the same time."""
        target = self._target(image)
        if not target.is_dir() or target.is_symlink():
            raise Terminal(f"cannot {_DOING}: {UNIT} left no packages", reason=Reason.STAGE_INCOMPLETE)
        with translated("take over", str(target)):
            # The directory itself comes last: its owner is the sign that all the rest is done.
            for directory, folders, files in os.walk(target, topdown=False):
                for path in [Path(directory, name) for name in (*folders, *files)]:
                    info = path.lstat()
                    alone = stat.S_ISREG(info.st_mode) and info.st_nlink == 1
                    if not (alone or stat.S_ISDIR(info.st_mode)):
                        self._clear()
                        problem = f"{path.name} is neither a file of its own nor a directory"
                        raise Terminal(f"cannot {_DOING}: {problem}", reason=Reason.STAGE_INCOMPLETE)
                    self._own(path)
            self._own(target)

    def _own(self, path: Path) -> None:
        os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)

    def _target(self, image: ContainerImage) -> Path:
        return self._state / image.digest.partition(":")[2]

    def _prepare(self, image: ContainerImage, credentials: bytes | None) -> None:
        with translated("prepare the packages at", str(self._state)):
            # What is there belongs to another image, or was not taken over.
            self._clear()
            shutil.rmtree(self._run, ignore_errors=True)
            self._run.mkdir(parents=True, mode=0o700)
            if credentials is None:
                auth_file = next((path for path in self._host_credentials if path.exists()), None)
                credentials = read_regular(auth_file, _MAX_AUTH) if auth_file is not None else _NO_AUTH
            self._write(AUTH, credentials)
            request = FetchRequest(f"{image.name}@{image.digest}", self._target(image).name)
            self._write(REQUEST, request.to_json())

    def _write(self, name: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._run / name, flags, 0o600), "wb") as file:
            file.write(content)

    def _error(self) -> str:
        try:
            # No link leads to another file.
            return one_line(read_inside(self._state, "/error", _MAX_ERROR).decode("utf-8", "replace"))
        except (OSError, ValueError, AgentError):
            return ""

    def _show(self, image: ContainerImage) -> None:
        with translated("write", str(self._repo)):
            self._repo.parent.mkdir(mode=0o755, exist_ok=True)
            self._repo.write_text(_TEXT.format(directory=self._target(image)), encoding="utf-8")
            self._repo.chmod(0o644)

    def _hide(self) -> None:
        with translated("remove", str(self._repo)):
            self._repo.unlink(missing_ok=True)
