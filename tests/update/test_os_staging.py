# SPDX-License-Identifier: Apache-2.0
"""Staging a deployment: refusals, waiting, other holders, and updates that are replaced or aborted."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.image import parse_image
from nodeagent.core.plan.deployment import OsTarget, staged
from nodeagent.errors import Refused, Retryable, Terminal, Unreconcilable
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import DeploymentsChanged, UpdateStarted, UpdateWaiting
from nodeagent.update.record import half_way
from nodeagent.update.states import Phase
from tests.world import FakeDeployments, FakeLease, Fault, Killed
from tests.world.os_host import (
    A_DIGEST,
    B_DIGEST,
    C_DIGEST,
    FILES,
    FIRST,
    MORE,
    NEW,
    OLD,
    at_old,
    booted_digest,
    managed,
    on,
    os_host,
)
from tests.world.run import Host, config, kinds, until

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("fails", [False, True])
async def test_the_boot_order_is_reported_after_each_staging(fails: bool) -> None:
    host = await at_old()
    os = host.build().ports.os
    assert os is not None
    await os.list()
    host.world.events.clear()
    if fails:
        host.world.deployments.append(replace(host.world.deployments[0], id="another.0", booted=False))
        host.world.faults.append(Fault("stage", Refused("no", reason=Reason.OTHER_DRIVER)))
    target = OsTarget(image=parse_image(f"registry.test/os@{B_DIGEST}"))
    with contextlib.suppress(Refused):
        await os.stage(target, credentials=None, replace="", on_progress=lambda _: None)
    assert [type(event) for event in host.world.events] == [DeploymentsChanged]


@pytest.mark.parametrize(
    "error",
    [
        Refused("zincati", reason=Reason.OTHER_DRIVER),
        Unreconcilable("bootc", reason=Reason.NO_DEPLOYMENTS),
        Refused("2 GiB", reason=Reason.NO_SPACE),
    ],
)
async def test_guard_refuses_before_any_change(error: Refused) -> None:
    host = await at_old()
    host.world.faults.append(Fault("guard", error, times=None))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, error.reason)
    assert host.world.credentials == []
    host.world.repair("guard")
    await host.settle()
    assert host.phase is Phase.IDLE


async def test_image_must_be_pinned_only_if_it_changes() -> None:
    tag = "quay.example/os:latest"
    host = os_host()
    host.want(config("tagged", os_image_url=tag))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])
    host.want(config("tagged too", {"/etc/quiet/q": "1"}, os_image_url=tag))
    await host.settle()
    assert host.phase is Phase.IDLE
    host.want(config("other tag", {}, os_image_url="quay.example/os:newest"))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "ImageNotPinned")


def extensions_image(number: int) -> str:
    return f"quay.example/extensions@sha256:{number:064}"


async def test_extensions_image_alone_changes_nothing() -> None:
    """This holds with and without packages. A release with another OS as well costs no more than that OS."""
    host = await at_old(on("a", "old", extensions_image=extensions_image(1)))
    host.want(on("a", "unused", extensions_image=extensions_image(2)))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])
    used = {"extensions": ("usbguard",), "kernel_type": "realtime"}
    host.want(on("a", "used", extensions_image=extensions_image(2), **used))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["reboot"])
    host.want(on("a", "other", extensions_image=extensions_image(3), **used))
    await host.settle()
    assert (host.phase, host.record.reason, host.actions()) == (Phase.IDLE, "", ["reboot"])
    host.want(on("b", "release", extensions_image=extensions_image(4), **used))
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.actions()) == (Phase.IDLE, B_DIGEST, ["reboot"] * 2)
    # It was fetched before each of the two stagings, and for nothing else.
    assert [digest[-1] for digest, _ in host.world.fetched] == ["2", "4"]


async def test_an_extensions_image_must_be_pinned() -> None:
    host = await at_old()
    host.want(on("a", "tagged", extensions=("usbguard",), extensions_image="quay.example/extensions:latest"))
    await host.settle()
    assert (host.phase, host.record.reason, host.world.fetched) == (Phase.DEGRADED, "ImageNotPinned", [])


async def test_nothing_changes_if_the_packages_cannot_be_fetched() -> None:
    host = await at_old()
    error = Terminal("no such image", reason=Reason.IMAGE_NOT_FOUND)
    host.world.faults.append(Fault("fetch packages", error, times=None))
    host.want(on("a", "absent", extensions=("usbguard",), extensions_image=extensions_image(1)))
    await host.settle()
    assert (host.phase, host.record.reason, host.actions()) == (Phase.DEGRADED, "ImageNotFound", [])


async def test_extensions_image_is_ignored_without_deployments() -> None:
    host = os_host()
    host.world.deployments = []
    host.want(config("one", FILES, extensions_image=extensions_image(1)))
    await host.settle()
    host.world.done.clear()
    host.want(config("two", FILES, extensions_image=extensions_image(2)))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])


async def test_config_without_os_keeps_the_os() -> None:
    host = await at_old()
    host.want(config("free", FILES))
    await host.settle()
    assert (host.phase, host.world.credentials, booted_digest(host.world)) == (Phase.IDLE, [], A_DIGEST)


async def test_os_fields_are_refused_without_deployments() -> None:
    host = os_host()
    host.world.deployments = []
    host.want(config("files", FILES))
    await host.settle()
    assert host.phase is Phase.IDLE
    host.world.events.clear()
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "NoDeployments")
    assert not kinds(host, UpdateStarted), "the update does not begin"
    assert managed(host.world, OLD, NEW) == expand(config("files", FILES))


async def test_no_staging_while_another_holder_has_the_lease() -> None:
    host = await at_old()
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(100)
    assert (host.phase, host.world.credentials) == (Phase.STAGING, [])
    assert kinds(host, UpdateWaiting) == ["LeaseHeld"]
    host.world.holder = None
    await task
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_newer_config_replaces_waiting_update() -> None:
    host = await at_old()
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.STAGING)
    host.want(OLD)
    await asyncio.sleep(1)
    assert task.done()
    assert (host.phase, host.world.credentials) == (Phase.IDLE, [])


async def test_staging_stops_when_another_holder_takes_the_lease() -> None:
    host = await at_old()
    host.world.stage_seconds = 1000
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.STAGING)
    await asyncio.sleep(50)
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    await asyncio.sleep(500)
    assert host.phase is Phase.STAGING
    assert host.world.staged_with_lease == []
    assert staged(host.world.deployments) is None
    host.world.holder = None
    await task
    assert booted_digest(host.world) == B_DIGEST


async def test_foreign_staged_deployment_is_never_replaced() -> None:
    host = await at_old()
    foreign = replace(FIRST, id="os-ffff.9", digest=C_DIGEST, checksum="f", booted=False, staged=True, locked=False)
    host.world.deployments.insert(0, foreign)
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "StagedByOther")
    assert staged(host.world.deployments) == foreign
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert host.world.history[-1].to_name == "old", "nothing was touched, so there is nothing to remember"
    del host.world.deployments[0]
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


@pytest.mark.finding(
    "rpm-ostreed: deployments of other programs",
    "What another program staged is not used, even if it fulfils the target.",
)
async def test_foreign_staged_deployment_with_our_image_is_kept() -> None:
    """The deployment is neither used nor discarded with the config: the result of its transaction is not known."""
    host = await at_old()
    image = {"digest": B_DIGEST, "image": NEW.os_image_url}
    foreign = replace(FIRST, id="os-bbbb.9", checksum="b", booted=False, staged=True, locked=False, **image)
    host.world.deployments.insert(0, foreign)
    host.want(NEW)
    for _ in range(3):
        await host.settle()
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "StagedByOther")
    host.want(OLD)
    await host.settle()
    assert host.phase is Phase.IDLE
    assert staged(host.world.deployments) == foreign


async def test_newer_config_stops_staging() -> None:
    host = await at_old()
    host.world.stage_seconds = 1000
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.STAGING)
    await asyncio.sleep(100)
    host.world.stage_seconds = 1
    host.want(on("c", "newest", FILES))
    await asyncio.sleep(100)
    await task
    assert booted_digest(host.world) == C_DIGEST
    assert [entry.to_name for entry in host.world.history] == ["old", "new", "newest"]


async def test_same_config_is_not_staged_twice() -> None:
    host = await at_old()
    host.world.stage_seconds = 100
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.STAGING)
    for _ in range(5):
        await asyncio.sleep(10)
        host.want(NEW)
    await task
    assert len(host.world.credentials) == 1


async def test_own_staged_deployment_is_discarded_when_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()

    async def refuse(_self: FakeLease, _holder: str, _operation: str, _reason: str) -> None:
        raise Refused("bob holds the lease: cables", reason=Reason.LEASE_HELD)

    monkeypatch.setattr(FakeLease, "acquire", refuse)
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.LEASING)
    assert staged(host.world.deployments) is not None
    host.want(OLD)
    await task
    assert staged(host.world.deployments) is None
    assert (host.phase, host.actions()) == (Phase.IDLE, [])


async def test_failed_discard_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    host.world.stage_seconds = 0
    discard = FakeDeployments.discard
    failures = [Retryable("rpm-ostreed left", reason=Reason.STAGE_FAILED)] * 2

    async def fail(self: FakeDeployments) -> None:
        if failures:
            raise failures.pop()
        await discard(self)

    async def refuse(_self: FakeLease, _holder: str, _operation: str, _reason: str) -> None:
        raise Refused("bob holds the lease: cables", reason=Reason.LEASE_HELD)

    monkeypatch.setattr(FakeDeployments, "discard", fail)
    monkeypatch.setattr(FakeLease, "acquire", refuse)
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.LEASING)
    host.want(OLD)
    await task
    assert (host.phase, host.record.reason, host.world.history[-1].outcome) == (Phase.IDLE, "", "withdrawn")
    assert staged(host.world.deployments) is not None
    await host.settle()
    assert staged(host.world.deployments) is None
    assert host.record.os.target is None


@pytest.mark.parametrize("fault", [False, True], ids=["", "not at once"])
async def test_own_staged_deployment_is_discarded_without_desired_config(
    fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await at_old()
    discard = FakeDeployments.discard
    failures = [Retryable("rpm-ostreed left", reason=Reason.STAGE_FAILED)] * fault

    async def fail(self: FakeDeployments) -> None:
        if failures:
            raise failures.pop()
        await discard(self)

    async def refuse(_self: FakeLease, _holder: str, _operation: str, _reason: str) -> None:
        raise Refused("an operator freed the lease", reason=Reason.LEASE_LOST)

    monkeypatch.setattr(FakeDeployments, "discard", fail)
    with monkeypatch.context() as patch:
        patch.setattr(FakeLease, "acquire", refuse)
        host.want(NEW)
        await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert staged(host.world.deployments) is not None
    host.wanted = ""
    for _ in range(1 + fault):
        await host.settle()
    assert staged(host.world.deployments) is None
    assert (host.record.os.target, host.record.os.staged) == (None, "")


async def test_half_way_host_keeps_staged_deployment_without_desired_config() -> None:
    """An operator decides what becomes of it."""
    host = await at_old()
    host.limits = replace(host.limits, revert=False)
    host.world.faults.append(Fault("ignored reboot", times=None))
    host.want(MORE)
    await host.settle()
    assert half_way(host.record)
    target = host.record.os.target
    assert target is not None
    host.wanted = ""
    await host.settle()
    assert (half_way(host.record), host.record.os.target) == (True, target)


async def killed_while_staging() -> Host:
    """Staged, and dead before we knew its id."""
    host = await at_old()
    host.want(NEW)
    while staged(host.world.deployments) is None:
        host.world.calls, host.world.fuse = 0, host.world.fuse + 1 if host.world.fuse > 0 else 1
        with pytest.raises(Killed):
            await host._live()
    host.world.fuse = -1
    assert host.record.os.staged == ""
    return host


@pytest.mark.parametrize("then", [OLD, on("a", "files only", {"/etc/app/x": "3"}), on("c", "newest")])
async def test_deployment_staged_by_killed_agent_is_replaced(then: object) -> None:
    host = await killed_while_staging()
    host.want(then)  # type: ignore[arg-type]
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert staged(host.world.deployments) is None
    assert host.record.os.staged == ""
    assert booted_digest(host.world) in (A_DIGEST, C_DIGEST)
