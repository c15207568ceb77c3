"""Updates of the OS over the host in memory: when it is staged, what is refused, and where each failure leads."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from nodeagent.agent.loop import AGAIN, Loop
from nodeagent.agent.update.after_boot import AT_ONCE, MAX_AGAIN, MAX_MISSES, PAUSE
from nodeagent.agent.update.executor import Outcome
from nodeagent.agent.update.run import Update
from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.core.plan.deployment import staged
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports import Holder, Inhibitor
from nodeagent.core.update.record import Record, half_way, record_to_dict
from nodeagent.errors import Refused, Retryable, Terminal, Unreconcilable
from tests.world import FakeDeployments, FakeLease, FakeStore, FakeUnit, Fault, Killed, full_disk, lost_answer
from tests.world.os_host import (
    A_DIGEST,
    B_DIGEST,
    C_DIGEST,
    FILES,
    FIRST,
    KARGS,
    NEW,
    OLD,
    at_old,
    bad_on,
    booted_digest,
    managed,
    on,
    os_host,
)
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

UNIT = UnitEntry("app.service", "[Service]\nExecStart=/bin/true\n", enabled=True)


def kinds(host: Host, kind: EventKind) -> list[str]:
    return [event.reason or event.message for event in host.world.events if event.kind is kind]


def phases(host: Host) -> list[str]:
    """Each once for as long as it lasts: its message may change."""
    entered = [str(event.phase) for event in host.world.events if event.kind is EventKind.PHASE]
    return [phase for phase, _ in itertools.groupby(entered)]


async def until(host: Host, phase: Phase) -> None:
    while host.phase is not phase:
        await asyncio.sleep(0.2)


# The way there


async def test_staged_before_the_lease_and_rebooted_once() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    assert phases(host) == ["Staging", "Leasing", "Writing", "Acting", "Rebooting", "Verifying", "Releasing", "Idle"]
    assert host.world.staged_with_lease == []
    assert host.actions() == ["reboot"]
    assert booted_digest(host.world) == B_DIGEST
    assert managed(host.world, OLD, NEW) == expand(NEW)
    assert host.world.disk["/etc/os"] == RegularFile(b"b"), "what the OS ships came with it"
    entry = host.world.history[-1]
    assert (entry.outcome, entry.disruption, entry.reboots) == ("done", "reboot", 1)


async def test_there_and_back_again() -> None:
    host = await at_old()
    for wanted, digest in ((NEW, B_DIGEST), (OLD, A_DIGEST), (NEW, B_DIGEST)):
        host.want(wanted)
        await host.settle()
        assert host.phase is Phase.IDLE
        assert booted_digest(host.world) == digest
        assert managed(host.world, OLD, NEW) == expand(wanted)
    assert host.actions() == ["reboot"] * 3


async def test_kernel_arguments_come_and_go_and_the_hosts_own_stay() -> None:
    host = await at_old()
    host.want(KARGS)
    await host.settle()
    host.want(on("b", "fewer", kernel_arguments=("nosmt",)))
    await host.settle()
    assert host.world.deployments[0].kernel_arguments == ("root=LABEL=root", "quiet", "nosmt")
    assert booted_digest(host.world) == B_DIGEST
    assert host.actions() == ["reboot"] * 2


async def test_extensions_and_another_kernel() -> None:
    host = await at_old()
    host.want(on("a", "rt", extensions=("usbguard",), kernel_type="realtime"))
    await host.settle()
    assert {"usbguard", "kernel-rt-core"} <= host.world.deployments[0].packages
    assert "kernel-core" in host.world.deployments[0].removed
    host.want(OLD)
    await host.settle()
    assert (host.phase, host.world.deployments[0].packages) == (Phase.IDLE, frozenset())
    assert host.world.deployments[0].removed == frozenset()


async def test_the_pull_secret_of_the_new_config_is_used() -> None:
    host = await at_old()
    pods, image = ('{"auths": {"%s.example": {"auth": "dTpw"}}}' % name for name in ("pods", "image"))  # noqa: UP031
    host.want(on("b", "new", {"/var/lib/kubelet/config.json": pods}))
    await host.settle()
    host.want(on("c", "newer", {"/var/lib/kubelet/config.json": pods, "/etc/ostree/auth.json": image}))
    await host.settle()
    host.want(OLD)
    await host.settle()
    assert host.world.credentials == [pods.encode(), image.encode(), None]


async def test_progress_is_told_and_worth_a_line_only_for_each_tenth() -> None:
    host = await at_old()
    host.world.stage_seconds = 400
    host.want(NEW)
    await host.settle()
    told = [event for event in host.world.events if event.kind is EventKind.STAGING]
    assert len(told) == 20
    lines = [event.step for event in told if not event.fields["often"]]
    assert [(step.index, step.count, step.percent) for step in lines if step] == [
        (part, 20, part * 5) for part in range(0, 20, 2)
    ]


async def test_a_first_start_stages_only_what_the_host_has_not() -> None:
    host = os_host()
    host.want(on("a", "first", {}, kernel_arguments=("quiet",)))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])
    host = os_host()
    host.want(on("b", "first"))
    await host.settle()
    assert (host.phase, host.actions(), booted_digest(host.world)) == (Phase.IDLE, ["reboot"], B_DIGEST)


async def test_what_the_merge_of_etc_takes_back_is_written_again() -> None:
    """The file is as the old image ships it, so nobody can see there that somebody wants it so."""
    old, new = on("a", "old", {"/etc/chrony": "a"}), on("b", "new", {"/etc/chrony": "a"})
    host = await at_old(old)
    host.want(new)
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert host.world.disk["/etc/chrony"] == RegularFile(b"a")
    assert host.actions() == ["reboot", "reboot"]
    assert (host.world.history[-1].outcome, host.world.history[-1].reboots) == ("done", 2)
    assert len(host.world.credentials) == 1, "staged once: the second reboot is for the files only"


async def test_without_the_entry_it_is_as_the_booted_image_ships_it() -> None:
    host = await at_old(on("a", "old"))
    ships = host.world.disk["/etc/chrony"]
    host.want(on("b", "new", {"/etc/chrony": "a"}))
    await host.settle()
    assert host.world.disk["/etc/chrony"] == ships
    host.want(on("b", "later"))
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert host.world.disk["/etc/chrony"] == host.world.disk["/usr/etc/chrony"] != ships


async def test_a_service_that_fails_for_what_the_merge_took_back_is_no_reason_to_go_back() -> None:
    old, new = on("a", "old", {"/etc/chrony": "a"}, units=[UNIT]), on("b", "new", {"/etc/chrony": "a"}, units=[UNIT])
    host = await at_old(old)

    class Picky(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            return 99 if host.world.disk.get("/etc/chrony") != RegularFile(b"a") else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    host.world.units["app.service"] = Picky()
    host.want(new)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_what_is_never_as_configured_is_written_again_only_once() -> None:
    host = await at_old()
    host.world.tampers["/etc/app/y"] = RegularFile(b"mine")
    host.want(NEW)
    await host.settle()
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "VerifyFailed")
    assert host.actions() == ["reboot"] * 4, "there, again, back, and once more because files were restored"
    assert booted_digest(host.world) == A_DIGEST


# Refused, waiting, given up


@pytest.mark.parametrize(
    "error",
    [
        Refused("zincati", reason="OtherDriver"),
        Unreconcilable("bootc", reason="BootcHost"),
        Refused("2 GiB", reason="NoSpace"),
    ],
)
async def test_a_guard_says_no_before_anything_is_touched(error: Refused) -> None:
    host = await at_old()
    host.world.faults.append(Fault("guard", error, times=None))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, error.reason)
    assert host.world.credentials == []
    host.world.repair("guard")
    await host.settle()
    assert host.phase is Phase.IDLE


async def test_an_image_must_be_pinned_only_if_it_changes() -> None:
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


async def test_an_extensions_image_alone_changes_nothing() -> None:
    """With and without packages; a release that brings another one beside its OS costs no more than that OS."""
    host = await at_old(on("a", "old", extensions_image="x@1"))
    host.want(on("a", "unused", extensions_image="x@2"))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])
    used = {"extensions": ("usbguard",), "kernel_type": "realtime"}
    host.want(on("a", "used", extensions_image="x@2", **used))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["reboot"])
    host.want(on("a", "other", extensions_image="x@3", **used))
    await host.settle()
    assert (host.phase, host.record.reason, host.actions()) == (Phase.IDLE, "", ["reboot"])
    host.want(on("b", "release", extensions_image="x@4", **used))
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.actions()) == (Phase.IDLE, B_DIGEST, ["reboot"] * 2)


async def test_an_extensions_image_is_nothing_to_a_host_without_deployments() -> None:
    host = os_host()
    host.world.deployments = []
    host.want(config("one", FILES, extensions=("usbguard",), extensions_image="x@1"))
    await host.settle()
    host.world.done.clear()
    host.want(config("two", FILES, extensions=("usbguard",), extensions_image="x@2"))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])


async def test_a_config_that_leaves_the_os_alone_from_now_on() -> None:
    host = await at_old()
    host.want(config("free", FILES))
    await host.settle()
    assert (host.phase, host.world.credentials, booted_digest(host.world)) == (Phase.IDLE, [], A_DIGEST)


async def test_without_deployments_the_os_is_nobodys_business() -> None:
    host = os_host()
    host.world.deployments = []
    host.want(OLD)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "NoDeployments")
    assert managed(host.world, OLD, NEW) == expand(OLD)


async def test_nothing_is_staged_under_the_hands_of_somebody_else() -> None:
    host = await at_old()
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(100)
    assert (host.phase, host.world.credentials) == (Phase.STAGING, [])
    assert kinds(host, EventKind.WAITING) == ["LeaseHeld"]
    host.world.holder = None
    await task
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_newer_config_takes_over_while_somebody_else_works_here() -> None:
    host = await at_old()
    host.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.STAGING)
    host.want(OLD)
    await asyncio.sleep(1)
    assert task.done()
    assert (host.phase, host.world.credentials) == (Phase.IDLE, [])


async def test_staging_stops_when_somebody_takes_the_lease() -> None:
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


async def test_somebody_elses_staged_deployment_is_never_overwritten() -> None:
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


async def test_somebody_elses_is_theirs_also_with_our_image() -> None:
    """Not used, and not discarded when the config goes: whether their transaction succeeded is not known."""
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


async def test_a_newer_config_ends_the_staging() -> None:
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


async def test_looking_at_the_same_config_again_does_not_stage_it_again() -> None:
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


async def test_what_we_staged_is_discarded_when_nobody_wants_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()

    async def refuse(_self: FakeLease, _holder: str, _operation: str, _reason: str) -> None:
        raise Refused("bob holds the lease: cables", reason="LeaseHeld")

    monkeypatch.setattr(FakeLease, "acquire", refuse)
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.LEASING)
    assert staged(host.world.deployments) is not None
    host.want(OLD)
    await task
    assert staged(host.world.deployments) is None
    assert (host.phase, host.actions()) == (Phase.IDLE, [])


async def test_what_cannot_be_discarded_now_is_discarded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    host.world.stage_seconds = 0
    discard = FakeDeployments.discard
    failures = [Retryable("rpm-ostreed left", reason="TransactionLost")] * 2

    async def fail(self: FakeDeployments) -> None:
        if failures:
            raise failures.pop()
        await discard(self)

    async def refuse(_self: FakeLease, _holder: str, _operation: str, _reason: str) -> None:
        raise Refused("bob holds the lease: cables", reason="LeaseHeld")

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
    assert host.record.os_target is None


@pytest.mark.parametrize("fault", [False, True], ids=["", "not at once"])
async def test_what_we_staged_is_discarded_when_no_config_is_desired_any_more(
    fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await at_old()
    discard = FakeDeployments.discard
    failures = [Retryable("rpm-ostreed left", reason="TransactionLost")] * fault

    async def fail(self: FakeDeployments) -> None:
        if failures:
            raise failures.pop()
        await discard(self)

    async def refuse(_self: FakeLease, _holder: str, _operation: str, _reason: str) -> None:
        raise Refused("an operator freed the lease", reason="LeaseLost")

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
    assert (host.record.os_target, host.record.staged) == (None, "")


async def test_a_half_way_host_keeps_what_is_staged_when_no_config_is_desired() -> None:
    """An operator decides what becomes of it."""
    host = await at_old()
    host.limits = replace(host.limits, revert=False)
    host.world.faults.append(Fault("ignored reboot", times=None))
    host.want(MORE)
    await host.settle()
    assert half_way(host.record)
    target = host.record.os_target
    assert target is not None
    host.wanted = ""
    await host.settle()
    assert (half_way(host.record), host.record.os_target) == (True, target)


async def killed_while_staging() -> Host:
    """Staged, and dead before we knew its id."""
    host = await at_old()
    host.want(NEW)
    while staged(host.world.deployments) is None:
        host.world.calls, host.world.fuse = 0, host.world.fuse + 1 if host.world.fuse > 0 else 1
        with pytest.raises(Killed):
            await host._live()
    host.world.fuse = -1
    assert host.record.staged == ""
    return host


@pytest.mark.parametrize("then", [OLD, on("a", "files only", {"/etc/app/x": "3"}), on("c", "newest")])
async def test_what_a_killed_agent_staged_is_ours_to_replace(then: object) -> None:
    host = await killed_while_staging()
    host.want(then)  # type: ignore[arg-type]
    await host.settle()
    assert host.phase is Phase.IDLE, host.record
    assert staged(host.world.deployments) is None
    assert host.record.staged == ""
    assert booted_digest(host.world) in (A_DIGEST, C_DIGEST)


# Failures


async def test_a_network_that_comes_back_costs_a_pause() -> None:
    host = await at_old()
    host.world.faults.append(Fault("stage", Retryable("no route", reason="RegistryUnreachable"), times=3))
    host.want(NEW)
    began = asyncio.get_running_loop().time()
    await host.settle()
    assert asyncio.get_running_loop().time() - began >= 30 + 60 + 120
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert kinds(host, EventKind.WARNING) == ["RegistryUnreachable"] * 3


@pytest.mark.parametrize(
    "errors",
    [
        [Terminal("manifest unknown", reason="ImageNotFound")],
        [Refused("dnf", reason="TransactionBusy")],
        [Retryable("no route", reason="RegistryUnreachable") for _ in range(5)],
    ],
    ids=["terminal", "busy", "network"],
)
async def test_what_cannot_be_staged_is_tried_again_later(errors: list[Terminal]) -> None:
    host = await at_old()
    reason = errors[0].reason
    host.world.faults += [Fault("stage", error) for error in errors]
    host.want(NEW)
    loop = host.build()
    host.world.rebooting = asyncio.Event()
    delay = await loop.turn()
    assert delay is not None
    assert 30 <= delay <= 36
    assert (host.phase, host.record.reason, host.record.rejected) == (Phase.DEGRADED, reason, "")
    assert host.record.update_id == "", "not half-way"
    assert (host.world.holder, host.actions()) == (None, [])
    assert managed(host.world, OLD, NEW) == expand(OLD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


@pytest.mark.parametrize(
    ("meanwhile", "at_once"),
    [
        (lambda host, loop: loop.look_again(), False),
        (lambda host, loop: host.requested(loop), True),
        (lambda host, loop: host.want(MORE), True),
    ],
    ids=["the watch tells of the same file", "an operator requests it", "something else is desired"],
)
async def test_what_is_put_off_waits_unless_there_is_news(
    meanwhile: Callable[[Host, Loop], None], at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await at_old()
    host.world.faults.append(Fault("stage", Terminal("manifest unknown", reason="ImageNotFound")))
    host.want(NEW)
    loop = host.build()
    run, turn, ended = loop.executor.run, loop.turn, list[float]()

    async def disturbed(update: Update) -> Outcome:
        outcome = await run(update)
        meanwhile(host, loop)
        return outcome

    async def once() -> float | None:
        if ended:
            raise Stop
        delay = await turn()
        ended.append(asyncio.get_running_loop().time())
        return delay

    monkeypatch.setattr(loop.executor, "run", disturbed)
    monkeypatch.setattr(loop, "turn", once)
    with pytest.raises(Stop):
        await loop.run()
    assert (asyncio.get_running_loop().time() - ended[0] < 30) == at_once


class Stop(BaseException):
    """The loop looked a second time."""


async def test_what_is_put_off_does_not_bring_back_what_failed() -> None:
    host = await at_old()
    host.world.faults.append(full_disk())
    host.want(MORE)
    await host.settle()
    assert host.record.reason == "Reverted"
    host.world.repair("install")
    host.world.faults.append(Fault("stage", Terminal("manifest unknown", reason="ImageNotFound")))
    host.want(on("c", "newest"))
    assert await host.build().turn() is not None
    assert host.record.reason == "ImageNotFound"
    host.want(MORE)
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.DEGRADED, [])


async def test_a_staging_without_end_is_given_up() -> None:
    host = await at_old()
    host.world.stage_seconds = 100 * 3600
    host.want(NEW)
    loop = host.build()
    host.world.rebooting = asyncio.Event()
    assert await loop.turn() is not None
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "PhaseLate")


async def test_an_unfinalized_deployment_is_told_and_not_tried_again() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", OSError("error: No space left on device")))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.reason, host.record.revert_reason) == (Phase.DEGRADED, "Reverted", "FinalizeFailed")
    assert "No space left on device" in host.record.message
    assert host.actions() == ["reboot", "reboot"]
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert host.world.units["app.service"].read["/etc/app/x"] == RegularFile(b"1")
    await host.settle()
    assert host.actions() == ["reboot", "reboot"]


async def test_a_boot_that_somebody_chose_is_no_loop() -> None:
    host = await at_old()
    host.world.boot_menu[2] = FIRST.id
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.revert_reason) == (Phase.DEGRADED, "OldDeploymentBooted")
    assert host.actions().count("reboot") == 2
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert [d.id for d in host.world.deployments] == [FIRST.id], "it would boot next time"


async def test_a_lease_that_is_lost_while_users_are_warned_leaves_the_staged_deployment_locked() -> None:
    host = await at_old()
    host.world.logged_in = True
    host.limits = replace(host.limits, warn_users=3600)
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    while not host.world.warned:
        await asyncio.sleep(1)
    host.world.holder = None
    await task
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert [d.locked for d in host.world.deployments if d.staged] == [True], "another reboot must not boot it"


async def test_lost_for_no_reason_is_staged_again_but_not_for_ever() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", times=99))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.record.revert_reason) == (Phase.DEGRADED, "StagedLost")
    assert len(host.world.credentials) == 3
    assert host.actions().count("reboot") == 4, "three times there, once because files were restored"
    assert managed(host.world, OLD, NEW) == expand(OLD)


@pytest.mark.parametrize("cuts", [3, MAX_AGAIN])
async def test_power_that_fails_at_each_reboot_and_then_stays(cuts: int) -> None:
    host = await at_old()
    host.world.faults.append(Fault("power cut", times=cuts))
    host.want(NEW)
    began = asyncio.get_running_loop().time()
    await host.settle()
    assert (host.phase, booted_digest(host.world), host.record.reason) == (Phase.IDLE, B_DIGEST, "")
    assert len(host.world.credentials) == cuts + 1
    assert host.actions() == ["reboot"], "each cut was one too many already"
    waited = asyncio.get_running_loop().time() - began
    assert waited >= sum(PAUSE * 2**number for number in range(cuts - AT_ONCE))
    assert set(host.world.staged_with_lease) == {"nodeagent"}


async def test_a_host_that_goes_down_under_each_try_is_no_loop() -> None:
    host = await at_old()
    host.world.faults.append(Fault("power cut", times=99))
    host.want(NEW)
    with pytest.MonkeyPatch.context() as patch:
        # The way back has to boot as well.
        patch.setattr(FakeStore, "save", power_stays_for_the_way_back(host))
        await host.settle(lives=20)
    assert (host.phase, host.record.reason, host.record.revert_reason) == (Phase.DEGRADED, "Reverted", "StagedLost")
    assert len(host.world.credentials) == MAX_AGAIN + 1
    assert managed(host.world, OLD, NEW) == expand(OLD)
    assert staged(host.world.deployments) is None


def power_stays_for_the_way_back(host: Host) -> Callable[[FakeStore, Record], Awaitable[None]]:
    save = FakeStore.save

    async def saving(self: FakeStore, record: Record) -> None:
        if record.reverting:
            host.world.repair("power cut")
        await save(self, record)

    return saving


async def test_a_cut_while_we_wait_for_the_power_to_stay_counts_for_nothing() -> None:
    host = await at_old()
    host.world.faults.append(Fault("power cut", times=AT_ONCE + 1))
    host.want(NEW)
    stagings = AT_ONCE + 1
    while len(host.world.credentials) < stagings or host.phase is not Phase.STAGING:
        with contextlib.suppress(Killed):
            await live_for(host, PAUSE / 2)
    for _ in range(3 * MAX_AGAIN):
        await live_for(host, PAUSE / 2)
        assert host.phase is Phase.STAGING
        host.world.power_cut()
    assert len(host.world.credentials) == stagings
    assert any("this boot lasts" in event.message for event in host.world.events if event.kind is EventKind.WAITING)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert len(host.world.credentials) == stagings + 1


async def live_for(host: Host, seconds: float) -> None:
    """One life of the daemon that ends after so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await host._live()


