# SPDX-License-Identifier: Apache-2.0
"""A config on trial, on the host in memory: kept, not kept, killed at each effect, and rebooted."""

from __future__ import annotations

import asyncio
from dataclasses import fields

import pytest

from nodeagent.core.config.file_tree import expand
from nodeagent.errors import Refused
from nodeagent.features.trial.decide import Login
from nodeagent.features.trial.events import TrialBegun, TrialEnding, TrialKept, TrialNotKept
from nodeagent.features.trial.reasons import TrialReason
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.states import Phase
from tests.agent.test_api import DESIRED, api
from tests.features.trial.trials import TrialHost, at_old, new_login
from tests.update.test_kills import BUSY, OLD, REBOOTING
from tests.update.test_outcomes import outcomes, status
from tests.world import kill_points, os_host
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime


def count(host: TrialHost, kind: type) -> int:
    return sum(isinstance(event, kind) for event in host.world.events)


def at_old_again(host: TrialHost) -> bool:
    """Return whether the host has everything of the old config, and says why."""
    disk = {path: node for path, node in host.world.disk.items() if path != DESIRED}
    return (
        (host.phase, host.record.reason, disk) == (Phase.DEGRADED, Reason.REVERTED, expand(OLD))
        and host.configs[host.world.current].name == "old"
        and host.world.holder is None
        and host.world.snapshots == {}
    )


def has_busy(host: TrialHost) -> bool:
    return (host.phase, host.world.disk, host.configs[host.world.current].name, host.world.holder) == (
        Phase.IDLE,
        expand(BUSY),
        "busy",
        None,
    )


async def test_a_config_that_no_login_keeps_is_taken_back() -> None:
    host = await at_old()
    host.try_busy(600)
    task = await host.until_trial()
    began = asyncio.get_running_loop().time()
    assert (host.world.disk, host.configs[host.world.current].name) == (expand(BUSY), "old")
    assert status(host).reason == TrialReason.ON_TRIAL
    await task
    assert asyncio.get_running_loop().time() - began >= 595
    assert at_old_again(host)
    assert (outcomes(host)[-1], host.world.history[-1].reason) == (("busy", "reverted", 1), TrialReason.NOT_KEPT)
    assert "no new login kept busy within 10 min" in host.record.message
    assert [count(host, kind) for kind in (TrialBegun, TrialEnding, TrialKept, TrialNotKept)][1:] == [1, 0, 1]
    assert [waits.reason for waits in host.world.events if isinstance(waits, UpdateWaiting)][:1] == ["OnTrial"]
    # The desired file still has it, and it is not applied again without a request.
    await host.settle()
    assert at_old_again(host)
    await host.ask()
    assert has_busy(host)


async def test_a_new_login_keeps_it() -> None:
    host = await at_old(keeps=True)
    host.try_busy()
    await host.settle()
    assert has_busy(host)
    assert outcomes(host)[-1] == ("busy", "done", 0)
    assert "kept by jane" in host.world.history[-1].message
    assert (count(host, TrialKept), count(host, TrialNotKept)) == (1, 0)


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (Login("2", "sshd", "user", began=0.5, remote_host="192.0.2.7"), TrialReason.OLD_LOGIN),
        (Login("9", "systemd-run0", "user", began=1e9), TrialReason.OLD_LOGIN),
        (None, TrialReason.NO_LOGIN),
    ],
    ids=["an old ssh connection", "run0 in it", "a job of cron"],
)
async def test_what_proves_nothing_does_not_keep_it(login: Login | None, reason: TrialReason) -> None:
    host = await at_old()
    host.try_busy()
    task = await host.until_trial()

    async def session() -> Login | None:
        return login

    assert host.trials is not None
    with pytest.raises(Refused) as refused:
        await host.trials.keep("root", session)
    assert refused.value.reason == reason
    await task
    assert at_old_again(host)


async def test_root_may_keep_it_without_a_login() -> None:
    host = await at_old()
    host.try_busy()
    task = await host.until_trial()
    assert host.trials is not None
    await host.trials.keep("root", None)
    await task
    assert has_busy(host)


async def test_an_operator_takes_it_back_before_its_time() -> None:
    host = await at_old()
    host.try_busy(86400)
    task = await host.until_trial()
    began = asyncio.get_running_loop().time()
    assert host.trials is not None
    await host.trials.take_back("jane")
    await task
    assert asyncio.get_running_loop().time() - began < 60
    assert at_old_again(host)
    assert "jane ended the trial of busy" in host.record.message


async def test_without_a_trial_there_is_nothing_to_keep() -> None:
    host = await at_old(keeps=True)
    host.try_busy()
    await host.settle()
    assert host.trials is not None
    for decide in (host.trials.keep("jane", new_login), host.trials.take_back("jane")):
        with pytest.raises(Refused) as refused:
            await decide
        assert refused.value.reason == TrialReason.NO_TRIAL


