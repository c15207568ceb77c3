# SPDX-License-Identifier: Apache-2.0
"""What a pull reports while it runs, and the end of one that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.core.config.image import ContainerImage, parse_image
from nodeagent.core.plan.deployment import StageProgress
from nodeagent.errors import Retryable
from nodeagent.features.bootc.decide.movement import LEAST_BYTES
from nodeagent.features.bootc.pull_watch import PullWatch
from nodeagent.features.bootc.units import PULL, SysrootUnits
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from tests.features.bootc.conftest import QUICK
from tests.features.bootc.fake_ostree import B_DIGEST, FakeOstree
from tests.host.ostree.fake_sysroot import FakeSysroot
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

IMAGE = parse_image(f"quay.io/org/os@{B_DIGEST}")
LAYERS = "ostree/repo/refs/heads/ostree/container/blob"
assert isinstance(IMAGE, ContainerImage)


def units(private_bus: PrivateBus, bus: Bus, host: FakeSysroot, stall: float) -> SysrootUnits:
    make_bus = lambda: Bus(private_bus.address, connect_for=2, patience=20)  # noqa: E731
    return SysrootUnits(Systemd(bus), make_bus, host.root, replace(QUICK, stall=stall))


async def test_one_that_stands_still_is_ended(
    private_bus: PrivateBus, bus: Bus, ostree: FakeOstree, host: FakeSysroot
) -> None:
    ostree.hang = PULL
    ostree.count(PULL, LEAST_BYTES, 0)
    reported: list[StageProgress] = []
    with pytest.raises(Retryable) as caught:
        await units(private_bus, bus, host, 2).pull(IMAGE, reported.append)
    assert (caught.value.reason, "for 2 s" in caught.value.message) == ("PullStalled", True)
    assert ostree.commands == [f"stop {PULL}"]
    assert ostree.systemd.transient_properties[0]["IPAccounting"] is True
    assert reported[0] == StageProgress("Pulling quay.io/org/os")
    assert reported[-1].fetched == LEAST_BYTES


async def followed(
    private_bus: PrivateBus, host: FakeSysroot, looks: int, on_look: Callable[[int], None]
) -> tuple[list[StageProgress], int]:
    """Follow a pull that prints how many layers it needs, for so many looks. Return the reports and the movements.

    ``on_look`` is called in each look, after its counters were read, with its number from 0.
    """
    make_bus = lambda: Bus(private_bus.address, connect_for=2, patience=20)  # noqa: E731
    watch = PullWatch(PULL, "Pulling", make_bus, host.root)
    reported: list[StageProgress] = []
    moved, enough = [], asyncio.Event()

    def note(progress: StageProgress) -> None:
        reported.append(progress)
        if len(reported) >= looks:
            enough.set()

    def read() -> str:
        on_look(len(reported))
        return "layers already present: 5; layers needed: 3 (84.3\xa0MB)\n"

    following = asyncio.create_task(watch.follow(0.01, read, note, lambda: moved.append(1)))
    async with asyncio.timeout(30):
        await enough.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    return reported[:looks], len(moved)


async def test_layers_and_bytes_are_reported(private_bus: PrivateBus, ostree: FakeOstree, host: FakeSysroot) -> None:
    layers = host.root / LAYERS
    await asyncio.to_thread(_layer, layers, 0)
    ostree.count(PULL, 10 * LEAST_BYTES, 0)

    def advance(look: int) -> None:
        _layer(layers, look)
        ostree.count(PULL, (11 + look) * LEAST_BYTES, 0)

    reported, moved = await followed(private_bus, host, 5, advance)
    assert [(each.done, each.total) for each in reported] == [(0, 3), (1, 3), (2, 3), (3, 3), (3, 3)]
    assert [each.fetched for each in reported] == [(10 + look) * LEAST_BYTES for look in range(5)]
    assert moved >= 5


async def test_what_systemd_does_not_count_is_no_reason(
    private_bus: PrivateBus, ostree: FakeOstree, host: FakeSysroot
) -> None:
    reported, moved = await followed(private_bus, host, 3, lambda _look: None)
    assert ([each.fetched for each in reported], moved >= 3) == ([None] * 3, True)


async def test_without_an_answer_of_systemd_nothing_is_known(
    private_bus: PrivateBus, ostree: FakeOstree, host: FakeSysroot
) -> None:
    def fail(_message: object) -> None:
        raise RuntimeError("no answer")

    ostree.systemd.on("GetUnit", fail)
    moved = asyncio.Event()
    watch = PullWatch(PULL, "Pulling", lambda: Bus(private_bus.address, connect_for=2, patience=20), host.root)
    following = asyncio.create_task(watch.follow(0.01, str, lambda _progress: None, moved.set))
    async with asyncio.timeout(30):
        await moved.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def _layer(layers: Path, number: int) -> None:
    layers.mkdir(parents=True, exist_ok=True)
    (layers / f"sha256_3A_{number}").touch()