async def test_reboots_by_somebody_who_does_not_wait_for_ours() -> None:
    """What is locked is lost by them, in order and expected."""
    host = await at_old()
    host.want(NEW)
    host.world.blockers = [Inhibitor("backup", "sleep", "nightly")]
    for number in range(MAX_MISSES + 2):
        while len(host.world.credentials) <= number or host.phase is not Phase.REBOOTING:
            await live_for(host, 100)
        host.world.shut_down()
    assert host.actions() == []
    host.world.blockers = []
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot"]


async def test_lost_once_is_staged_again_with_the_lease() -> None:
    host = await at_old()
    host.world.faults.append(Fault("finalize", times=1))
    host.want(NEW)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot", "reboot"]
    assert set(host.world.staged_with_lease) == {"nodeagent"}
    assert phases(host).count("Writing") == 1


async def test_nothing_is_staged_again_without_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await at_old()
    check = FakeLease.check

    async def lost(self: FakeLease, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        if self.world.boot > 1:
            raise Refused("the lease is not ours any more", reason="LeaseLost")
        await check(self, operation)

    monkeypatch.setattr(FakeLease, "check", lost)
    host.world.faults.append(Fault("finalize", times=1))
    host.want(NEW)
    await host.settle()
    assert len(host.world.credentials) == 1
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert host.world.boot == 2, "whoever took it has the host as it is: no way back either"


async def test_removed_by_hand_before_the_reboot() -> None:
    host = await at_old()
    save = FakeStore.save
    removed: list[str] = []

    async def cleanup(self: FakeStore, record: object) -> None:
        await save(self, record)  # type: ignore[arg-type]
        if host.phase is Phase.ACTING and len(removed) < 1:
            removed.append("rpm-ostree cleanup -p")
            host.world.drop_staged()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeStore, "save", cleanup)
        host.want(NEW)
        await host.settle()
    assert removed
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert host.actions() == ["reboot"]


