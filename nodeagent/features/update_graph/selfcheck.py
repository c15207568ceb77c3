# SPDX-License-Identifier: Apache-2.0
"""Whether the rules of the admin can be read, and whether the server answers with an update graph."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from nodeagent.core.self_check import NotRead, ReachFacts, SelfCheck, failed, ok, reach_check, skipped
from nodeagent.errors import AgentError
from nodeagent.features.update_graph.decide.declared import BUILT_IN, UPDATE_PATH
from nodeagent.features.update_graph.jumps import fetch_graph, read_update_path
from nodeagent.features.update_graph.settings import GraphSettings
from nodeagent.reasons import hint

# Seconds for one request.
TIMEOUT: Final = 10.0


async def check_rules(name: str) -> SelfCheck:
    return await asyncio.to_thread(_rules, name)


def _rules(name: str) -> SelfCheck:
    if os.geteuid() != 0 and Path(UPDATE_PATH).exists() and not os.access(UPDATE_PATH, os.R_OK):
        return skipped(name, f"{UPDATE_PATH} is for root", "run it as root")
    try:
        rules = read_update_path()
    except AgentError as error:
        return failed(name, error.message, hint(error.reason))
    count = len(rules.barriers) + len(rules.minimum) + len(rules.requirements)
    return ok(name, f"{count} rules in {UPDATE_PATH}, {len(BUILT_IN) - len(rules.skip)} built in")


async def check_graph(name: str, settings: GraphSettings) -> SelfCheck:
    return reach_check(name, await reach_graph(settings) if settings.url else NotRead("not configured"))


async def reach_graph(settings: GraphSettings, *, timeout: float = TIMEOUT) -> ReachFacts:
    """The answer must be an update graph."""
    try:
        graph = await fetch_graph(settings, timeout)
    except AgentError as error:
        return ReachFacts(settings.url, error.message.removeprefix(f"{settings.url}: "), hint(error.reason))
    return ReachFacts(f"{settings.url}: {len(graph.releases)} releases")
