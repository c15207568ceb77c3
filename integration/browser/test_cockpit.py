"""The Cockpit page: Cockpit's own server, bridge and cockpit.js, the whole daemon, and a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.browser import cockpit
from integration.browser.browser import Page
from integration.browser.cockpit_page import CockpitPage
from tests.agent.whole_daemon import WholeDaemon, source

# They need a browser and Cockpit, which are fetched once.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]


@pytest.fixture
def page(tab: Page) -> CockpitPage:
    return CockpitPage(tab)


def test_cockpit_lists_the_page(cockpit_root: Path) -> None:
    assert "Node agent" in cockpit.listed(cockpit_root)
    program = cockpit_root / "usr/bin/nodeagent"
    program.unlink()
    assert "Node agent" not in cockpit.listed(cockpit_root)
    program.touch()


async def test_the_status_is_live(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running() as client:
            await page.open(address)
            await page.shows("#sentence", "No config was applied yet")
            await client.apply(source("worker-1").text.decode())
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.text("#phase") == "Idle"
            await client.start_maintenance("disk swap", {})
            await client.apply(source("worker-2").text.decode())
            await page.shows("#sentence", "LeaseHeld")
            await page.shows("#what-now", "nodeagent maintenance stop")
            await page.shows("#facts", "Updating to")
            assert await page.run("return document.querySelector('#announce').textContent.startsWith('Leasing: ')")
            assert await page.faults() == []


async def test_a_stopped_daemon_is_reported_and_the_page_continues(
    page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon
) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        await page.open(address)
        await page.shows("#stopped", "nodeagent does not run")
        assert await page.text("#phase") == "Stopped"
        for name in ("worker-1", "worker-2"):
            async with daemon.running() as client:
                await page.hides("#stopped")
                await client.apply(source(name).text.decode())
                await page.shows("#sentence", f"{name} is in force")
            await page.shows("#stopped", "nodeagent does not run")
            assert await page.faults() == []
        # No systemd runs in the root of Cockpit: the failure and the next step are shown.
        await page.click("#start")
        await page.shows("#start-result", "journalctl -u nodeagent.service")


async def test_limited_access_shows_the_status(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=False) as address:
        async with daemon.running() as client:
            await page.open(address, width=390)
            await page.shows("#limited", "administrative access")
            await client.apply(source("worker-1").text.decode())
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.faults() == []
        await page.shows("#stopped", "nodeagent does not run")
        assert await page.disabled("#start")


@pytest.mark.parametrize(("width", "dark"), LOOKS)
async def test_each_look(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon, width: int, dark: bool) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running() as client:
            await client.apply(source("worker-1").text.decode())
            await page.open(address, width=width, dark=dark)
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.faults() == []


async def test_names_of_configs_are_text(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    name = "a.b-" + "c" * 200
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running() as client:
            await client.apply(source(name).text.decode())
            await page.open(address, width=390)
            await page.shows("#sentence", f"{name} is in force")
            assert await page.faults() == []
