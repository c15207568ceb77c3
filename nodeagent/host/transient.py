"""Run a command outside of the sandbox of the agent, as a transient unit of systemd.

It is for the few programs that need rights which nodeagent.service drops, such as a writable /sysroot. The unit is a
oneshot, so its job ends with the command. After a failure it is kept until its exit status has been read.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from nodeagent.errors import ServiceUnavailable, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.dbus.signals import Signals
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, SERVICE, job_result, subscribed
from nodeagent.reasons import Reason

__all__ = ["run_unit"]

# Seconds that systemd needs to end the unit after its timeout.
_GRACE = 10.0
_MICROSECONDS = 1_000_000


async def run_unit(bus: Bus, command: Sequence[str], description: str, deadline: float) -> None:
    """Run ``command`` (absolute path and arguments). systemd ends it after ``deadline`` seconds.

    Raises ``Terminal`` (``CommandFailed``) with the exit status if it fails.
    """
    name = f"nodeagent-run-{secrets.token_hex(4)}.service"
    properties = [
        ["Description", variant("s", description)],
        ["Type", variant("s", "oneshot")],
        ["ExecStart", variant("a(sasb)", [[command[0], list(command), False]])],
        ["TimeoutStartUSec", variant("t", int(deadline * _MICROSECONDS))],
    ]
    async with subscribed(bus, "JobRemoved") as removed:
        (job,) = await removed.call(
            NAME, PATH, MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", (name, "fail", properties, [])
        )
        result = await job_result(removed, str(job), deadline + _GRACE) or "timeout"
        if result != "done":
            raise await _failure(removed, name, command, result)


async def _failure(removed: Signals, name: str, command: Sequence[str], result: str) -> Terminal:
    status = ""
    try:
        (path,) = await removed.call(NAME, PATH, MANAGER, "GetUnit", "s", (name,))
        (code,) = await removed.call(
            NAME, path, "org.freedesktop.DBus.Properties", "Get", "ss", (SERVICE, "ExecMainStatus")
        )
        status = f", exit status {code}"
        await removed.call(NAME, PATH, MANAGER, "ResetFailedUnit", "s", (name,))
    except ServiceUnavailable:
        # systemd is unavailable, so the result is unknown.
        raise
    except BusFault:
        # The unit is unloaded already; the result must suffice.
        pass
    message = f"{' '.join(command)}: {result}{status}; see journalctl -u {name}"
    return Terminal(message, reason=Reason.COMMAND_FAILED)
