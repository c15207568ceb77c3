# SPDX-License-Identifier: Apache-2.0
"""Removes what a killed process left beside the paths that it was writing. Tidying: nothing of it keeps the daemon from
starting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nodeagent.agent.report.report import Report
from nodeagent.core.config.file_tree import expand
from nodeagent.errors import AgentError, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.next.preflight import Desired
from nodeagent.update.ports.host import Files
from nodeagent.update.ports.store import Store
from nodeagent.update.record import in_effect

# Seconds. A directory on a file system that does not answer must not keep the daemon from starting.
SWEEP_FOR: Final = 60.0


async def sweep(
    store: Store, files: Files, load: Callable[[str], Awaitable[Desired]], desired_path: str, report: Report
) -> None:
    try:
        async with asyncio.timeout(SWEEP_FOR):
            # ``Api.apply`` writes the desired config in the same way as a managed file.
            left = await files.sweep(sorted({*await _paths(store, load), desired_path}))
    except TimeoutError:
        report.problem("sweep", Terminal(f"not done within {SWEEP_FOR:g} s", reason=Reason.SWEEP_INCOMPLETE))
        return
    if left:
        first = f"{len(left)} leftover temporary files were not removed"
        report.problem("sweep", Terminal(first, reason=Reason.SWEEP_INCOMPLETE, problems=left))


async def _paths(store: Store, load: Callable[[str], Awaitable[Desired]]) -> set[str]:
    """Those of the configs that the last life may have written. One that cannot be read is reported elsewhere."""
    digests: set[str] = set()
    paths: set[str] = set()
    try:
        record, current = await store.load(), await store.current()
        digests |= {current, in_effect(record, current), record.to_digest}
    except AgentError:
        pass
    for digest in digests - {""}:
        try:
            paths |= expand((await load(digest)).config).keys()
        except AgentError:
            continue
    return paths
