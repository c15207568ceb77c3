# SPDX-License-Identifier: Apache-2.0
"""The rules for updates of the OS, from this host: the file of the admin, the update graph, and what the host has.

A server that does not answer holds the update or does not, as set. One whose answer is no update graph always holds it:
that is a mistake in the settings, which an admin would not notice otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.display import text
from nodeagent.errors import AgentError, Refused, Unreachable, full_text
from nodeagent.features.update_graph.decide.declared import UPDATE_PATH, Requirement, UpdatePath, parse_update_path
from nodeagent.features.update_graph.decide.graph import UpdateGraph, parse_graph, rejection_of
from nodeagent.features.update_graph.decide.judge import (
    HostFacts,
    applicable,
    check_path,
    check_requirements,
    matches,
    resolved,
)
from nodeagent.features.update_graph.decide.release import Jump, JumpAnswer
from nodeagent.features.update_graph.reasons import JumpReason
from nodeagent.features.update_graph.settings import GraphSettings
from nodeagent.host.config_file import read_now
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.http import fetch_json

# Seconds for the whole request. A graph has some hundred kilobytes.
TIMEOUT: Final = 30.0

MAX_FILE: Final = 1 << 20
# Bytes of one file of the host in which a line is looked for, and entries of one directory.
MAX_CONTENT: Final = 1 << 20
MAX_ENTRIES: Final = 10_000


@dataclass(slots=True)
class HostJumps:
    """Implements ``guard.JumpGate``. ``root`` and ``path`` are for tests."""

    settings: GraphSettings
    root: Path = Path("/")
    path: str = UPDATE_PATH
    timeout: float = TIMEOUT

    def use(self, settings: GraphSettings) -> None:
        self.settings = settings

    async def check(self, jump: Jump) -> JumpAnswer:
        declared = await asyncio.to_thread(read_update_path, self.path)
        graph: UpdateGraph | None = None
        warnings: tuple[str, ...] = ()
        if self.settings.url:
            try:
                graph = await fetch_graph(self.settings, self.timeout)
            except Unreachable as error:
                if self.settings.on_unreachable == "hold":
                    raise
                warnings = (f"warning: continuing without the update graph: {error.message}",)
        return await asyncio.to_thread(self._judge, jump, declared, graph, warnings)

    def _judge(
        self, jump: Jump, declared: UpdatePath, graph: UpdateGraph | None, warnings: tuple[str, ...]
    ) -> JumpAnswer:
        """Blocks for small files of the host."""
        jump = resolved(jump, declared, graph)
        notes = check_path(jump, declared, graph)
        needed = applicable(jump, declared, _os_id(self.root))
        notes += check_requirements(jump, needed, _facts(self.root, jump, needed))
        return JumpAnswer(tuple(text(note) for note in notes), warnings)


def read_update_path(path: str = UPDATE_PATH) -> UpdatePath:
    """Return the rules of the admin, none without a file. Blocks. Raises ``Refused`` (``UpdatePathInvalid``)."""
    try:
        content = read_now(path, MAX_FILE)
        return parse_update_path(content) if content is not None else UpdatePath()
    except AgentError as error:
        # An admin corrects the file without a change of the config, so the update is tried again.
        raise Refused(full_text(error, 3), reason=JumpReason.UPDATE_PATH_INVALID) from error


async def fetch_graph(settings: GraphSettings, timeout: float = TIMEOUT) -> UpdateGraph:
    """Raises ``Unreachable`` (``GraphUnreachable``) and ``Refused`` (``GraphRejected``)."""

    def unreachable(cause: str) -> Unreachable:
        return Unreachable(text(f"{settings.url}: {cause}"), reason=JumpReason.GRAPH_UNREACHABLE)

    def rejected(cause: str) -> Refused:
        return Refused(text(f"{settings.url}: {cause}"), reason=JumpReason.GRAPH_REJECTED)

    body = await fetch_json(
        settings.url,
        ca=settings.ca,
        timeout=timeout,
        error_of=rejection_of,
        unreachable=unreachable,
        rejected=rejected,
    )
    try:
        return await asyncio.to_thread(parse_graph, body)
    except ValueError as error:
        raise rejected(str(error)) from error


def _os_id(root: Path) -> str:
    """Return ID of os-release, which is linux without one: os-release(5)."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            lines = read_regular(root / name, MAX_CONTENT).decode(errors="replace").splitlines()
        except OSError:
            continue
        values = [line.partition("=")[2].strip().strip("\"'") for line in lines if line.startswith("ID=")]
        return values[-1] if values else "linux"
    return "linux"


def _facts(root: Path, jump: Jump, needed: Sequence[Requirement]) -> HostFacts:
    patterns = [(pattern, bool(requirement.line)) for requirement in needed for pattern in requirement.files]
    files: dict[str, bytes] = {}
    for pattern, with_content in patterns:
        for path in _paths(root, pattern, jump.managed):
            if (brought := jump.managed.get(path)) is not None:
                files[path] = brought
            elif with_content or path not in files:
                files[path] = _content(root, path) if with_content else b""
    flags = _cpu_flags(root) if any(requirement.cpu_flags for requirement in needed) else None
    return HostFacts(jump.kernel_arguments, files, flags)


def _paths(root: Path, pattern: str, managed: Mapping[str, bytes | None]) -> Iterator[str]:
    """Yield the paths that match and that the host has after the update."""
    yield from (path for path, content in managed.items() if content is not None and matches(pattern, path))
    directory = pattern.rpartition("/")[0]
    try:
        with os.scandir(root / directory.lstrip("/")) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_ENTRIES:
                    raise _unread(directory, f"it has more than {MAX_ENTRIES} entries")
                path = f"{directory}/{entry.name}"
                if path not in managed and matches(pattern, path):
                    yield path
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unread(directory, error.strerror or str(error)) from error


def _content(root: Path, path: str) -> bytes:
    try:
        return read_regular(root / path.lstrip("/"), MAX_CONTENT)
    except (FileNotFoundError, IsADirectoryError):
        # It was removed since it was listed, or has no lines.
        return b""
    except OSError as error:
        raise _unread(path, error.strerror or str(error)) from error


def _unread(path: str, cause: str) -> Refused:
    return Refused(f"{path} cannot be read for a requirement: {cause}", reason=JumpReason.REQUIREMENT_UNMET)


def _cpu_flags(root: Path) -> frozenset[str] | None:
    """Return the flags that all processors have, None on other machines than x86."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise _unread("/proc/cpuinfo", error.strerror or str(error)) from error
    # A machine may have processors of several kinds, and a program may run on each of them.
    by_processor = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*by_processor) if by_processor else None
