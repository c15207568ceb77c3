# SPDX-License-Identifier: Apache-2.0
"""Updates while rpm-ostreed does not answer, and requests of an operator."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.errors import Retryable, Unreconcilable
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Lasting
from nodeagent.update.ports.events import ConfigRefused, UpdateWaiting
from nodeagent.update.states import Phase
from tests.world import FakeDeployments, FakeUnit, Fault, World, lost_answer
from tests.world.os_host import (
    A_DIGEST,
    B_DIGEST,
    MORE,
    NEW,
    at_old,
    booted_digest,
    on,
    os_host,
)
from tests.world.run import Host, config, until

# Turns with a transient fault that refuse nothing yet.
PASSED = 2

pytestmark = pytest.mark.looptime


async def test_slow_rpm_ostreed_after_boot() -> None:
    host = await at_old()
    host.world.faults.append(Fault("list deployments", lost_answer(), times=8, when=lambda: host.world.boot > 1))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["reboot"])


async def test_file_update_is_verified_without_rpm_ostreed() -> None:
    host = await at_old(on("a", "old"))
    host.want(on("a", "files", {"/etc/app/x": "2"}))
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=10_000))
    await task
    assert (host.phase, host.actions()) == (Phase.IDLE, ["restart app.service"])


@pytest.mark.parametrize(
    "error", [Retryable("hangs", reason=Reason.BUS_TIMEOUT), Unreconcilable("bootc", reason=Reason.NO_DEPLOYMENTS)]
)
async def test_file_update_does_not_wait_for_rpm_ostreed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be what repairs it. What needs it is refused."""

    async def fail(_self: FakeDeployments) -> list[object]:
        raise error

    host = await at_old()
    monkeypatch.setattr(FakeDeployments, "list", fail)
    host.want(on("a", "files", {"/etc/app/x": "2"}))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["restart app.service"])
    host.want(NEW)
    loop = host.build()
    for _ in range(PASSED + 1):
        await loop.turn()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, error.reason)  # type: ignore[attr-defined]


async def test_first_start_waits_for_rpm_ostreed() -> None:
    """The first start needs the answer of rpm-ostreed. Later the OS is known, and an update of files does without."""
    host = os_host()
    host.world.faults.append(Fault("list deployments", lost_answer(), times=1000))
    host.want(on("b", "first"))
    loop = host.build()
    began = asyncio.get_running_loop().time()
    while host.phase is Phase.IDLE:
        await asyncio.sleep(await loop.turn() or 0)
    assert asyncio.get_running_loop().time() - began >= host.limits.service_wait
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "BusTimeout")
    host.world.repair("list deployments")
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_transient_error_is_not_reported_as_refusal() -> None:
    """A lost bus, as at each power cut and restart of systemd, needs no operator."""
    host = os_host()
    host.world.faults.append(Fault("list deployments", lost_answer(), times=PASSED))
    host.want(on("b", "first"))
    loop = host.build()
    assert [await loop.turn() for _ in range(PASSED)] == [2.2, 4.4]
    assert host.phase is Phase.IDLE
    found = [event for event in host.world.events if isinstance(event, UpdateWaiting)]
    assert [event.reason for event in found] == ["BusTimeout"]
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert ConfigRefused not in {type(event) for event in host.world.events}


async def test_operator_request_survives_transient_error() -> None:
    host = await at_old()
    host.want(NEW)
    host.world.record = record_to_dict(replace(host.record, lasting=Lasting(rolled_back_digest=host.wanted)))
    loop = host.build()
    await loop.turn()
    assert host.record.reason == "RolledBack"
    host.requested(loop)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=1))
    assert await loop.turn() is not None
    await host.turn_and_settle(loop)
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_operator_request_is_for_one_config() -> None:
    host = await at_old()
    host.want(NEW)
    host.world.record = record_to_dict(replace(host.record, lasting=Lasting(rolled_back_digest=host.wanted)))
    host.want(MORE)
    loop = host.build()
    host.requested(loop)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=1))
    assert await loop.turn() is not None
    host.want(NEW)  # something writes it there again
    await loop.turn()
    assert (host.phase, host.record.reason, booted_digest(host.world)) == (Phase.DEGRADED, "RolledBack", A_DIGEST)


@pytest.mark.finding(
    "OS: fields without a back end",
    "The first config of a host is refused if it has a field of the OS that no back end serves.",
)
async def test_first_start_on_bootc_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: FakeDeployments) -> list[object]:
        raise Unreconcilable("bootc", reason=Reason.NO_DEPLOYMENTS)

    monkeypatch.setattr(FakeDeployments, "list", fail)
    host = os_host()
    host.want(on("b", "whatever", {"/etc/quiet/q": "1"}, kernel_arguments=("nosmt",)))
    await host.settle()
    assert (host.phase, host.record.reason, host.actions()) == (Phase.DEGRADED, "NoDeployments", [])
    assert host.record.message.startswith("bootc")
    assert "spec.osImageURL: is set" in host.record.message
    assert "/etc/quiet/q" not in host.world.disk
    host.want(config("files", {"/etc/quiet/q": "1"}))
    await host.settle()
    assert (host.phase, host.world.current) == (Phase.IDLE, host.wanted), "a config without the OS is served there"


@pytest.mark.finding(
    "OS: fields without a back end",
    "The first config of a host is refused if it has a field of the OS that no back end serves.",
)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("os_image_url", "quay.example/os:latest"),
        ("kernel_arguments", ("nosmt",)),
        ("extensions", ("usbguard",)),
        ("kernel_type", "realtime"),
    ],
)
async def test_first_config_with_a_field_of_the_os_on_a_plain_host(field: str, value: object) -> None:
    host = Host(World(units={"app.service": FakeUnit()}))
    host.want(config("first", {"/etc/quiet/q": "1"}, **{field: value}))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "NoDeployments")
    assert "/etc/quiet/q" not in host.world.disk
    loop = host.build()
    with pytest.raises(Unreconcilable) as raised:
        await loop.check(await host._load(host.wanted))
    assert raised.value.reason == "NoDeployments", "a plan answers as the update does"


@pytest.mark.finding("OS: fields without a back end", "FIPS mode of a first config is compared with the kernel.")
@pytest.mark.parametrize(("kernel", "phase"), [(True, Phase.IDLE), (False, Phase.DEGRADED)])
async def test_first_config_with_fips(kernel: bool, phase: Phase) -> None:
    host = os_host()
    host.world.fips = kernel
    host.want(config("first", {"/etc/quiet/q": "1"}, fips=True))
    await host.settle()
    assert host.phase is phase
    host.want(config("second", {"/etc/quiet/q": "1"}))
    await host.settle()
    assert kernel or host.phase is Phase.IDLE, "a config that does not require it is for hosts of either kind"