MORE = on("b", "more", {**FILES, "/etc/app/y": "2"})


async def test_a_failure_before_the_reboot_leaves_nothing_staged() -> None:
    host = await at_old()
    host.world.faults.append(full_disk())
    host.want(MORE)
    await host.settle()
    assert (host.phase, host.record.revert_reason, host.actions()) == (Phase.DEGRADED, "NoSpace", [])
    assert staged(host.world.deployments) is None
    assert managed(host.world, OLD, MORE) == expand(OLD)


BAD = on("b", "bad", {"/etc/app/x": "2"}, units=[UNIT])


async def test_a_bad_deployment_is_rolled_back_and_the_old_etc_restored() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason, host.record.revert_reason) == (Phase.DEGRADED, "Reverted", "UnitUnhealthy")
    assert booted_digest(host.world) == A_DIGEST
    assert managed(host.world, OLD, BAD) == expand(OLD)
    assert host.actions() == ["reboot", "reboot", "reboot"]
    assert host.world.units["app.service"].read["/etc/app/x"] == RegularFile(b"1")
    assert host.world.units["app.service"].active == "active"
    assert host.world.holder is None
    assert (host.world.history[-1].outcome, host.world.history[-1].reboots) == ("reverted", 3)
    await host.settle()
    assert len(host.actions()) == 3


