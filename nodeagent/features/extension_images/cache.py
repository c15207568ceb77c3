# SPDX-License-Identifier: Apache-2.0
"""The images of this host, kept by their digests. Links of a config lead to them.

A file has its name when it is complete and its digest is right, so that a kill leaves a part at most, which the next
attempt continues.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.core.config.fetched import DIGEST, KEPT, SEARCHED, SUFFIX, kept_at
from nodeagent.errors import Refused, Unreachable
from nodeagent.features.extension_images.decide import Image, KeptFile, surplus
from nodeagent.features.extension_images.download import Download
from nodeagent.features.extension_images.reasons import ExtensionImageReason
from nodeagent.features.extension_images.settings import ExtensionImageSettings
from nodeagent.host.fs.atomic import sync_directory
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.selinux import Labels

# Of a file that is not complete.
PART: Final = ".part"


class ImageCache:
    """``root`` is that of the host."""

    def __init__(self, settings: ExtensionImageSettings, root: str = "/") -> None:
        self.settings = settings
        self._root = Path(root)
        self._directory = self._at(KEPT)

    def use(self, settings: ExtensionImageSettings) -> None:
        self.settings = settings

    async def size(self, image: Image) -> int | None:
        """Return the bytes of an image that is here, None for one that is not."""
        return await asyncio.to_thread(_size, self._at(kept_at(image.digest)))

    async def place(self, image: Image) -> str:
        """Return the path of an image that is on this host: kept here, or where Ignition has put it."""
        return image.path if await self.size(image) is None else kept_at(image.digest)

    async def fetch(self, image: Image) -> None:
        """Bring an image, unless it is here. Raises as ``Download.run``, and ``Refused`` (``ExtensionDigest``)."""
        if await self.size(image) is not None:
            return
        await asyncio.to_thread(self._make_directory)
        part = self._directory / f"{image.digest}{PART}"
        settings = self.settings
        continued = await Download(image, part, settings.max_bytes, settings.timeout, settings.ca).run()
        if await asyncio.to_thread(self._complete, image, part):
            return
        server = f"{image.server} has another content than the hash of {image} in the config"
        # The part may be of an earlier content of the server. It was removed, so the next attempt reads all of it.
        if continued:
            message = f"{server}, or it changed during the transfer; it is fetched again"
            raise Unreachable(message, reason=ExtensionImageReason.EXTENSION_UNREACHABLE)
        raise Refused(server, reason=ExtensionImageReason.EXTENSION_DIGEST)

    async def adopt(self, path: str, wanted: str) -> str | None:
        """Keep the regular file at ``path`` by its digest, which is the ``wanted`` one or a SHA-256. Return the path to
        which a link in its place leads; None if there is no regular file.

        Raises ``Terminal`` and ``Retryable``.
        """
        with translated("keep", path):
            return await asyncio.to_thread(self._adopt, path, wanted)

    async def prune(self, used: Collection[str]) -> None:
        """Remove files that are not among the ``used`` digests, and that no link of a search path leads to."""
        await asyncio.to_thread(self._prune, used)

    async def is_here(self, path: str, wanted: str) -> bool:
        """Return whether ``path`` is a regular file with the ``wanted`` digest: Ignition has put it there."""
        return await asyncio.to_thread(self._has, self._at(path), wanted)

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _make_directory(self) -> None:
        with translated("create", KEPT):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _complete(self, image: Image, part: Path) -> bool:
        """Give a file its name if its digest is right. Remove it if not."""
        with translated("keep", str(part)):
            if _digest(part, image.digest) != image.digest:
                part.unlink()
                return False
            self._publish(part, image.digest)
            return True

    def _publish(self, part: Path, digest: str) -> None:
        # systemd-sysext mounts what has the name, so content and label must be on the disk before that.
        fd = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            Labels().write_new(fd, kept_at(digest), stat.S_IFREG | 0o600)
            os.fsync(fd)
        finally:
            os.close(fd)
        part.replace(self._at(kept_at(digest)))
        sync_directory(self._directory)

    def _has(self, file: Path, wanted: str) -> bool:
        with suppress(OSError):
            return stat.S_ISREG(file.lstat().st_mode) and _digest(file, wanted) == wanted
        return False

    def _adopt(self, path: str, wanted: str) -> str | None:
        file = self._at(path)
        try:
            if not stat.S_ISREG(file.lstat().st_mode):
                return None
        except FileNotFoundError:
            return None
        self._make_directory()
        digest = wanted if _digest(file, wanted) == wanted else _digest(file, "sha256-")
        if _size(self._at(kept_at(digest))) is None:
            part = self._directory / f"{digest}{PART}"
            part.unlink(missing_ok=True)
            # A link needs no space, and the file is replaced by a link to it right after this.
            try:
                os.link(file, part, follow_symlinks=False)
            except OSError:
                # Another file system.
                shutil.copyfile(file, part, follow_symlinks=False)
            self._publish(part, digest)
        return kept_at(digest)

    def _prune(self, used: Collection[str]) -> None:
        # An admin may have linked an image by hand; it is merged as the others are.
        needed = {*used, *self._linked()}
        files: list[KeptFile] = []
        with suppress(OSError):
            for entry in os.scandir(self._directory):
                # A part is continued or begun again; it counts as unused.
                digest = entry.name.removesuffix(SUFFIX).removesuffix(PART)
                about = entry.stat(follow_symlinks=False)
                if DIGEST.fullmatch(digest) and stat.S_ISREG(about.st_mode):
                    files.append(KeptFile(entry.name, about.st_size, about.st_mtime))
        names = {f"{digest}{SUFFIX}" for digest in needed}
        for name in surplus(files, names, self.settings.max_bytes):
            with suppress(OSError):
                (self._directory / name).unlink()

    def _linked(self) -> Iterator[str]:
        """Yield the digests to which links in the directories of extensions lead."""
        for directory in SEARCHED:
            with suppress(OSError):
                for entry in os.scandir(self._at(directory)):
                    if entry.is_symlink():
                        yield Path(os.readlink(entry.path)).name.removesuffix(SUFFIX)  # noqa: PTH115


def _size(path: Path) -> int | None:
    with suppress(OSError):
        about = path.lstat()
        return about.st_size if stat.S_ISREG(about.st_mode) else None
    return None


def _digest(path: Path, like: str) -> str:
    """Return the digest of a file, of the kind of ``like``. It reads all of the file."""
    kind = like.partition("-")[0]
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return f"{kind}-{hashlib.file_digest(file, partial(hashlib.new, kind)).hexdigest()}"
