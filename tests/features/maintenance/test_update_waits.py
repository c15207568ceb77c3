# SPDX-License-Identifier: Apache-2.0
"""Maintenance of the whole daemon, on a private bus."""

from __future__ import annotations

import asyncio

from nodeagent.host.dbus.client import Bus
from tests.agent.report.test_motd import host, until_motd
from tests.agent.whole_daemon import PATIENCE, WholeDaemon, source
from tests.support.fixtures import private_bus
from tests.support.needs import acts_as_root

__all__ = ["host", "private_bus"]

DAEMON = ("org.nodeagent.Agent1", "/org/nodeagent/Agent1", "org.freedesktop.DBus.Properties")


@acts_as_root
async def test_an_update_waits_until_it_ends(host: WholeDaemon) -> None:
    async with host.running() as client, Bus(host.address) as bus, asyncio.timeout(PATIENCE):
        await client.change("StartMaintenance", "sa{sv}", "disk swap", {})
        await client.apply(source("a").text.decode())
        assert "updating to a" in await until_motd(host.motd, "LeaseHeld")
        (values,) = await bus.call(*DAEMON, "GetAll", "s", ("org.nodeagent.Agent1.Status",))
        assert values["Maintenance"] == "under way"
        await client.request("StopMaintenance")
        await until_motd(host.motd, "")
        assert (await client.status())["maintenance"] is None