async def test_a_merge_to_be_mended_does_not_hide_a_bad_deployment() -> None:
    """What fails in the new deployment is not how it was before, though files are written there once more."""
    files = {"/etc/chrony": "a", "/etc/app/x": "1"}
    host = await at_old(on("a", "old", files, units=[UNIT]))
    bad_on(host.world, B_DIGEST)
    host.want(on("b", "bad", files, units=[UNIT]))
    await host.settle()
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "UnitUnhealthy")
    assert booted_digest(host.world) == A_DIGEST
    assert host.world.disk["/etc/chrony"] == RegularFile(b"a")


async def test_degraded_as_set_stays_where_it_is() -> None:
    host = await at_old()
    host.limits = replace(host.limits, revert=False)
    bad_on(host.world, B_DIGEST)
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason, host.actions()) == (Phase.DEGRADED, "UnitUnhealthy", ["reboot"])
    assert booted_digest(host.world) == B_DIGEST
    assert host.world.holder is not None
    host.want(OLD)  # a person goes back
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)
    assert managed(host.world, OLD, BAD) == expand(OLD)
    assert host.world.holder is None


async def test_what_had_failed_before_is_not_held_against_the_new_os() -> None:
    host = await at_old()
    host.world.units["app.service"] = FakeUnit(active="failed", bad_until_boot=99)
    host.want(BAD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_unit_that_ran_has_to_run_again() -> None:
    host = await at_old()

    class Missing(FakeUnit):
        @property
        def active(self) -> str:
            return "inactive" if booted_digest(host.world) == B_DIGEST else "active"

        @active.setter
        def active(self, value: str) -> None: ...

    host.world.units["app.service"] = Missing()
    host.want(BAD)
    await host.settle()
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "UnitUnhealthy")
    assert "app.service ran before the reboot and is inactive" in host.record.message


