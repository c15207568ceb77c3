# SPDX-License-Identifier: Apache-2.0
"""The pods in the JSON of the status: they are there while something waits for them, and at no other time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any, Final

import pytest

from nodeagent import installed
from nodeagent.door import Door
from nodeagent.errors import Refused
from nodeagent.features.busy_pods.door import DOOR
from nodeagent.features.busy_pods.events import BusyPod, BusyPodsFound, HeldByPods
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.report.part_view import Disruption, PartView
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.report.views.registry import view_of
from nodeagent.update.states import Phase
from tests.features.busy_pods.test_guard import UNKNOWN, BusyHost, longest, started
from tests.update.test_outcomes import outcomes
from tests.world import kill_points
from tests.world.cluster_host import DRAIN, RESTART

pytestmark = pytest.mark.looptime

A: Final = {"namespace": "ci", "name": "a", "selector": "app=backup"}


def shown(host: BusyHost, since: int = 0) -> Any:
    """Return the pods in the status of a process whose events begin with the one of this number."""
    status = functools.reduce(fold, host.world.events[since:], Status())
    return status_to_dict(status, daemon="running")["busy_pods"]


async def held() -> tuple[BusyHost, asyncio.Task[None]]:
    """Return a host with an update that waits for a pod."""
    host = await started()
    host.answers(("ci/a",))
    host.want(DRAIN)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(300)
    assert shown(host) == {"count": 1, "pods": [A], "longest_wait": 0.0}
    return host, task


async def test_the_pods_are_there_until_they_are_gone() -> None:
    host, task = await held()
    many = [f"ci/build-{number:03}" for number in range(99)]
    host.answers(many)
    await asyncio.sleep(70)
    pods = shown(host)
    assert (pods["count"], len(pods["pods"]), pods["pods"][49]["name"]) == (99, 50, "build-049")
    host.answers(())
    await task
    assert (shown(host), outcomes(host)[-1][:2]) == (None, ("drain", "done"))


async def test_they_are_gone_with_the_longest_wait() -> None:
    host, task = await held()
    longest(host, 600)
    await asyncio.sleep(90)
    assert shown(host) == {"count": 1, "pods": [A], "longest_wait": 600.0}
    await task
    assert (shown(host), outcomes(host)[-1][:2]) == (None, ("drain", "done"))


async def test_they_are_gone_with_a_cancelled_update() -> None:
    host, task = await held()
    loop = host.loop
    assert loop is not None

    async def put_back(_digest: str) -> None:
        host.wanted = host.world.current
        loop.look_again()

    await loop.cancel("jane", put_back)
    await task
    assert (shown(host), outcomes(host)[-1][:2]) == (None, ("drain", "cancelled"))


async def test_they_are_gone_with_another_config() -> None:
    host, task = await held()
    host.want(RESTART)
    assert host.loop is not None
    host.loop.look_again()
    await task
    assert (shown(host), outcomes(host)[-1][:2]) == (None, ("restart", "done"))


async def test_they_are_gone_with_the_setting() -> None:
    host, task = await held()
    host.busy.settings = BusyPodSettings()
    await task
    assert (shown(host), outcomes(host)[-1][:2]) == (None, ("drain", "done"))


@pytest.mark.parametrize("cause", ["unknown", "gate"])
async def test_they_are_gone_when_it_waits_for_something_else(cause: str) -> None:
    host, task = await held()
    other = Refused("a reboot by jane", reason=UNKNOWN.reason)
    if cause == "unknown":
        host.answers(UNKNOWN)
    else:
        host.around.gate = other
    await asyncio.sleep(180)
    assert shown(host) is None
    host.answers(("ci/a",))
    host.around.gate = None
    await asyncio.sleep(180)
    assert shown(host) == {"count": 1, "pods": [A], "longest_wait": 0.0}
    host.answers(())
    await task
    assert shown(host) is None


async def test_a_new_process_shows_them_after_its_first_check() -> None:
    host, task = await held()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    since = len(host.world.events)
    host.answers(("ci/b",))
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(0)
    assert shown(host, since) is None
    await asyncio.sleep(120)
    assert shown(host, since)["pods"] == [{**A, "name": "b"}]
    host.answers(())
    await task
    assert shown(host, since) is None


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_nothing_of_them_is_left(power: bool) -> None:
    async def busy() -> BusyHost:
        host = await started()
        host.answers(("ci/a",), (), ("ci/late",), ("ci/late",), ())
        host.want(DRAIN)
        return host

    whole = await busy()
    await whole.settle()
    for fuse in kill_points(whole.world.calls, case=power):
        host = await busy()
        await host.kill_at(fuse, power=power)
        since = len(host.world.events)
        assert shown(host, since) is None, "nothing of it is stored"
        await host.settle()
        assert (host.phase, shown(host, since)) == (Phase.IDLE, None), fuse


class Works:
    """The part of another feature."""


def of_maintenance(*pods: str, waits: str) -> Any:
    """Return the pods in a status with a maintenance that waits, after a check that found ``pods``."""
    view = PartView(
        part=Works,
        key="works",
        to_json=lambda _, __: None,
        disruption=lambda _, __: Disruption(requester="jane", reason="disks", waits=waits),
    )
    found: Sequence[BusyPod] = [BusyPod("ci", name, "app=backup") for name in pods]
    event = BusyPodsFound(HeldByPods(tuple(found), 0.0) if found else None)
    with installed.replaced([DOOR, Door(title="Works", page="works.md", status=(view,))]):
        status = fold(Status().with_part(Works()), event)
        assert view_of(event).sentence(event, status).startswith("busy pods: ")
        return status_to_dict(status, daemon="running")["busy_pods"]


def test_the_pods_of_a_maintenance_are_there_as_well() -> None:
    waits = "BusyPods: 1 pod holds the work on this node off: ci/a"
    assert of_maintenance("a", waits=waits) == {"count": 1, "pods": [A], "longest_wait": 0.0}
    assert of_maintenance("a", waits="") is None
    assert of_maintenance("a", waits="LeaseHeld: an update") is None
    assert of_maintenance(waits=waits) is None
