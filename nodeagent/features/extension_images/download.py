# SPDX-License-Identifier: Apache-2.0
"""Fetch one image over HTTP to a file, and continue where an earlier attempt ended.

The digest decides what is kept, so redirects are followed, as servers of releases need it. All of it is bounded: bytes,
time, the time without data, redirects.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import shutil
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Final

from nodeagent.errors import AgentError, Refused, Unreachable
from nodeagent.features.extension_images.decide import Image, redirected
from nodeagent.features.extension_images.reasons import ExtensionImageReason
from nodeagent.host.http import HttpFault, exchange, tls_context

MAX_REDIRECTS: Final = 5
# Seconds without a byte.
STALL: Final = 30.0
# Bytes that stay free beside an image.
RESERVE: Final = 64 << 20
# Bytes of one read, and those after which the disk is awaited: a burst would delay the writes of etcd.
CHUNK: Final = 256 << 10
BURST: Final = 8 << 20

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_FULL, _PARTIAL, _NO_RANGE = 200, 206, 416
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


@dataclass(frozen=True, slots=True)
class Redirect:
    location: str


@dataclass(frozen=True, slots=True)
class Download:
    """``part`` is the file of this image while it is not complete. ``limit`` is in bytes, ``timeout`` in seconds."""

    image: Image
    part: Path
    limit: int
    timeout: float
    ca: str = ""

    async def run(self) -> bool:
        """Fetch the rest of the image, and return whether that continued an earlier attempt.

        Raises ``Unreachable`` (``ExtensionUnreachable``) and ``Refused``. What arrived stays in ``part``.
        """
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow(self.image.url)
        except TimeoutError:
            raise self._unreachable(f"not complete in {self.timeout:g} s; the next attempt continues") from None

    async def _follow(self, url: str) -> bool:
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._get(url)
            if not isinstance(answer, Redirect):
                return answer
            try:
                url = redirected(url, answer.location)
            except ValueError as error:
                raise self._unreachable(str(error)) from error
        raise self._unreachable(f"it redirects more than {MAX_REDIRECTS} times")

    async def _get(self, url: str) -> Redirect | bool:
        try:
            tls = await asyncio.to_thread(tls_context, self.ca) if url.startswith("https:") else None
        except OSError as error:
            message = f"the authority {self.ca or 'of the host'} cannot be used: {error.strerror or error}"
            raise Refused(message, reason=ExtensionImageReason.EXTENSION_NOT_FETCHED) from error
        begun = await asyncio.to_thread(_size, self.part)
        headers = {"Accept": "*/*"} | ({"Range": f"bytes={begun}-"} if begun else {})
        try:
            return await exchange(
                "GET",
                url,
                lambda response: self._read(response, begun),
                headers=headers,
                tls=tls,
                timeout=self.timeout,
                stall=STALL,
            )
        except HttpFault as fault:
            raise self._unreachable(str(fault)) from fault

    def _read(self, response: HTTPResponse, begun: int) -> Redirect | bool:
        """Write the content to the file. It runs in a thread, which may outlive its request."""
        if response.status in _REDIRECTS:
            return Redirect(response.headers.get("Location") or "")
        match = _RANGE.fullmatch(response.headers.get("Content-Range") or "")
        continues = response.status == _PARTIAL and match is not None and int(match[1]) == begun
        if response.status == _NO_RANGE or (response.status == _PARTIAL and not continues):
            # The file has more than the server, or the server answered another question.
            self.part.unlink(missing_ok=True)
            raise self._unreachable("it does not have the rest; the next attempt begins again")
        if response.status not in (_FULL, _PARTIAL):
            raise self._unreachable(f"status {response.status}")
        size = begun if continues else 0
        self._check_room(size, response.length)
        try:
            self._write(response, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_room(str(error.strerror)) from error
            raise
        if response.length:
            raise HTTPException("cut off")
        return continues

    def _write(self, response: HTTPResponse, size: int) -> None:
        fd = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # The thread of an attempt that was given up may still write.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, size)
            os.lseek(fd, size, os.SEEK_SET)
            synced = size
            while chunk := response.read(CHUNK):
                size += len(chunk)
                if size > self.limit:
                    raise self._too_large(f"more than {self.limit}")
                view = memoryview(chunk)
                while view:
                    view = view[os.write(fd, view) :]
                if size - synced >= BURST:
                    os.fdatasync(fd)
                    synced = size
            os.fsync(fd)
        finally:
            os.close(fd)

    def _check_room(self, size: int, left: int | None) -> None:
        if left is None:
            return
        if size + left > self.limit:
            raise self._too_large(str(size + left))
        free = shutil.disk_usage(self.part.parent).free
        if left + RESERVE > free:
            raise self._no_room(f"{left} bytes are to come, and {free} are free")

    def _too_large(self, size: str) -> AgentError:
        message = f"the image {self.image} has {size} bytes; at most {self.limit} are fetched"
        return Refused(message, reason=ExtensionImageReason.EXTENSION_TOO_LARGE)

    def _no_room(self, cause: str) -> AgentError:
        message = f"no room for the image {self.image} in {self.part.parent}: {cause}"
        return Refused(message, reason=ExtensionImageReason.EXTENSION_NO_SPACE)

    def _unreachable(self, cause: str) -> AgentError:
        message = f"the image {self.image} cannot be fetched from {self.image.server}: {cause}"
        return Unreachable(message, reason=ExtensionImageReason.EXTENSION_UNREACHABLE)


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
