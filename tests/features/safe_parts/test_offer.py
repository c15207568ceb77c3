# SPDX-License-Identifier: Apache-2.0
"""``on_blocked: apply-safe-parts``: while a part of a config cannot be applied, the parts without a disruption are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.deployment import staged
from nodeagent.errors import Refused, Terminal
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.reasons import Reason
from nodeagent.update.history.lasting import Hold, Rejection
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import SafePartsApplied, UpdateDone, UpdateStarted
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.run import Run, UpdatePolicy
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Apply, Leg, Phase, Prepare, Transition
from nodeagent.update.wait import Delayed
from tests.agent.test_api import DESIRED, api
from tests.features.safe_parts.offering import offering
from tests.support.keys import ed25519
from tests.update.test_outages import During, hung
from tests.world import FakeUnit, Fault, Killed, World, kill_points, os_host
from tests.world.os_host import NEW_FILES, on
from tests.world.run import LIMITS, Host, config, until

pytestmark = pytest.mark.looptime

# Equal to those of a host without the setting.
SAFE = replace(LIMITS)
NO_REBOOT = replace(SAFE, may_reboot=False)

OLD = config("old", {"/etc/web/x": "1", "/etc/unlisted": "1", "/etc/quiet/gone": "1"}, keys=[ed25519("old")])
MIXED = config("mixed", {"/etc/web/x": "2", "/etc/unlisted": "2", "/etc/moved/y": "2"}, keys=[ed25519("new")])
PARTLY = config("mixed", {"/etc/web/x": "2", "/etc/unlisted": "1"}, keys=[ed25519("new")])
# The first config needed a reboot.
BOOT = 2
WAITS = {"file:/etc/unlisted", "file:/etc/moved/y"}


class Closed(Guard):
    async def may_begin(self, run: Run) -> None:
        raise Refused("no update may begin now")


CLOSED = (Closed(),)


async def at_old(limits: UpdatePolicy = SAFE, *, guards: Sequence[Guard] = (), **more: object) -> Host:
    units = {name: FakeUnit() for name in ("app.service", "web.service")}
    units["trust.service"] = FakeUnit(type="oneshot")
    host = Host(World(units=units), limits=SAFE)
    host.want(OLD)
    await host.settle()
    host.world.done.clear()
    host.world.events.clear()
    host.world.calls = 0
    host.limits, host.guards = limits, guards
    if limits is not LIMITS:
        offering(host, *guards)
    for name, value in more.items():
        setattr(host, name, value)
    return host


@asynccontextmanager
async def living(host: Host, seconds: float = 600) -> AsyncIterator[None]:
    """Inside, the daemon has run for that time; then it is killed."""
    life = asyncio.create_task(host._live())
    await asyncio.wait({life}, timeout=seconds)
    try:
        yield
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def live(host: Host, seconds: float = 600) -> None:
    async with living(host, seconds):
        pass


def disk(host: Host) -> dict[str, object]:
    return {path: node for path, node in host.world.disk.items() if path != "/x"}


def assert_partly(host: Host, has: MachineConfig = PARTLY) -> None:
    """The host has the safe parts, the current config is the old one, and nothing was disrupted."""
    partial = host.record.lasting.partial
    assert disk(host) == expand(has)
    assert host.configs[host.world.current].name == "old"
    assert partial is not None
    assert partial.desired == host.wanted
    assert {entry for entry, _ in partial.waits} == WAITS
    assert set(host.actions()) <= {"reload web.service"}
    assert host.world.boot == BOOT
    for path, node in expand(has).items():
        if path.startswith("/etc/web/"):
            assert host.world.units["web.service"].read.get(path) == node


def assert_whole(host: Host, wanted: MachineConfig = MIXED) -> None:
    assert host.phase is Phase.IDLE
    assert disk(host) == expand(wanted)
    assert host.configs[host.world.current].name == wanted.name
    assert host.record.lasting.partial is None
    assert host.world.holder is None
    assert host.world.snapshots == {}


async def test_a_time_without_updates_holds_everything_by_default() -> None:
    host = await at_old(LIMITS, guards=CLOSED)
    host.want(MIXED)
    await live(host)
    assert (disk(host), host.record.reason) == (expand(OLD), "")
    assert host.phase is Phase.LEASING
    assert host.record.lasting.partial is None


async def test_a_time_without_updates_holds_only_what_disrupts() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    async with living(host):
        assert_partly(host)
        # The rest waits, with the lease free for others.
        assert (host.phase, host.world.holder) == (Phase.LEASING, None)
    (applied,) = [event for event in host.world.events if isinstance(event, SafePartsApplied)]
    assert str(applied.partial.cause).startswith("Refused: no update may begin now")
    assert dict(applied.partial.waits) == {
        "file:/etc/moved/y": "Drain, Restart app.service",
        "file:/etc/unlisted": "Drain, Reboot",
    }
    assert set(applied.partial.applied) == {"file:/etc/web/x", "file:/etc/quiet/gone", "sshkey:core"}
    assert not [event for event in host.world.events if isinstance(event, UpdateDone)]
    started = [event.actions for event in host.world.events if isinstance(event, UpdateStarted)]
    assert [text.startswith("only what needs no disruption: ") for text in started] == [False] * (len(started) - 2) + [
        True,
        False,
    ]
    assert [entry.outcome for entry in host.world.history[1:]] == ["partial"]


async def test_when_updates_may_begin_the_rest_follows_and_is_promoted() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    await live(host)
    offering(host)
    host.world.done.clear()
    await host.settle()
    assert_whole(host)
    assert host.configs[host.world.previous].name == "old"
    assert [(e.from_name, e.to_name, e.outcome) for e in host.world.history[1:]] == [
        ("old", "mixed", "partial"),
        ("old", "mixed", "done"),
    ]
    assert host.actions().count("reboot") == 1


async def test_a_config_without_a_disruption_does_not_wait_for_the_time() -> None:
    host = await at_old(guards=CLOSED)
    quiet = replace(PARTLY, name="quiet")
    host.want(quiet)
    await live(host)
    assert_whole(host, quiet)
    assert host.world.history[-1].outcome == "done"


async def test_a_part_that_waits_is_no_drift_and_an_applied_one_is() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    await live(host)
    partial = host.record.lasting.partial
    assert partial is not None
    assert await mismatches(host.ports(), host.configs[partial.digest]) == {}
    host.world.disk.pop("/etc/web/x")
    assert set(await mismatches(host.ports(), host.configs[partial.digest])) == {"file:/etc/web/x"}


async def test_a_reboot_that_is_not_allowed_degrades_the_host_with_the_safe_parts() -> None:
    host = await at_old(NO_REBOOT)
    host.want(MIXED)
    await live(host)
    assert_partly(host)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RebootNotAllowed")


async def test_a_fix_reaches_a_host_that_is_degraded_already() -> None:
    host = await at_old(NO_REBOOT)
    stuck = replace(OLD, name="stuck", files={**OLD.files, **config("", {"/etc/unlisted": "2"}).files})
    host.want(stuck)
    await live(host)
    assert (host.record.reason, disk(host)) == ("RebootNotAllowed", expand(OLD))
    host.want(MIXED)
    await live(host)
    assert_partly(host)


async def test_an_inhibitor_of_the_reboot_does_not_hold_the_safe_parts() -> None:
    host = await at_old(SAFE)
    host.world.blockers = [Inhibitor("backup", "backs up", "tar")]
    host.want(MIXED)
    await live(host, 30)
    outcomes = [entry.outcome for entry in host.world.history[1:]]
    assert outcomes == ["partial"]
    assert host.world.boot == BOOT
    host.world.blockers = []
    await host.settle()
    assert_whole(host)


async def test_a_reboot_that_an_operator_holds_back_does_not_hold_the_safe_parts() -> None:
    host = await at_old(SAFE)
    host.want(MIXED)
    host.world.request = ApplyRequest(host.wanted, no_reboot=True, requester="jane")
    async with living(host):
        assert_partly(host)
        assert (host.phase, host.record.lasting.hold) == (
            Phase.LEASING,
            Hold(host.wanted, no_reboot=True, requester="jane"),
        )
    host.world.request = ApplyRequest(host.wanted)
    await host.settle()
    assert_whole(host)


class LaterOnly(Guard):
    async def check_request(self, run: Run) -> None:
        raise Delayed("it begins later", reason=Reason.REFUSED, after=None)


async def test_nothing_is_applied_before_the_time_that_an_operator_requested() -> None:
    host = await at_old(SAFE, guards=[LaterOnly()])
    host.want(MIXED)
    await live(host)
    assert disk(host) == expand(OLD)
    assert [entry.outcome for entry in host.world.history[1:]] == []


async def test_a_cancelled_config_brings_no_fixes() -> None:
    host = await at_old(SAFE)
    host.world.units["app.service"] = unit = Bad()
    unit.world = host.world
    host.want(replace(MIXED, files={**MIXED.files, **config("", {"/etc/app/x": "2"}).files}))
    lasting = host.record.lasting
    rejection = Rejection(host.wanted, reason="Cancelled")
    rejected = replace(host.record, lasting=replace(lasting, rejections=(rejection,)))
    host.world.record = record_to_dict(rejected)
    await host.settle()
    assert disk(host) == expand(OLD)


async def test_another_holder_holds_everything() -> None:
    host = await at_old(SAFE)
    host.world.holder = Holder("kured", "kured", "reboot", "")
    host.want(MIXED)
    await live(host)
    assert disk(host) == expand(OLD)
    host.world.holder = None
    await host.settle()
    assert_whole(host)
    assert [entry.outcome for entry in host.world.history[1:]] == ["done"]


async def test_drift_elsewhere_holds_the_drifted_entry_only() -> None:
    host = await at_old(SAFE, on_drift="refuse")
    host.world.disk["/etc/web/x"] = expand(config("", {"/etc/web/x": "by hand"}))["/etc/web/x"]
    wanted = config("mixed", {"/etc/web/x": "2", "/etc/quiet/q": "2", "/etc/unlisted": "1"}, keys=[ed25519("new")])
    host.want(wanted)
    await live(host)
    partial = host.record.lasting.partial
    assert partial is not None
    assert dict(partial.waits) == {"file:/etc/web/x": "was changed by another program"}
    assert host.record.reason == "Drifted"
    assert disk(host)["/etc/web/x"].content == b"by hand"  # type: ignore[attr-defined]
    assert "/etc/quiet/q" in disk(host)


async def test_the_current_config_takes_the_safe_parts_back() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    await live(host)
    host.want(OLD)
    await live(host)
    assert_whole(host, OLD)


async def test_a_later_config_starts_from_what_the_host_has() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    await live(host)
    later = config("later", {"/etc/web/x": "3", "/etc/unlisted": "2", "/etc/quiet/gone": "1"}, keys=[ed25519("old")])
    host.want(later)
    await live(host)
    partial = host.record.lasting.partial
    assert partial is not None
    assert (partial.name, partial.applied) == ("later", ("file:/etc/web/x",))
    # The key of the config in between is gone, and what it removed is back.
    has = config("later", {"/etc/web/x": "3", "/etc/unlisted": "1", "/etc/quiet/gone": "1"}, keys=[ed25519("old")])
    assert disk(host) == expand(has)
    offering(host)
    await host.settle()
    assert_whole(host, later)


class Bad(FakeUnit):
    """Does not run with the second version of a file."""

    world: World
    path = "/etc/app/x"

    @property
    def bad_until_boot(self) -> int:
        node = self.world.disk.get(self.path)
        return 99 if b"2" in getattr(node, "content", b"") else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


async def test_safe_parts_that_fail_are_reverted_without_a_reboot_and_not_tried_again() -> None:
    host = await at_old(guards=CLOSED)
    host.world.units["app.service"] = unit = Bad()
    unit.world = host.world
    host.want(replace(MIXED, files={**MIXED.files, **config("", {"/etc/app/x": "2"}).files}))
    async with living(host):
        assert disk(host) == expand(OLD)
        assert host.phase is Phase.LEASING
        assert host.record.lasting.partial is None
    assert [entry.outcome for entry in host.world.history[1:]] == ["reverted"]
    assert host.world.boot == BOOT


async def test_a_rejected_config_still_brings_its_fixes() -> None:
    """The config failed with all of it, so only keys, credentials, authorities and registries are applied."""
    host = await at_old(SAFE)
    host.world.units["app.service"] = unit = Bad()
    unit.world = host.world
    files = config("", {"/etc/app/x": "2"}).files
    host.want(replace(MIXED, files={**MIXED.files, **files}))
    await host.settle()
    assert host.record.reason == "ConfigRejected"
    assert disk(host) == expand(replace(OLD, users=MIXED.users))
    assert [entry.outcome for entry in host.world.history[1:]] == ["reverted", "partial"]
    partial = host.record.lasting.partial
    assert partial is not None
    assert partial.fixes
    assert ("file:/etc/web/x", "failed on this host with the rest") in partial.waits


async def test_the_parts_of_a_config_that_is_rejected_later_are_taken_back() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    await live(host)
    offering(host)
    host.world.units["app.service"] = unit = Bad()
    unit.world, unit.path = host.world, "/etc/moved/y"
    await host.settle()
    assert host.record.reason == "ConfigRejected"
    assert disk(host) == expand(replace(OLD, users=MIXED.users))


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point(power: bool) -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    await live(host, 60)
    total = host.world.calls
    assert total > 40
    for fuse in kill_points(total, case=power):
        host = await at_old(guards=CLOSED)
        host.want(MIXED)
        host.world.fuse = fuse
        life = asyncio.create_task(host._live())
        await asyncio.wait({life}, timeout=60)
        life.cancel()
        (end,) = await asyncio.gather(life, return_exceptions=True)
        assert isinstance(end, Killed | asyncio.CancelledError)
        host.world.fuse = -1
        if power:
            host.world.power_cut()
        await live(host)
        partial = host.record.lasting.partial
        assert partial is not None, fuse
        assert disk(host) == expand(PARTLY), fuse
        assert host.configs[host.world.current].name == "old", fuse
        assert "reboot" not in host.actions(), fuse
        partials = [entry.outcome for entry in host.world.history[1:]]
        assert partials == ["partial"], fuse
        offering(host)
        await host.settle()
        assert_whole(host)


OS_MIXED = on("b", "new", {**NEW_FILES, "/etc/quiet/q": "2"})


async def test_an_os_update_that_waits_keeps_its_staged_deployment() -> None:
    host = await os_host.at_old()
    host.limits = SAFE
    offering(host, *CLOSED)
    host.want(OS_MIXED)
    async with living(host, 1200):
        assert host.phase is Phase.LEASING
        assert staged(host.world.deployments) is not None
        staged_once = host.world.serial
        assert staged_once == 1
        assert b"2" in host.world.disk["/etc/quiet/q"].content  # type: ignore[union-attr]
    offering(host)
    await host.settle()
    assert host.configs[host.world.current].name == "new"
    assert host.record.lasting.partial is None
    assert host.world.serial == staged_once


async def test_an_image_that_cannot_be_staged_does_not_hold_the_safe_parts() -> None:
    host = await os_host.at_old()
    offering(host)
    host.world.faults.append(Fault("stage", Terminal("no such image"), times=None))
    host.want(OS_MIXED)
    await live(host)
    assert host.phase is Phase.DEGRADED
    assert host.configs[host.world.current].name == "old"
    assert b"2" in host.world.disk["/etc/quiet/q"].content  # type: ignore[union-attr]
    host.world.faults.clear()
    await host.settle()
    assert host.configs[host.world.current].name == "new"


async def test_a_request_is_answered_by_the_end_of_the_whole_config() -> None:
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    async with living(host):
        await until(host, Phase.LEASING)
        finished = [e.entry for e in host.world.events if type(e).__name__ == "UpdateFinished"]
        assert [(entry.outcome, entry.to_digest == host.wanted) for entry in finished] == [("partial", False)]


async def test_without_logind_the_update_begins_as_without_the_setting() -> None:
    host = await at_old(SAFE)
    host.world.outage = During(host.world, Phase.LEASING, hung, "systemd-logind")
    host.want(MIXED)
    await host.settle()
    assert_whole(host)
    assert [entry.outcome for entry in host.world.history[1:]] == ["done"]


@pytest.mark.finding(
    "safe parts: counted at the end", "The end of an update counts the changes of its config that were applied before."
)
@pytest.mark.parametrize("path", [DESIRED, ""], ids=["file", "cluster"])
async def test_a_cancellation_after_the_safe_parts(path: str) -> None:
    """On a host with a file of the desired config they are taken back; the cluster desires the config as before."""
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    build, answers = host.build, list[dict[str, object]]()

    def hooked(*_: object) -> object:
        loop = build()
        work = loop.executor.work[Prepare, Phase.LEASING]

        async def first(run: Run) -> Transition | None:
            if run.record.lasting.partial is not None and not answers:
                answers.append(json.loads(await api(host, host.phase, path=path, loop=loop).cancel("root")))
                if path:
                    # The daemon reads the file that the cancellation has written.
                    host.want(OLD)
            return await work(run)

        loop.executor.work[Prepare, Phase.LEASING] = first
        return loop

    host.build = hooked  # type: ignore[method-assign,assignment]
    await live(host)
    assert [(answer["effect"], answer["applied"]) for answer in answers] == [("end", 3)]
    ended = next(entry for entry in host.world.history if entry.outcome == "cancelled")
    assert ended.message == "cancelled by root; 3 of its changes were applied before"
    host.world.disk.pop(DESIRED, None)
    assert (host.record.lasting.partial is None) == bool(path)
    assert disk(host) == expand(OLD if path else PARTLY)


async def test_a_cancellation_without_safe_parts_changed_nothing() -> None:
    host = await at_old(LIMITS, guards=CLOSED)
    host.want(MIXED)
    await live(host)
    loop = host.build()
    await api(host, host.phase, loop=loop).cancel("root")
    await live(host)
    assert host.world.history[-1].message.endswith("; nothing was changed")


SAFE_STATES: list[tuple[type[Leg], Phase]] = [
    (Prepare, Phase.LEASING),
    (Apply, Phase.WRITING),
    (Apply, Phase.ACTING),
    (Apply, Phase.VERIFYING),
]


@pytest.mark.parametrize("state", SAFE_STATES, ids=lambda state: str(state[1]))
async def test_a_cancellation_during_the_safe_parts_is_about_the_whole_config(state: tuple[type[Leg], Phase]) -> None:
    """An operator cancels a config, not the parts of it that happen to be applied first: nothing of it stays."""
    host = await at_old(guards=CLOSED)
    host.want(MIXED)
    wanted, build, said = host.wanted, host.build, list[str]()

    def hooked(*_: object) -> object:
        loop = build()
        work = loop.executor.work[state]

        async def first(run: Run) -> Transition | None:
            if run.record.safe_for and not said:
                answer = json.loads(await api(host, host.phase, loop=loop).cancel("root"))
                said.extend((answer["config"], answer["effect"]))
            return await work(run)

        loop.executor.work[state] = first
        return loop

    host.build = hooked  # type: ignore[method-assign,assignment]
    await live(host)
    assert said == ["mixed", "end" if state[0] is Prepare else "revert"]
    assert disk(host).keys() - {DESIRED} == expand(OLD).keys()
    assert {path: disk(host)[path] for path in expand(OLD)} == expand(OLD)
    assert host.record.lasting.partial is None
    assert [(found.digest, found.reason) for found in host.record.lasting.rejections] == [(wanted, "Cancelled")]
    assert (host.world.holder, host.world.request) == (None, None)
    host.world.disk.pop(DESIRED, None)

    # Also later, and when updates may begin, nothing of it is applied without a request.
    offering(host)
    await host.settle()
    assert (disk(host), host.record.reason) == (expand(OLD), "Cancelled")
    await host.ask()
    assert_whole(host)
