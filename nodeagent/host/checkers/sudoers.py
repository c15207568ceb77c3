# SPDX-License-Identifier: Apache-2.0
"""Check sudo rules with ``visudo -c``, each file alone: visudo only warns about an alias that another file defines."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import PurePath

from nodeagent.errors import Problem
from nodeagent.host.checkers.job import Job

log = logging.getLogger(__name__)


def ignored_by_sudo(path: str) -> bool:
    """Return whether sudo ignores the file: its name has a dot or ends in ~. sudoers(5), includedir."""
    name = PurePath(path).name
    return path != "/etc/sudoers" and ("." in name or name.endswith("~"))


async def check(job: Job) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    for index, (path, content) in enumerate(sorted(job.changed.items())):
        if ignored_by_sudo(path):
            log.warning("%s is not read by sudo: its name has a dot or ends in ~", path)
            continue
        name = f"sudoers-{index}"
        await job.write({name: content})
        status, lines = await job.run("-c", "-f", str(job.directory / name), paths=(path,))
        if status and (message := _reason(lines, str(job.directory / name))):
            problems.append(Problem(path, message))
    return tuple(problems)


def _reason(lines: Sequence[str], copy: str) -> str:
    """Return the error in the copy, without quoted rules; "" if the error is in another file."""
    for line in lines:
        # ">>> FILE: syntax error near line 2 <<<" in 1.8, "FILE:2:8: syntax error" since 1.9.
        message = line.removeprefix(">>> ").removesuffix(" <<<")
        if message.startswith(f"{copy}:"):
            message = message.removeprefix(f"{copy}:")
            place, _, text = message.partition(": ")
            return f"line {place.split(':')[0]}: {text}" if place[:1].isdigit() else message.strip()
    return ""
