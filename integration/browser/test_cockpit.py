# SPDX-License-Identifier: Apache-2.0
"""The Cockpit page: Cockpit's own server, bridge and cockpit.js, the whole daemon, and a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.browser import cockpit
from integration.browser.browser import Page
from integration.browser.cockpit_page import CockpitPage
from tests.agent.whole_daemon import WholeDaemon, source

# They need a browser and Cockpit, which are fetched once.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

# Seconds for all steps with one daemon, on a machine that may be busy.
LIMIT = 200.0
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
        async with daemon.running(LIMIT) as client:
            await page.open(address)
            await page.shows("#sentence", "No config was applied yet")
            await client.apply(source("worker-1").text.decode())
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.text("#phase") == "Idle"
            await client.change("StartMaintenance", "sa{sv}", "disk swap", {})
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
            async with daemon.running(LIMIT) as client:
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
        async with daemon.running(LIMIT) as client:
            await page.open(address, width=390)
            await page.shows("#limited", "administrative access")
            await client.apply(source("worker-1").text.decode())
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.faults() == []
        await page.shows("#stopped", "nodeagent does not run")
        assert await page.disabled("#start")
        await page.enter("#config", "x")
        assert await page.disabled("#preview")


@pytest.mark.parametrize(("width", "dark"), LOOKS)
async def test_each_look(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon, width: int, dark: bool) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await client.apply(source("worker-1").text.decode())
            await page.open(address, width=width, dark=dark)
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.faults() == []


async def test_names_of_configs_are_text(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    name = "a.b-" + "c" * 200
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await client.apply(source(name).text.decode())
            await page.open(address, width=390)
            await page.shows("#sentence", f"{name} is in force")
            assert await page.faults() == []


# The page with this status, for as long as the daemon reports no change.
SHOWN = """
    const [all] = arguments;
    return import('./status.js').then(({ showStatus }) => {
        showStatus({ Phase: 'Verifying', Reason: 'OnTrial', Message: 'on trial', Hint: '', Step: '', Percent: 0,
            Current: '', Desired: 'worker-2', Target: 'worker-2', Since: all.since, RebootRequired: false,
            DriftedEntries: 0, Problems: [],
            Version: all.version, Status: JSON.stringify(all) });
        return document.querySelector('#facts').innerText;
    });