async def test_a_new_unit_whose_condition_is_not_met_is_no_reason_to_go_back() -> None:
    host = await at_old()
    host.want(on("b", "new", FILES, units=[UnitEntry("new.service", "[Service]\n", enabled=True)]))
    task = asyncio.create_task(host.settle())
    while host.world.boot == 1:
        await asyncio.sleep(0.1)
    host.world.units["new.service"].active = "inactive"
    await task
    assert host.phase is Phase.IDLE


async def test_nothing_is_promoted_before_the_boot_is_over() -> None:
    host = await at_old()
    host.want(BAD)
    task = asyncio.create_task(host.settle())
    while host.world.boot == 1:
        await asyncio.sleep(0.1)
    now = asyncio.get_running_loop().time()
    host.world.booting_until = now + 40
    await asyncio.sleep(30)
    assert host.phase is Phase.VERIFYING
    host.world.units["app.service"].active = "failed"
    await task
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "UnitUnhealthy")


async def test_a_new_unit_that_starts_for_long_and_then_fails() -> None:
    host = await at_old()
    host.want(on("b", "new", FILES, units=[UnitEntry("new.service", "[Service]\n", enabled=True)]))
    task = asyncio.create_task(host.settle())
    while host.world.boot == 1:
        await asyncio.sleep(0.1)
    host.world.units["new.service"].active = "activating"
    await asyncio.sleep(20)
    assert host.phase is Phase.VERIFYING
    host.world.units["new.service"].active = "failed"
    await task
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "UnitUnhealthy")


