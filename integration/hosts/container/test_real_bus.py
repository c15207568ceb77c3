# SPDX-License-Identifier: Apache-2.0
"""The adapters themselves against the real systemd, from outside over its bus: what the fakes of ring 1 claim."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from integration.hosts.container.container_host import Host
from nodeagent.errors import AgentError, Retryable, Unreachable
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd

UNITS = {
    "good": "[Service]\nType=exec\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n",
    "plain": "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n",
    "fails": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
    "hangs": "[Service]\nType=oneshot\nExecStart=/bin/sleep 1000\n",
    "slow": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 3\n",
    "needs": "[Unit]\nRequires=fails.service\nAfter=fails.service\n[Service]\nExecStart=/bin/sleep infinity\n",
    "idle": "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n",
    "refuses": "[Unit]\nRefuseManualStart=yes\n[Service]\nExecStart=/bin/sleep infinity\n",
    "bad": "[Service]\nType=oneshot\n",
    "inst@": "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n",
}

REASONS = [
    ("restart", "good", ""),
    ("reload", "good", ""),
    ("restart", "inst@a-b", ""),
    ("reload", "plain", "JobInvalid"),
    ("reload", "idle", "JobInvalid"),
    ("restart", "refuses", "JobNotApplicable"),
    ("restart", "fails", "JobFailed"),
    ("restart", "needs", "JobDependency"),
    ("restart", "hangs", "JobTimeout"),
    ("restart", "none", "UnitNotFound"),
    ("restart", "bad", "UnitInvalid"),
    ("restart", "masked", "UnitMasked"),
]


def address(host: Host) -> str:
    return f"unix:path=/proc/{host.container.leader}/root/run/dbus/system_bus_socket"


def prepare(host: Host) -> None:
    for name, text in UNITS.items():
        host.write(f"/etc/systemd/system/{name}.service", text)
    host.run(["ln", "-s", "/dev/null", "/etc/systemd/system/masked.service"])
    host.run(["systemctl", "daemon-reload"])
    host.run(["systemctl", "start", "good.service", "plain.service"])


async def reason(work: Awaitable[object]) -> str:
    try:
        await work
    except AgentError as error:
        return error.reason
    return ""


async def test_jobs(host: Host) -> None:
    prepare(host)
    async with Bus(address(host)) as bus:
        systemd = Systemd(bus)
        found = []
        for act, unit, _ in REASONS:
            work = getattr(systemd, act)(f"{unit}.service", 2 if unit == "hangs" else 60)
            found.append((act, unit, await reason(work)))
        assert found == REASONS
        assert "hangs.service" not in host.run(["systemctl", "list-jobs"]).stdout
        assert (await systemd.state("none.service")).load == "not-found"
        assert (await systemd.state("inst@.service")).file == "static"
        before = await systemd.state("good.service")
        # Two requests of one kind are merged, and both are answered.
        await asyncio.gather(systemd.restart("good.service", 60), systemd.restart("good.service", 60))
        after = await systemd.state("good.service")
        assert (after.active, after.type, after.result) == ("active", "exec", "success")
        assert after.invocation_id != before.invocation_id


async def run_beside(host: Host, argv: list[str], work: Callable[[], Awaitable[object]]) -> str:
    """``work``, and ``argv`` on the host while it goes on."""
    task = asyncio.create_task(reason(work()))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(host.run, argv, check=False)
    return await task


@pytest.mark.long
async def test_others_at_work_at_the_same_time(host: Host) -> None:
    prepare(host)
    async with Bus(address(host)) as bus:
        systemd = Systemd(bus)
        for argv, wanted in (
            (["systemctl", "stop", "slow.service"], "JobCanceled"),
            (["systemctl", "daemon-reload"], ""),
            (["systemctl", "daemon-reexec"], ""),
            (["systemctl", "restart", "slow.service"], ""),
        ):
            assert await run_beside(host, argv, lambda: systemd.restart("slow.service", 20)) == wanted
        await asyncio.gather(*(systemd.daemon_reload(20) for _ in range(3)))


async def test_the_connection_outlives_a_reboot_only_as_an_error(host: Host) -> None:
    async with Bus(address(host), connect_for=0.2, patience=20) as bus:
        systemd = Systemd(bus)
        await systemd.daemon_reload(20)
        await asyncio.to_thread(host.power_off)
        with pytest.raises((Retryable, Unreachable)):
            await systemd.restart("good.service", 5)
