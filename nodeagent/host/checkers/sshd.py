# SPDX-License-Identifier: Apache-2.0
"""Check the configuration of the ssh server with ``sshd -t``.

A drop-in has no meaning without the main file that includes it, so the whole configuration is assembled in a private
directory: the new files, and those of the host that this update does not change. Only errors in changed files count:
missing host keys, for instance, are not the fault of a config.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import Problem
from nodeagent.host.checkers.job import Job
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.programs import PASSING

DIRECTORY: Final = "/etc/ssh"
MAIN: Final = f"{DIRECTORY}/sshd_config"
DROPINS: Final = f"{MAIN}.d"
INCLUDE: Final = re.compile(r"^(\s*include\s+)(.*)$", re.IGNORECASE | re.MULTILINE)
QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# Bytes of one file of the host. A real sshd_config has a few kilobytes.
MAX_BYTES: Final = 1024 * 1024


async def check(job: Job) -> tuple[Problem, ...]:
    files = await asyncio.to_thread(_assemble, job.root, job.old, job.new)
    copies = {path: str(job.directory / path.removeprefix("/")) for path in files}
    await job.write({path.removeprefix("/"): _redirect(text, job.directory) for path, text in files.items()})
    status, lines = await job.run("-t", "-f", str(job.directory / MAIN.removeprefix("/")))
    if not status:
        return ()
    problems: list[Problem] = []
    for path in job.changed:
        for line in lines:
            message = line.removeprefix(copies[path]).lstrip(": ")
            # The path of the main file is a prefix of the paths of its drop-ins. The last line only counts the errors.
            if (
                line.startswith(copies[path])
                and not line.startswith(f"{copies[path]}.d/")
                and "terminating" not in message
            ):
                problems.append(Problem(path, _without_content(message)))
    return tuple(problems)


def _without_content(text: str) -> str:
    """Return a message of sshd without the content of the file that it quotes.

    A file may be readable by root only, but every user can read the problems of an update.
    """
    text = QUOTED.sub("(not shown)", text)
    place, separator, message = text.partition(": ")
    return f"{place}{separator}{message.partition(': ')[0]}"


def _assemble(root: Path, old: MachineConfig, new: MachineConfig) -> dict[str, bytes]:
    """Return the content of the main file and its drop-ins after the update, by path on the host."""
    host = {MAIN, *(f"{DROPINS}/{path.name}" for path in _conf_files(root / DROPINS.removeprefix("/")))}
    files: dict[str, bytes] = {}
    # A file of the old config that the new one lacks is removed by this update, so it must not count.
    for path in sorted(host - set(old.files)):
        if (content := _read(root / path.removeprefix("/"))) is not None:
            files[path] = content
    files |= {path: entry.content for path, entry in new.files.items() if path == MAIN or _is_dropin(path)}
    # sshd would use its defaults, and read no drop-in at all.
    files.setdefault(MAIN, f"Include {DROPINS}/*.conf\n".encode())
    return files


def _is_dropin(path: str) -> bool:
    return path.startswith(f"{DROPINS}/") and path.endswith(".conf")


def _conf_files(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.name.endswith(".conf")]
    except OSError:
        return []


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path, MAX_BYTES)
    except OSError as error:
        if error.errno in PASSING:
            raise
        return None


def _redirect(content: bytes, directory: Path) -> bytes:
    """Let includes of drop-ins lead to the copies. A relative name is relative to /etc/ssh: sshd_config(5)."""

    def include(line: re.Match[str]) -> str:
        words = line[2].partition("#")[0].replace('"', "").split()
        return line[1] + " ".join(_moved(word, directory) for word in words)

    return INCLUDE.sub(include, content.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _moved(pattern: str, directory: Path) -> str:
    absolute = pattern if pattern.startswith("/") else f"{DIRECTORY}/{pattern}"
    return f"{directory}{absolute}" if absolute.startswith(f"{DROPINS}/") else absolute