async def test_a_boot_that_never_ends_is_not_held_against_the_new_os() -> None:
    host = await at_old()
    host.world.booting_until = 1e9
    host.want(BAD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_a_rollback_that_does_not_boot_is_no_loop() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.world.boot_menu[3] = "os-bbbb.1"
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RollbackFailed")
    assert host.actions().count("reboot") == 2
    assert host.world.holder is not None


@pytest.mark.parametrize("theirs", [False, True])
async def test_nothing_is_rolled_back_while_something_is_staged(theirs: bool) -> None:
    """Of what was asked for it goes, and what somebody else staged is his to remove."""
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.want(BAD)
    assert not await host._live()
    made = host.world.deployments[0]
    extra = replace(made, id="os-cccc.9", booted=False, staged=True, locked=False)
    host.world.deployments.insert(0, replace(extra, digest=C_DIGEST) if theirs else extra)
    await host.settle()
    if not theirs:
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
        assert booted_digest(host.world) == A_DIGEST
        assert any("os-cccc.9" in e.message for e in host.world.events if e.kind is EventKind.WARNING)
        return
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "StagedByOther")
    assert (host.world.deployments[0].id, booted_digest(host.world)) == ("os-cccc.9", B_DIGEST)
    assert host.world.holder is not None
    del host.world.deployments[0]  # he has done so; now the way back is open to a person
    host.want(OLD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)
    assert managed(host.world, OLD, BAD) == expand(OLD)


