"""The daemon: builds the adapters, wires them to the loop, and lives until it is told to stop.

The only place that knows every room. No decision is made here.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from nodeagent import __version__, log
from nodeagent.agent.api import Api
from nodeagent.agent.context import Limits, Ports
from nodeagent.agent.executor import Executor
from nodeagent.agent.loop import Loop
from nodeagent.agent.preflight import Desired, Preflight
from nodeagent.agent.report import Report, ReportedLease
from nodeagent.agent.sinks import to_journal, to_notify
from nodeagent.core.events import Event, EventKind
from nodeagent.core.machineconfig import ConfigSource
from nodeagent.core.parse import parse
from nodeagent.core.policy import Policy, merge
from nodeagent.core.policy_parse import parse_policy
from nodeagent.core.status import Status
from nodeagent.domains import default_policy
from nodeagent.errors import AgentError
from nodeagent.host import adopt, config_file
from nodeagent.host.bus import Bus
from nodeagent.host.checkers import HostValidator
from nodeagent.host.clock import SystemClock
from nodeagent.host.files import HostFiles
from nodeagent.host.lease import LocalLease
from nodeagent.host.logind import Logind
from nodeagent.host.notify import Notifier
from nodeagent.host.store import SqliteStore
from nodeagent.host.systemd import Systemd
from nodeagent.host.users import HostUsers
from nodeagent.settings import Settings, load

__all__ = ["run"]


def limits(settings: Settings) -> Limits:
    return Limits(
        action_timeout=settings.actions.timeout,
        daemon_reload_timeout=settings.actions.daemon_reload_timeout,
        settle=settings.actions.settle,
        verify_timeout=settings.verify.timeout,
        lease_retry=settings.lease.retry,
        inhibitor_wait=settings.reboot.inhibitor_wait,
        inhibitor_override=settings.reboot.inhibitor_override,
        warn_users=settings.reboot.warn_users,
        reboot_grace=settings.reboot.grace,
        may_reboot=settings.reboot.allow,
        revert=settings.on_failure == "revert",
    )


async def parse_desired(text: bytes) -> Desired:
    """Off the loop: ten megabytes take a tenth of a second."""
    config = await asyncio.to_thread(parse, text)
    return Desired(ConfigSource(config.name, hashlib.sha256(text).hexdigest(), text), config)
