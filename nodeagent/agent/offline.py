# SPDX-License-Identifier: Apache-2.0
"""The plan of an update without the daemon. It must be the one that the daemon would make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, Final

from nodeagent.agent.compose import open_adapters
from nodeagent.agent.daemon import Daemon
from nodeagent.agent.last_good_settings import FoundSettings, read_settings
from nodeagent.agent.report.report import first_status
from nodeagent.core.config.text import plain_json
from nodeagent.host.dbus.client import Bus

# Seconds within which the system bus accepts the connection.
PATIENCE: Final = 10.0


async def plan_offline(
    text: str, options: Mapping[str, bool], *, read: Callable[[], FoundSettings] = read_settings
) -> dict[str, Any]:
    """Plan an update of this host while the daemon is down: the same pre-flight, on a copy of its store. ``options``
    are those of ``Api.plan``.

    Returns the answer of ``Plan``, with ``problems``: what the daemon would show in its status. Needs root.
    Raises ``AgentError``. Writes nothing and starts nothing but services of the bus.
    """
    async with Bus(connect_for=0.0, patience=PATIENCE) as bus, AsyncExitStack() as stack:
        settings_read = await asyncio.to_thread(read)
        daemon = Daemon(await open_adapters(settings_read, bus, stack, only_plan=True), read)
        # ``Api.plan`` refuses a plan during an update, and reads the phase of the record from this status.
        await first_status(daemon.ports, daemon.report, shared=False)
        answer = plain_json.loads(await daemon.api.plan(text, private=True, **options))
        problems = [asdict(problem) for problem in daemon.report.status.problems]
        return {**answer, "daemon": "stopped", **({"problems": problems} if problems else {})}