async def test_the_new_deployment_boots_again_after_the_files_were_restored() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.world.boot_menu[4] = "os-bbbb.1"
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RollbackFailed")
    assert host.actions().count("reboot") == 3
    assert host.world.holder is not None


async def test_not_what_was_asked_for_is_rolled_back() -> None:
    host = await at_old()
    host.world.faults.append(Fault("kernel arguments", times=None))
    host.want(on("b", "new", FILES, kernel_arguments=("nosmt",)))
    await host.settle()
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "DeploymentWrong")
    assert (booted_digest(host.world), host.actions()) == (A_DIGEST, ["reboot", "reboot"])


async def test_another_image_that_came_along_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is a difference: the image that stays is not in it, and must be the right one all the same."""
    host = await at_old()
    make = FakeDeployments._make
    monkeypatch.setattr(FakeDeployments, "_make", lambda self, target: replace(make(self, target), digest=C_DIGEST))
    host.want(KARGS)
    await host.settle()
    assert (host.record.reason, host.record.revert_reason) == ("Reverted", "VerifyFailed")
    assert booted_digest(host.world) == A_DIGEST


async def test_rpm_ostreed_may_be_slow_after_the_boot() -> None:
    host = await at_old()
    host.world.faults.append(Fault("list deployments", lost_answer(), times=8, when=lambda: host.world.boot > 1))
    host.want(NEW)
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["reboot"])


async def test_files_alone_do_not_wait_for_rpm_ostreed_to_verify() -> None:
    host = await at_old(on("a", "old"))
    host.want(on("a", "files", {"/etc/app/x": "2"}))
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=10_000))
    await task
    assert (host.phase, host.actions()) == (Phase.IDLE, ["restart app.service"])


@pytest.mark.parametrize(
    "error", [Retryable("hangs", reason="BusTimeout"), Unreconcilable("bootc", reason="BootcHost")]
)
async def test_files_do_not_wait_for_rpm_ostreed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for _ in range(AGAIN + 1):
        await loop.turn()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, error.reason)  # type: ignore[attr-defined]


async def test_a_first_start_waits_for_rpm_ostreed() -> None:
    """Only the host can say what it has. Later that is known, and an update of files does not ask again."""
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


async def test_what_passes_is_not_told_as_a_refusal() -> None:
    """A bus that goes, as at each power cut and each start of systemd anew, is no reason to call anybody."""
    host = os_host()
    host.world.faults.append(Fault("list deployments", lost_answer(), times=AGAIN))
    host.want(on("b", "first"))
    loop = host.build()
    assert [await loop.turn() for _ in range(AGAIN)] == [2.2, 4.4]
    assert host.phase is Phase.IDLE
    told = [event for event in host.world.events if event.kind is EventKind.WAITING]
    assert [event.reason for event in told] == ["BusTimeout"]
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)
    assert EventKind.REFUSED not in {event.kind for event in host.world.events}


async def test_what_a_person_asked_for_outlasts_what_passes() -> None:
    host = await at_old()
    host.want(NEW)
    host.world.record = record_to_dict(replace(host.record, avoided=host.wanted))
    loop = host.build()
    await loop.turn()
    assert host.record.reason == "RolledBack"
    host.requested(loop)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=1))
    assert await loop.turn() is not None
    await host.turn_and_settle(loop)
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_what_a_person_asked_for_is_that_config_and_no_other() -> None:
    host = await at_old()
    host.want(NEW)
    host.world.record = record_to_dict(replace(host.record, avoided=host.wanted))
    host.want(MORE)
    loop = host.build()
    host.requested(loop)
    host.world.faults.append(Fault("list deployments", lost_answer(), times=1))
    assert await loop.turn() is not None
    host.want(NEW)  # something writes it there again
    await loop.turn()
    assert (host.phase, host.record.reason, booted_digest(host.world)) == (Phase.DEGRADED, "RolledBack", A_DIGEST)


async def test_a_first_start_on_a_host_that_only_bootc_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: FakeDeployments) -> list[object]:
        raise Unreconcilable("bootc", reason="BootcHost")

    monkeypatch.setattr(FakeDeployments, "list", fail)
    host = os_host()
    host.want(on("b", "whatever", {"/etc/quiet/q": "1"}, kernel_arguments=("nosmt",)))
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, [])


# Somebody else's hands


async def test_rolled_back_by_hand_is_drift() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    host.world.deployments.reverse()
    host.world.power_cut()
    host.want(on("c", "newest", {"/etc/app/x": "2", "/etc/app/y": "2"}))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Drifted")
    assert "osImageURL" in host.record.message
    host.want(on("a", "as it is", {"/etc/app/x": "2", "/etc/app/y": "2"}))
    await host.settle()
    assert (host.phase, host.world.history[-1].disruption) == (Phase.IDLE, "none")


async def test_a_refusal_while_reverted_outlives_the_daemon() -> None:
    host = await at_old()
    host.world.faults.append(full_disk())
    host.want(MORE)
    await host.settle()
    host.world.repair("install")
    rejected = host.record.rejected
    host.world.faults.append(Fault("guard", Refused("zincati", reason="OtherDriver"), times=None))
    host.want(on("c", "newest"))
    await host.settle()
    assert (host.phase, host.record.reason, host.record.rejected) == (Phase.DEGRADED, "OtherDriver", rejected)


async def test_rollback_goes_back_and_stays_there() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    new = host.world.current
    host.want(OLD)
    assert host.loop is not None
    # As the daemon does it: one process, which also remembers what to avoid.
    await host.ask(host.loop, avoid=new)
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)
    assert (host.world.previous, host.record.avoided) == (new, new)
    host.want(NEW)  # something writes it there again
    await host.settle()
    assert (host.phase, host.record.reason, booted_digest(host.world)) == (Phase.DEGRADED, "RolledBack", A_DIGEST)
    await host.ask()  # a person does
    assert (host.phase, booted_digest(host.world), host.record.avoided) == (Phase.IDLE, B_DIGEST, "")


async def test_deployments_are_told_when_they_change() -> None:
    host = await at_old()
    host.want(NEW)
    await host.settle()
    orders = [event.fields["deployments"] for event in host.world.events if event.kind is EventKind.DEPLOYMENTS]
    assert all(before != after for before, after in pairwise(orders))
    assert [d.digest for d in orders[-1]] == [B_DIGEST, A_DIGEST]
    assert any(d.staged and d.locked for order in orders for d in order)