async def test_a_config_that_changes_nothing_has_no_trial() -> None:
    host = await at_old()
    host.wanted = host.add(config("same", {"/etc/web/x": "1", "/etc/app/x": "1", "/etc/quiet/gone": "1"}))
    request = host.request().held(Hold("", requester="root", options={"trial": "600"}))
    host.world.request = request
    await host.settle()
    assert (outcomes(host)[-1], count(host, TrialBegun)) == (("same", "done", 0), 0)


async def test_a_request_is_refused_while_a_config_is_on_trial() -> None:
    host = await at_old()
    host.try_busy()
    task = await host.until_trial()
    asked = api(host, Phase.VERIFYING, loop=host.loop)
    for request in (asked.apply(host.add(OLD)), asked.apply(host.wanted), asked.rollback()):
        with pytest.raises(Refused) as refused:
            await request
        assert refused.value.reason == TrialReason.ON_TRIAL
    await task
    assert at_old_again(host)


async def test_no_config_is_tried_where_the_settings_keep_a_bad_one() -> None:
    host = await at_old()
    host.limits = type(host.limits)(revert=False)
    with pytest.raises(Refused) as refused:
        await api(host).apply(host.add(BUSY), hold=Hold("", requester="root", options={"trial": "600"}))
    assert refused.value.reason == TrialReason.NO_WAY_BACK
    await api(host).apply(host.add(BUSY))


async def test_a_newer_config_waits_for_the_end_of_the_trial() -> None:
    host = await at_old()
    host.try_busy()
    task = await host.until_trial()
    newer = config("newer", {"/etc/web/x": "3"})
    host.want(newer)
    await asyncio.sleep(300)
    assert host.world.disk == expand(BUSY)
    await task
    await host.settle()
    assert [(name, outcome) for name, outcome, _ in outcomes(host)[-2:]] == [("busy", "reverted"), ("newer", "done")]
    assert host.world.disk == expand(newer)


async def test_its_time_goes_on_while_the_agent_is_dead_and_begins_again_with_a_boot() -> None:
    host = await at_old()
    host.try_busy(600)
    task = await host.until_trial()
    note = host.world.notes["trial"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(400)
    began = asyncio.get_running_loop().time()
    await (await host.until_trial())
    assert 100 < asyncio.get_running_loop().time() - began < 250
    assert at_old_again(host)

    host = await at_old()
    host.try_busy(600)
    task = await host.until_trial()
    assert host.world.notes["trial"] != note
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(400)
    host.world.power_cut()
    began = asyncio.get_running_loop().time()
    await host.settle()
    assert asyncio.get_running_loop().time() - began >= 595
    assert at_old_again(host)


async def test_it_is_kept_while_a_restarted_agent_verifies_again() -> None:
    host = await at_old()
    host.try_busy()
    task = await host.until_trial()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.build()
    assert host.trials is not None
    await host.trials.keep("jane", new_login)
    host.world.power_cut()
    await host.settle()
    assert has_busy(host), "what was decided before the power cut counts after it"


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize("keeps", [False, True], ids=["not kept", "kept"])
async def test_killed_at_every_point(keeps: bool, power: bool) -> None:
    async def tried() -> TrialHost:
        host = await at_old(keeps=keeps)
        host.try_busy()
        return host

    whole = await tried()
    await whole.settle()
    total = whole.world.calls
    assert total > 40
    for fuse in kill_points(total, case=2 * keeps + power):
        host = await tried()
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert has_busy(host) if keeps else at_old_again(host), f"fuse {fuse}: {host.record}"
        assert len([entry for entry in host.world.history if entry.to_name == "busy"]) == 1


async def test_the_way_back_reboots_where_the_config_did() -> None:
    host = await at_old()
    host.try_busy()
    host.wanted = host.add(REBOOTING)
    host.world.request = host.request().held(Hold("", requester="root", options={"trial": "600"}))
    await host.settle()
    assert at_old_again(host)
    assert host.actions().count("reboot") == 2


@pytest.mark.parametrize("keeps", [False, True], ids=["not kept", "kept"])
async def test_the_previous_os_boots_again_without_its_image(keeps: bool) -> None:
    old = await os_host.at_old()
    host = TrialHost(**{field.name: getattr(old, field.name) for field in fields(Host)}, keeps=keeps)
    host.wanted = host.add(os_host.NEW)
    host.world.request = host.request().held(Hold("", requester="root", options={"trial": "600"}))
    task = asyncio.create_task(host.settle())
    while not host.world.notes.get("trial"):
        await asyncio.sleep(0.2)
    assert os_host.booted_digest(host.world) == os_host.B_DIGEST
    await task
    assert os_host.booted_digest(host.world) == (os_host.B_DIGEST if keeps else os_host.A_DIGEST)
    # On the way back once to the old OS, and once because services of that boot had read files of the new config.
    assert host.actions().count("reboot") == (1 if keeps else 3)
    assert outcomes(host)[-1] == (("new", "done", 0) if keeps else ("new", "reverted", 1))
