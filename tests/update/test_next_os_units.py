# SPDX-License-Identifier: Apache-2.0
"""Units of the incoming OS are enabled so that they are on in its first boot."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.errors import Terminal
from nodeagent.update.states import Phase
from tests.world import FakeUnit, Fault
from tests.world.os_host import A_DIGEST, B_DIGEST, at_old, bad_on, booted_digest, on, only_on
from tests.world.run import Host

pytestmark = pytest.mark.looptime

RELEASE = UnitEntry("release-b.service", enabled=True)
WITHOUT, OLD, NEW = on("a", "old"), on("a", "old", units=[RELEASE]), on("b", "new", units=[RELEASE])


async def with_unit(*, known: bool = False) -> Host:
    host = await at_old(OLD if known else WITHOUT)
    only_on(host.world, B_DIGEST, RELEASE.name)
    return host


@pytest.mark.finding(
    "units: unit files of a staged OS",
    "A unit of the next OS is enabled by the config that brings the OS, in one reboot.",
)
@pytest.mark.finding(
    "units: units of the next OS", "A unit of the next OS is enabled by the config that brings the OS, in one reboot."
)
@pytest.mark.parametrize("known", [False, True], ids=["a new entry", "an entry from before"])
async def test_a_unit_of_the_next_os_is_on_in_its_first_boot(*, known: bool) -> None:
    host = await with_unit(known=known)
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.world.boot) == (Phase.IDLE, B_DIGEST, 2)
    unit = host.world.units[RELEASE.name]
    assert (unit.file, unit.active) == ("enabled", "active")
    assert (host.world.history[-1].outcome, host.world.history[-1].message) == ("done", "")


@pytest.mark.finding("units: unit files of a staged OS", "A unit that the next OS lacks as well is a warning.")
async def test_a_unit_that_the_next_os_lacks_as_well() -> None:
    host = await at_old(WITHOUT)
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.world.boot) == (Phase.IDLE, B_DIGEST, 2)
    message = host.world.history[-1].message
    assert "there is no unit release-b.service on this host, in the config or in the next OS" in message


@pytest.mark.finding(
    "units: unit files of a staged OS",
    "A drop-in of a unit that the next OS lacks as well is a warning before the reboot.",
)
@pytest.mark.parametrize("shipped", [True, False])
async def test_a_drop_in_of_a_unit_that_the_next_os_lacks_as_well(*, shipped: bool) -> None:
    host = await (with_unit() if shipped else at_old(WITHOUT))
    path = "/etc/systemd/system/release-b.service.d/10.conf"
    entry = UnitEntry("release-b.service", dropins={"10.conf": "[Service]\nNice=1\n"})
    host.want(on("b", "new", units=[entry]))
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.world.boot) == (Phase.IDLE, B_DIGEST, 2)
    warning = f"warning: {path} there is no unit release-b.service on this host, in the config or in the next OS"
    assert host.world.history[-1].message == ("" if shipped else warning)


@pytest.mark.finding("units: unit files of a staged OS", "A revert takes the links of units of the next OS back.")
async def test_a_revert_takes_its_links_back() -> None:
    host = await with_unit()
    host.world.units["app.service"] = FakeUnit()
    bad_on(host.world, B_DIGEST)
    host.want(on("b", "new", {"/etc/app/x": "2"}, units=[RELEASE]))
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.DEGRADED, A_DIGEST)
    assert host.world.units[RELEASE.name].file == "disabled"
    assert host.world.links == {}


async def test_a_tree_that_cannot_be_read_costs_a_reboot_at_most() -> None:
    host = await with_unit()
    host.world.faults.append(Fault("unit files of another OS", Terminal("it cannot be read")))
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.world.units[RELEASE.name].file == "enabled"
    assert "units of the next OS are enabled after the boot: it cannot be read" in host.world.history[-1].message