"""


async def test_a_trial_is_shown_as_in_the_status(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=False) as address:
        async with daemon.running(LIMIT) as client:
            await page.open(address, width=390)
            status = await client.status()
            # A trial needs a config that changes the host, and this one is the machine of the test.
            for kept_by, words in (("", "then back to worker-1, unless it is kept"), ("jane", "kept by jane")):
                trial = {"config": "worker-2", "back": "worker-1", "until": "2026-11-21T03:20:00Z", "kept_by": kept_by}
                facts = await page.run(SHOWN, {**status, "trial": trial})
                assert "On trial\nworker-2, until " in facts
                assert words in facts
            assert "On trial" not in await page.run(SHOWN, status)
            assert await page.faults() == []


PLANNED = source("worker-2", {"/etc/nodeagent-page-test": "one%0Atwo%0A"}).text.decode()


async def test_a_preview_has_values_and_the_diff(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await client.apply(source("worker-1").text.decode())
            await page.open(address, width=390, dark=True)
            await page.shows("#sentence", "worker-1 is in force")
            assert await page.disabled("#preview")
            await page.enter("#config", PLANNED)
            assert await page.disabled("#apply")
            await page.click("#preview")
            await page.shows("#result .notice", "worker-1 → worker-2: reboot")
            await page.shows("#result .changes", "added file:/etc/nodeagent-page-test")
            await page.run("document.querySelector('#result details').open = true")
            await page.shows("#result pre", "+two")
            assert await page.faults() == []
            # Another text has no preview yet.
            await page.enter("#config", PLANNED + "# \n")
            assert await page.disabled("#apply")
            assert await page.text("#result") == ""


LARGE = {f"/etc/kubernetes/static-pod-resources/{index}.yaml": "one%0Atwo%0A" for index in range(300)}
# Pixels. A preview had 36,000.
BEARABLE = 3000


async def test_a_preview_of_300_files(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await client.apply(source("worker-1").text.decode())
            await page.open(address)
            await page.shows("#sentence", "worker-1 is in force")
            await page.enter("#config", source("worker-2", LARGE).text.decode())
            await page.click("#preview")
            await page.shows("#result .changes", "added 300 files below /etc/kubernetes/static-pod-resources")
            assert await page.run("return document.getElementById('result').scrollHeight") < BEARABLE
            assert await page.faults() == []
            await page.click("#result .changes summary")
            await page.shows("#result .changes", "added file:/etc/kubernetes/static-pod-resources/299.yaml")


@pytest.mark.finding(
    "users: history in Cockpit", "A change of rights ends no call, and the history is read again after it."
)
async def test_a_change_of_rights_ends_no_call(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await client.apply(source("worker-1").text.decode())
            await page.open(address)
            await page.shows("#sentence", "worker-1 is in force")
            script = """
                return import('./bus.js').then(({ Caller }) => {
                    const caller = new Caller();
                    const before = caller.call('History', 20);
                    caller.renew();
                    return Promise.all([before, caller.call('History', 20)]);
                }).then(() => 'answered', error => error.reason);
            """
            assert await page.run(script) == "answered"


async def test_each_problem_of_a_config_is_shown(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    bad = source("<img src=x>", {"relative": "1", "/etc/a/../b": "2"}).text.decode()
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT):
            await page.open(address)
            await page.enter("#config", bad)
            await page.click("#preview")
            await page.shows("#result .notice", "What now:")
            assert await page.run("return document.querySelectorAll('#result li').length") >= 2
            assert await page.run("return document.querySelectorAll('#result img').length") == 0
            assert await page.disabled("#apply")
            assert await page.faults() == []


async def test_an_update_is_applied_and_cancelled(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await page.open(address)
            await page.enter("#config", source("worker-1").text.decode())
            await page.click("#preview")
            await page.click("#apply")
            await page.shows("#confirm", "Apply worker-1?")
            assert await page.faults() == []
            await page.click("#confirm-no")
            await page.hides("#confirm")
            assert (await client.status())["desired"] == ""
            await page.click("#apply")
            await page.click("#confirm-yes")
            await page.shows("#sentence", "worker-1 is in force")
            await page.hides("#cancel")
            await client.change("StartMaintenance", "sa{sv}", "disk swap", {})
            await client.apply(source("worker-2").text.decode())
            await page.shows("#sentence", "LeaseHeld")
            await page.click("#cancel")
            await page.shows("#confirm", "Cancel the update to worker-2?")
            await page.click("#confirm-yes")
            await page.shows("#sentence", "worker-1 is in force")
            assert (await client.status())["desired"] == "worker-1"


async def test_the_previous_config_comes_back(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await page.open(address)
            await page.shows("#sentence", "No config was applied yet")
            await page.hides("#rollback")
            await client.apply(source("worker-1").text.decode())
            await page.shows("#sentence", "worker-1 is in force")
            await page.click("#rollback")
            await page.shows("#rollback-result", "NoPrevious")
            await page.shows("#rollback-result", "What now: ")
            await client.apply(source("worker-2").text.decode())
            await page.shows("#sentence", "worker-2 is in force")
            await page.click("#rollback")
            await page.shows("#confirm", "Roll back worker-2?")
            await page.shows("#confirm", "worker-2 → worker-1")
            assert await page.faults() == []
            await page.click("#confirm-no")
            await page.hides("#confirm")
            assert (await client.status())["desired"] == "worker-2"
            await page.click("#rollback")
            await page.click("#confirm-yes")
            await page.shows("#sentence", "worker-1 is in force")
            assert (await client.status())["desired"] == "worker-1"


async def test_limited_access_cannot_change_an_update(
    page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon
) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=False) as address:
        async with daemon.running(LIMIT) as client:
            await client.apply(source("worker-1").text.decode())
            await page.open(address)
            await page.shows("#sentence", "worker-1 is in force")
            await page.shows("#rollback", "Roll back")
            assert await page.disabled("#rollback")
            await page.enter("#config", source("worker-3").text.decode())
            assert await page.disabled("#preview")
            assert await page.disabled("#apply")
            await client.change("StartMaintenance", "sa{sv}", "disk swap", {})
            await client.apply(source("worker-2").text.decode())
            await page.shows("#sentence", "LeaseHeld")
            await page.shows("#cancel", "Cancel the update")
            assert await page.disabled("#cancel")
            await page.hides("#rollback")
            assert await page.faults() == []


async def test_a_request_outlives_the_session(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    """The session ends while an update waits, and another one cancels it."""
    async with daemon.running(LIMIT) as client:
        with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
            await page.open(address)
            await client.apply(source("worker-1").text.decode())
            await page.shows("#sentence", "worker-1 is in force")
            await client.change("StartMaintenance", "sa{sv}", "disk swap", {})
            await page.enter("#config", source("worker-2").text.decode())
            await page.click("#preview")
            await page.click("#apply")
            await page.click("#confirm-yes")
            await page.shows("#sentence", "LeaseHeld")
        await page.shows("#lost", "An update goes on without this page")
        for button in ("#preview", "#apply", "#cancel", "#rollback", "#maintenance-start", "#maintenance-stop"):
            assert await page.disabled(button), button
        assert (await client.status())["target"] == "worker-2"
        with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
            await page.open(address)
            await page.shows("#sentence", "LeaseHeld")
            await page.click("#cancel")
            await page.click("#confirm-yes")
            await page.shows("#sentence", "worker-1 is in force")
        assert (await client.history(1))[0]["outcome"] == "cancelled"


async def test_a_maintenance_is_started_and_stopped(page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=True) as address:
        async with daemon.running(LIMIT) as client:
            await page.open(address)
            await page.shows("#maintenance-now", "not in maintenance")
            await page.enter("#maintenance-reason", "disk swap")
            await page.click("#maintenance-start")
            await page.shows("#maintenance-now", 'root has this host for "disk swap" (under way)')
            assert await page.faults() == []
            await page.click("#maintenance-stop")
            await page.shows("#maintenance-now", "not in maintenance")
            assert (await client.status())["maintenance"] is None


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_history_has_a_time_line(
    page: CockpitPage, cockpit_root: Path, daemon: WholeDaemon, width: int
) -> None:
    with cockpit.session(cockpit_root, daemon.directory, admin=False) as address:
        async with daemon.running(LIMIT) as client:
            await page.open(address, width=width)
            await page.shows("#history-result", "No update yet")
            await client.apply(source("worker-1").text.decode())
            await page.shows("#history", "nothing → worker-1")
            await page.run("document.querySelector('#history details').open = true")
            await page.shows("#history .timeline", "Verifying")
            named = await page.run(
                "return [...document.querySelectorAll('.timeline .phase .what')].map(e => e.innerText)"
            )
            trail = (await client.update(""))["trail"]
            assert named == [phase["name"] for phase in trail["phases"]]
            assert await page.faults() == []
