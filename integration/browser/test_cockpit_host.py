# SPDX-License-Identifier: Apache-2.0
"""The Cockpit page on a systemd host with the package: real log-in, sudo, D-Bus policy, and a reboot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from integration.browser import cockpit, cockpit_host
from integration.browser.browser import Page
from integration.browser.cockpit_page import CockpitPage
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import (
    HostMaker,
    image,
    make_host,
    package,
    pytest_runtest_makereport,
    required,
    say,
)
from integration.hosts.container.container_host import Host
from integration.hosts.container.package import installed_image
from integration.hosts.nodeagent_client import machine_config
from integration.hosts.requirements import Say

__all__ = ["image", "make_host", "package", "pytest_runtest_makereport", "say"]

# They need a browser and Cockpit, which are fetched once.
pytestmark = [pytest.mark.host, pytest.mark.long, pytest.mark.timeout(1200)]

# A path without an entry of the policy: the default is a reboot.
UNLISTED = "/etc/unlisted"


@pytest.fixture
def page(tab: Page) -> CockpitPage:
    return CockpitPage(tab)


@pytest.fixture
def cockpit_host_node(make_host: HostMaker, package: Path, say: Say) -> Iterator[Host]:
    """A booted host with Cockpit and the package, the agent at rest, which has never seen a config."""
    with ExitStack() as stack:
        with_cockpit = required(lambda: cockpit.cockpit_image(say))
        stack.callback(with_cockpit.close)
        installed = installed_image(with_cockpit, package)
        stack.callback(installed.layers[-1].lock.close)
        host = make_host(installed)
        agent.settings(host)
        cockpit_host.set_password(host)
        host.boot()
        agent.wait_daemon(host)
        yield host


@pytest.fixture
def cockpit_address(cockpit_host_node: Host) -> Iterator[str]:
    """The address of Cockpit on the host, in each of its boots."""
    with cockpit_host.relay(cockpit_host_node) as address:
        yield address


async def log_in(page: CockpitPage, address: str, *, admin: bool, width: int = 1280) -> None:
    await asyncio.to_thread(page.tab.look, width)
    await asyncio.to_thread(cockpit_host.log_in, page.tab, address, admin=admin)
    await page.loaded()


async def test_an_administrator_stops_and_starts_the_daemon(
    page: CockpitPage, cockpit_host_node: Host, cockpit_address: str
) -> None:
    host = cockpit_host_node
    await log_in(page, cockpit_address, admin=True)
    await page.shows("#sentence", "No config was applied yet")
    agent.apply(host, machine_config("worker-1"))
    await page.shows("#sentence", "worker-1 is in force")
    host.run(["systemctl", "stop", agent.UNIT])
    await page.shows("#stopped", "nodeagent does not run")
    await page.click("#start")
    agent.wait_daemon(host)
    await page.hides("#stopped")
    assert await page.faults() == []


async def call(page: CockpitPage, method: str, *arguments: Any) -> list[str]:
    """Call a method with the rights of the session, past the buttons. Return the name and the message of the error."""
    found: list[str] = await page.run(
        """
        const client = cockpit.dbus('org.nodeagent.Agent1', {bus: 'system', superuser: 'try'});
        return client.call('/org/nodeagent/Agent1', 'org.nodeagent.Agent1.Manager', arguments[0], arguments[1])
            .then(() => [], error => [error.name, error.message])
            .finally(() => client.close());
        """,
        method,
        arguments,
    )
    return found


async def test_polkit_refuses_the_changes_of_a_limited_session(
    page: CockpitPage, cockpit_host_node: Host, cockpit_address: str
) -> None:
    """The same user cancels the update as an administrator, with his password for sudo."""
    host = cockpit_host_node
    agent.apply(host, machine_config("worker-1"))
    agent.wait_done(host, "worker-1")
    host.run(["nodeagent", "maintenance", "start", "--reason", "disk swap"])
    update = machine_config("worker-2", files={UNLISTED: "x\n"})
    agent.apply(host, update)

    await log_in(page, cockpit_address, admin=False)
    await page.shows("#limited", "you need administrative access")
    await page.shows("#sentence", "LeaseHeld")
    await page.shows("#history", "worker-1")
    buttons = ("#cancel", "#preview", "#apply", "#maintenance-stop", "#rollback", "#start")
    assert [await page.disabled(each) for each in buttons] == [True] * len(buttons)
    for method, arguments, action in (
        ("Apply", (update, {}), "apply"),
        ("Cancel", ({},), "cancel"),
        ("Reboot", ({},), "reboot"),
        ("Rollback", ({},), "rollback"),
        ("StopMaintenance", (), "maintenance"),
        ("Reload", (), "reload"),
        ("Plan", (update, {}), "verify"),
        ("Verify", (), "verify"),
    ):
        refused = await call(page, method, *arguments)
        message = f"polkit does not allow org.nodeagent.agent1.{action}"
        assert refused == ["org.nodeagent.Error.NotAuthorized", message], method
    assert await call(page, "History", 1) == []
    assert agent.status(host)["target"] == "worker-2"
    assert await page.faults() == []

    await log_in(page, cockpit_address, admin=True)
    await page.hides("#limited")
    await page.click("#cancel")
    await page.shows("#confirm", "Cancel the update to worker-2?")
    await page.click("#confirm-yes")
    assert agent.wait_outcome(host, "worker-2")["outcome"] == "cancelled"
    assert await call(page, "Verify") == []
    await page.click("#maintenance-stop")
    await page.shows("#maintenance-now", "not in maintenance")


async def test_limited_access_shows_the_status_over_a_reboot(
    page: CockpitPage, cockpit_host_node: Host, cockpit_address: str
) -> None:
    host = cockpit_host_node
    await log_in(page, cockpit_address, admin=False, width=390)
    await page.shows("#limited", "administrative access")
    agent.apply(host, machine_config("worker-1"))
    await page.shows("#sentence", "worker-1 is in force")
    assert await page.faults() == []
    with host.rebooting():
        agent.apply(host, machine_config("worker-2", files={UNLISTED: "x\n"}))
        # The shell around the page offers to log in again; alone, the page reports the lost connection.
        await page.shows("#lost", "log in again")
    agent.wait_done(host, "worker-2")
    await log_in(page, cockpit_address, admin=False)
    await page.shows("#sentence", "worker-2 is in force")
