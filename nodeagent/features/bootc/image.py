# SPDX-License-Identifier: Apache-2.0
"""What of an image matters to a host beside its files: its kernel arguments, and the images that are bound to it.

An image is read in the repository of libostree, right after its pull, because a deployment gets its arguments when it
is made. That of the booted deployment is read in its directory.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.core.enumerated import enumerated
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.features.bootc.decide.kargs import KARGS, MAX_BYTES, MAX_FILES, ImageArguments, image_arguments, is_read
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.host.fs.read_inside import list_inside, read_inside
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.reasons import Reason

BOUND: Final = "usr/lib/bootc/bound-images.d"

_OSTREE: Final = "/usr/bin/ostree"
# Seconds for one directory or file of a commit.
_DEADLINE: Final = 60.0
# Names in a directory.
_MAX_NAMES: Final = 1000


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """``bound`` are the names in the directory of bound images."""

    arguments: ImageArguments = field(default_factory=ImageArguments)
    bound: tuple[str, ...] = ()


def refuse_bound(names: Collection[str]) -> None:
    """Raise ``Terminal`` (``BoundImages``) for an image with images that are bound to it, by the names of the files."""
    if names:
        message = f"the image has bound images: {enumerated(sorted(names))}"
        raise Terminal(message, reason=BootcReason.BOUND_IMAGES)


def arguments_of_tree(tree: Path) -> ImageArguments:
    """Return the arguments in the directory of a deployment, none if its files cannot be used. Blocks."""
    if not (tree / KARGS).is_dir():
        return ImageArguments()
    try:
        names = list_inside(tree, f"/{KARGS}", _MAX_NAMES)
        files = {name: read_inside(tree, f"/{KARGS}/{name}", MAX_BYTES) for name in names if is_read(name)}
        return image_arguments(files, platform.machine())
    except (OSError, ValueError, AgentError):
        # bootc installs and stages no image with such files, so no argument of the host came from one. Refusing them
        # here would keep the host on an image that is to be replaced.
        return ImageArguments(present=True)


@dataclass(frozen=True, slots=True)
class CommitReader:
    """Reads commits in ``repo``. ``program`` is for tests."""

    repo: Path
    program: str = _OSTREE

    async def facts(self, commit: str) -> ImageFacts:
        """Return the facts of a commit.

        Raises ``Terminal`` (``ImageBroken``) if its kernel arguments cannot be used, and ``Retryable``
        (``StageFailed``) if ostree cannot read it.
        """
        # ostree has one exit status for all faults, so each directory is looked up in the one above it.
        if "bootc" not in await self._names(commit, "usr/lib"):
            return ImageFacts()
        directories = await self._names(commit, "usr/lib/bootc")
        bound = await self._names(commit, BOUND) if Path(BOUND).name in directories else ()
        arguments = ImageArguments()
        if Path(KARGS).name in directories:
            arguments = await self._arguments(commit)
        return ImageFacts(arguments, tuple(bound))

    async def _arguments(self, commit: str) -> ImageArguments:
        names = [name for name in await self._names(commit, KARGS) if is_read(name)]
        # One more than are read: that they are too many is for the reader of all to say.
        files = {name: await self._content(commit, f"{KARGS}/{name}") for name in names[: MAX_FILES + 1]}
        try:
            return image_arguments(files, platform.machine())
        except ValueError as error:
            message = f"the kernel arguments of the image cannot be used: {error}"
            hint = f"correct {KARGS} in the image, and name the new image in osImageURL"
            raise Terminal(message, reason=Reason.IMAGE_BROKEN, hint=hint) from None

    async def _names(self, commit: str, directory: str) -> Sequence[str]:
        """Return the names in a directory of the commit, which exists."""
        lines = await self._run("ls", "--nul-filenames-only", commit, f"/{directory}")
        prefix = f"/{directory}/"
        return [path.removeprefix(prefix) for path in "\n".join(lines).split("\0") if path.startswith(prefix)]

    async def _content(self, commit: str, path: str) -> bytes:
        return "\n".join(await self._run("cat", commit, f"/{path}")).encode()

    async def _run(self, verb: str, *arguments: str) -> Sequence[str]:
        doing = f"read {arguments[-1]} of the image"
        try:
            status, lines = await run_program(
                self.program, (f"--repo={self.repo}", verb, *arguments), Path("/"), _DEADLINE
            )
        except (OSError, ProgramLate) as error:
            raise Retryable(f"cannot {doing}: {error}", reason=Reason.STAGE_FAILED) from error
        if status:
            raise Retryable(f"cannot {doing}: {one_line(' '.join(lines))}", reason=Reason.STAGE_FAILED)
        return lines
