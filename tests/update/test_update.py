# SPDX-License-Identifier: Apache-2.0
"""Updates from start to end over the host in memory: what is done, what is not, and what it leads to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.errors import ServiceUnavailable, Terminal
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import (
    ConfigRefused,
    DesiredChanged,
    FallbackChosen,
    StepSkipped,
    UpdateFinished,
    UpdateWaiting,
    Warned,
)
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.record import Record
from nodeagent.update.states import Phase
from tests.support.keys import ed25519, sha512
from tests.world import FakeStore, FakeUnit, FakeUsers, Fault, World, full_disk
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime


def host(**units: FakeUnit) -> Host:
    names = {f"{name}.service": unit for name, unit in units.items()}
    base = {"app.service": FakeUnit(), "web.service": FakeUnit(), "trust.service": FakeUnit(type="oneshot")}
    return Host(World(units=base | names))


A = config("a", {"/etc/app/x": "1", "/etc/quiet/q": "1"})
B = config("b", {"/etc/app/x": "2", "/etc/quiet/q": "1"})


async def started(first: object = A, **units: FakeUnit) -> Host:
    """A host that runs config ``a``."""
    it = host()
    it.want(first)  # type: ignore[arg-type]
    await it.settle()
    assert it.phase is Phase.IDLE
    it.world.done.clear()
    it.world.units.update({f"{name}.service": unit for name, unit in units.items()})
    return it


async def test_a_change_is_written_acted_on_and_promoted() -> None:
    it = await started()
    it.want(B)
    await it.settle()
    assert it.world.disk["/etc/app/x"] == RegularFile(b"2")
    assert it.actions() == ["restart app.service"]
    assert it.world.units["app.service"].read["/etc/app/x"] == RegularFile(b"2")
    assert it.configs[it.world.current].name == "b"
    assert it.world.holder is None
    entry = it.world.history[-1]
    assert (entry.outcome, entry.disruption, entry.reboots, entry.reboot_avoided) == ("done", "restart", 0, True)


async def test_what_the_host_has_already_is_no_change() -> None:
    it = host()
    it.world.disk["/etc/secret-of-mine"] = RegularFile(b"1")
    it.world.disk["/etc/unlisted"] = RegularFile(b"1")
    it.want(config("a", {"/etc/unlisted": "1"}))
    await it.settle()
    assert (it.phase, it.actions(), it.world.boot) == (Phase.IDLE, [], 1)
    assert it.world.history[-1].disruption == "none"


async def test_unlisted_reboots_once_and_is_verified_after_it() -> None:
    it = await started()
    it.want(config("c", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"}))
    await it.settle()
    assert it.actions() == ["reboot"]
    assert (it.phase, it.world.boot) == (Phase.IDLE, 2)
    assert it.world.history[-1].reboots == 1
    assert not it.world.history[-1].reboot_avoided


async def test_removal_brings_back_what_was_there() -> None:
    it = host()
    original = RegularFile(b"from the OS", 0o600)
    it.world.dirs.add("/etc/app")
    it.world.disk["/etc/app/x"] = original
    it.want(A)
    await it.settle()
    it.want(config("none"))
    await it.settle()
    assert it.world.disk == {"/etc/app/x": original}
    assert it.world.dirs == {"/", "/etc", "/etc/app"}
    assert it.world.originals == {}


@pytest.mark.parametrize(
    "unit",
    [FakeUnit(bad_until_boot=2), FakeUnit(bad_until_boot=2, hang=True), FakeUnit(dies_after=3, bad_until_boot=2)],
    ids=["fails", "hangs", "dies after 3 s"],
)
async def test_a_failed_action_falls_back_to_one_reboot(unit: FakeUnit) -> None:
    it = await started()
    unit.bad_until_boot = 2 if unit.dies_after is None and not unit.hang else 0
    it.world.units["app.service"] = unit
    it.want(B)
    await it.settle()
    assert it.actions() == ["restart app.service", "reboot"]
    assert it.phase is Phase.IDLE
    assert it.configs[it.world.current].name == "b"
    entry = it.world.history[-1]
    assert (entry.outcome, entry.reboots) == ("done-after-fallback", 1)
    assert "app.service" in entry.reason
    assert FallbackChosen in {type(event) for event in it.world.events}


async def test_still_bad_after_the_reboot_is_reverted_and_never_rebooted_again() -> None:
    it = await started()
    it.world.units["app.service"].bad_until_boot = 99
    it.want(B)
    await it.settle()
    assert it.world.disk["/etc/app/x"] == RegularFile(b"1")
    assert it.actions().count("reboot") == 1
    # the unit is as bad with the old config, so the revert fails as well: an operator is needed
    assert it.phase is Phase.DEGRADED
    assert it.configs[it.world.current].name == "a"


def shown(it: Host) -> Status:
    """Return the status of the report."""
    folded = Status()
    for event in it.world.events:
        folded = fold(folded, event)
    return folded


async def test_reverted_when_only_the_new_config_is_bad() -> None:
    it = await started()

    class Picky(FakeUnit):
        """Fails as long as it is given the new config."""

        @property
        def bad_until_boot(self) -> int:
            return 99 if it.world.disk.get("/etc/app/x") == RegularFile(b"2") else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    it.world.units["app.service"] = Picky()
    it.want(B)
    await it.settle()
    assert it.actions() == ["restart app.service", "reboot", "restart app.service"]
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "Reverted")
    assert it.record.failed_unit is not None
    assert it.record.failed_unit.name == "app.service"
    assert shown(it).failed_unit == it.record.failed_unit
    assert it.world.disk["/etc/app/x"] == RegularFile(b"1")
    assert it.world.units["app.service"].active == "active"
    assert it.world.history[-1].outcome == "reverted"
    assert it.world.holder is None
    await it.settle()  # a restart of the daemon does not try the rejected config again
    assert it.actions().count("restart app.service") == 2
    it.want(config("c", {"/etc/app/x": "3", "/etc/quiet/q": "1"}))
    await it.settle()
    assert (it.phase, it.configs[it.world.current].name) == (Phase.IDLE, "c")
    assert shown(it).failed_unit is None


async def test_degraded_as_set_keeps_the_lease_and_the_next_config_repairs() -> None:
    it = await started()
    it.limits = it.limits.__class__(**{**_fields(it.limits), "revert": False})
    it.world.units["app.service"].bad_until_boot = 3
    it.want(B)
    await it.settle()
    assert (it.phase, it.actions()) == (Phase.DEGRADED, ["restart app.service", "reboot"])
    assert it.world.disk["/etc/app/x"] == RegularFile(b"2")
    assert it.world.holder is not None
    it.world.units["app.service"].bad_until_boot = 0
    it.want(A)
    await it.settle()
    assert (it.phase, it.world.disk["/etc/app/x"]) == (Phase.IDLE, RegularFile(b"1"))
    assert it.actions()[-1] == "restart app.service"
    assert it.world.holder is None


def _fields(limits: object) -> dict[str, object]:
    return {name: getattr(limits, name) for name in limits.__dataclass_fields__}  # type: ignore[attr-defined]


async def test_what_the_os_ships_comes_back_even_if_it_was_never_ours_to_change() -> None:
    """An ostree host: the entry matched at the first start, so there was nothing to remember."""
    it = host()
    it.world.disk["/etc/quiet/q"] = it.world.disk["/usr/etc/quiet/q"] = RegularFile(b"1")
    it.want(config("a", {"/etc/quiet/q": "1"}))
    await it.settle()
    it.want(config("none"))
    await it.settle()
    assert it.world.disk["/etc/quiet/q"] == RegularFile(b"1")


async def test_another_os_has_another_default() -> None:
    """The file before the config was a default of the OS, so it returns as the present OS has it."""
    it = host()
    shipped = "/usr/etc/quiet/q"
    it.world.disk["/etc/quiet/q"] = it.world.disk[shipped] = RegularFile(b"default of a")
    it.want(config("a", {"/etc/quiet/q": "1", "/etc/quiet/new": "1"}))
    await it.settle()
    assert it.world.disk["/etc/quiet/q"] == RegularFile(b"1")
    it.world.disk |= {shipped: RegularFile(b"default of b"), "/usr/etc/quiet/new": RegularFile(b"new in b")}
    it.want(config("none"))
    await it.settle()
    assert it.world.disk["/etc/quiet/q"] == RegularFile(b"default of b")
    assert it.world.disk["/etc/quiet/new"] == RegularFile(b"new in b")


async def test_an_edited_default_comes_back() -> None:
    it = host()
    it.world.disk |= {"/etc/quiet/q": RegularFile(b"by hand"), "/usr/etc/quiet/q": RegularFile(b"default")}
    it.want(config("a", {"/etc/quiet/q": "1"}))
    await it.settle()
    it.want(config("none"))
    await it.settle()
    assert it.world.disk["/etc/quiet/q"] == RegularFile(b"by hand")


async def test_no_space_leaves_the_old_state_whole() -> None:
    it = await started()
    before = dict(it.world.disk)
    it.world.faults.append(full_disk())
    it.want(B)
    await it.settle()
    assert it.world.disk == before
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "Reverted")
    assert it.world.history[-1].reason == "NoSpace"
    assert it.actions() == []


async def test_waits_for_the_lease_and_says_who_has_it() -> None:
    it = await started()
    it.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    it.want(B)
    task = asyncio.create_task(it.settle())
    await asyncio.sleep(100)
    assert it.phase is Phase.LEASING
    assert it.actions() == []
    waiting = [event for event in it.world.events if isinstance(event, UpdateWaiting)]
    assert len(waiting) == 1
    assert "alice" in waiting[0].message
    it.world.holder = None
    await task
    assert it.phase is Phase.IDLE


async def test_a_newer_config_takes_over_before_anything_is_written() -> None:
    it = await started()
    it.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    it.want(B)
    task = asyncio.create_task(it.settle())
    await asyncio.sleep(20)
    it.want(config("c", {"/etc/app/x": "3", "/etc/quiet/q": "1"}))
    await asyncio.sleep(20)
    it.world.holder = None
    await task
    assert it.world.disk["/etc/app/x"] == RegularFile(b"3")
    assert it.actions() == ["restart app.service"]
    assert [(entry.to_name, entry.outcome) for entry in it.world.history] == [
        ("a", "done"),
        ("b", "superseded"),
        ("c", "done"),
    ]


async def test_looking_again_at_the_same_config_does_not_start_over() -> None:
    it = await started()
    it.world.holder = Holder("alice", "maintenance", "disk swap", "now")
    it.want(B)
    task = asyncio.create_task(it.settle())
    await asyncio.sleep(5)
    first = it.record.update_id
    for _ in range(3):
        it.want(B)
        await asyncio.sleep(5)
    assert it.record.update_id == first
    it.world.holder = None
    await task
    assert it.world.history[-1].update_id == first


async def test_a_newer_config_in_the_middle_waits_for_the_end() -> None:
    it = await started()
    it.want(B)
    task = asyncio.create_task(it.settle())
    while it.phase is not Phase.VERIFYING:
        await asyncio.sleep(0.5)
    it.want(config("c", {"/etc/app/x": "3", "/etc/quiet/q": "1"}))
    await task
    assert [entry.to_name for entry in it.world.history] == ["a", "b", "c"]
    assert it.actions() == ["restart app.service", "restart app.service"]


async def test_blockers_are_waited_for_and_then_overridden() -> None:
    it = await started()
    it.world.blockers = [Inhibitor("apt", "installing", "apt (7)")]
    it.want(config("c", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"}))
    start = asyncio.get_running_loop().time()
    await it.settle()
    waited = asyncio.get_running_loop().time() - start
    assert waited >= it.limits.inhibitor_wait
    assert it.actions() == ["reboot"]
    found = [event for event in it.world.events if getattr(event, "reason", "") == "RebootBlocked"]
    assert [type(event) for event in found] == [UpdateWaiting, Warned]


async def test_a_reboot_that_never_comes_ends_in_degraded() -> None:
    it = await started()
    it.world.faults.append(Fault("ignored reboot", times=None))
    it.want(config("c", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"}))
    await it.settle()
    assert (it.phase, it.record.reason) == (Phase.DEGRADED, "RebootFailed")


async def test_drift_is_refused_and_nothing_is_touched() -> None:
    it = await started()
    it.world.disk["/etc/quiet/q"] = RegularFile(b"by hand")
    it.want(B)
    await it.settle()
    assert (it.phase, it.record.reason, it.actions()) == (Phase.DEGRADED, "Drifted", [])
    assert "/etc/quiet/q" in it.record.message
    refused, ended = (event for event in it.world.events[-3:] if not isinstance(event, DesiredChanged))
    assert isinstance(refused, ConfigRefused)
    assert isinstance(ended, UpdateFinished)
    assert (refused.about.desired, refused.about.phase, ended.entry.to_name) == ("b", Phase.DEGRADED, "b")
    it.world.disk["/etc/quiet/q"] = RegularFile(b"1")
    await it.settle()
    assert it.phase is Phase.IDLE


async def test_drift_is_repaired_as_set() -> None:
    it = await started()
    it.on_drift = "repair"
    it.world.disk["/etc/quiet/q"] = RegularFile(b"by hand")
    it.want(B)
    await it.settle()
    assert (it.phase, it.world.disk["/etc/quiet/q"]) == (Phase.IDLE, RegularFile(b"1"))


async def test_units_the_host_lacks_are_skipped_but_not_those_of_the_admin() -> None:
    it = await started()
    del it.world.units["web.service"]
    it.want(config("b", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/web/x": "1"}))
    await it.settle()
    assert (it.phase, it.actions()) == (Phase.IDLE, [])
    skipped = [event for event in it.world.events if isinstance(event, StepSkipped)]
    assert "not on this host" in skipped[0].message


async def test_a_unit_and_its_enablement_come_and_go() -> None:
    it = await started(config("a"))
    install = "[Install]\nWantedBy=multi-user.target\n"
    unit = UnitEntry("app.service", f"[Service]\nExecStart=/bin/true\n{install}", enabled=True)
    it.world.units["app.service"].file = "disabled"
    it.want(config("b", units=[unit]))
    await it.settle()
    assert it.actions() == ["daemon-reload", "restart app.service"]
    assert it.world.units["app.service"].file == "enabled"
    it.want(config("a"))
    await it.settle()
    assert it.world.units["app.service"].file == "disabled"
    assert "/etc/systemd/system/app.service" not in it.world.disk


async def test_a_user_that_leaves_is_locked_and_keeps_no_keys() -> None:
    it = await started(config("a"))
    it.want(config("b", keys=[ed25519("me")], password=sha512("hash")))
    await it.settle()
    assert it.world.passwords["core"] == sha512("hash")
    assert it.actions() == []
    # Only an operator takes away the last way to log in.
    it.wanted = it.add(config("c"))
    loop = it.build()
    async with loop.recorded(ApplyRequest(it.wanted, lockout=True)):
        pass
    await it.turn_and_settle(loop)
    assert it.world.passwords["core"] == "!" + sha512("hash")
    assert not it.world.disk


async def test_a_password_that_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going back must not need what has just failed: the old hash is still there."""
    old = config("a", {"/etc/quiet/q": "1"}, keys=[ed25519("me")], password=sha512("a"))
    it = await started(old)

    async def fail(_self: FakeUsers, _user: str, _value: str) -> None:
        raise Terminal("chpasswd was killed", reason=Reason.PASSWORD_NOT_SET)

    monkeypatch.setattr(FakeUsers, "set_password_hash", fail)
    it.want(config("b", {"/etc/quiet/q": "2"}, keys=[ed25519("me")], password=sha512("b")))
    await it.settle()
    assert (it.record.reason, it.world.history[-1].reason) == ("Reverted", "PasswordNotSet")
    assert it.world.passwords["core"] == sha512("a")
    assert it.world.disk == expand(old)


async def test_a_store_that_fills_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An action that cannot be recorded must not be repeated at every start of the daemon."""
    it = await started()
    save = FakeStore.save

    async def full(self: FakeStore, record: Record) -> None:
        if it.actions():
            raise Terminal("no space left", reason=Reason.NO_SPACE)
        await save(self, record)

    monkeypatch.setattr(FakeStore, "save", full)
    it.want(B)
    for _ in range(5):
        with pytest.raises(Terminal, match="no space left"):
            await it._live()
    assert it.actions() == ["restart app.service"]
    monkeypatch.setattr(FakeStore, "save", save)
    await it.settle()
    assert it.phase is Phase.IDLE
    assert it.actions() == ["restart app.service"], "systemd knows that it was restarted"
    assert it.world.history[-1].outcome == "done"


WEB = config("web", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/web/x": "1"})


async def test_a_service_that_was_well_must_be_well_afterwards() -> None:
    it = await started()
    it.want(WEB)
    task = asyncio.create_task(it.settle())
    while it.phase is not Phase.VERIFYING:
        await asyncio.sleep(0.1)
    it.world.units["web.service"].health = "healthz answers 500"
    await task
    assert "reboot" in it.actions()
    assert "healthz answers 500" in it.world.history[-1].message


class IllWithTheNewFile(FakeUnit):
    @property
    def health(self) -> str:
        return "plugin x is in the state error" if "/etc/web/x" in self.read else ""

    @health.setter
    def health(self, value: str) -> None: ...


@pytest.mark.parametrize("lasting", [True, False])
async def test_a_problem_that_stays_until_the_next_start_is_not_waited_for(lasting: bool) -> None:
    it = await started()
    it.limits = replace(it.limits, may_reboot=False)
    it.world.units["web.service"] = IllWithTheNewFile(ill_until_start=lasting)
    it.want(WEB)
    began = asyncio.get_running_loop().time()
    await it.settle()
    assert (asyncio.get_running_loop().time() - began < it.limits.verify_timeout) is lasting
    entry = it.world.history[-1]
    assert (entry.outcome, entry.reason) == ("reverted", "UnitUnhealthy" if lasting else "VerifyLate")


async def test_what_was_unwell_before_is_not_held_against_the_new_config() -> None:
    it = await started()
    it.world.units["web.service"].health = "healthz answers 500"
    it.want(WEB)
    await it.settle()
    assert (it.phase, it.actions()) == (Phase.IDLE, ["reload web.service"])


async def lose_the_bus(faults: int) -> Host:
    it = await started()
    it.want(B)
    task = asyncio.create_task(it.settle())
    while it.phase is not Phase.VERIFYING:
        await asyncio.sleep(0.1)
    lost = ServiceUnavailable("connection to the bus was lost", reason=Reason.BUS_CONNECTION_LOST)
    it.world.faults.append(Fault("unit state", lost, times=faults))
    await task
    return it


async def test_a_bus_that_drops_for_a_moment_reverts_nothing() -> None:
    it = await lose_the_bus(2)
    assert (it.phase, it.actions()) == (Phase.IDLE, ["restart app.service"])
    assert it.world.disk["/etc/app/x"] == RegularFile(b"2")


async def test_a_bus_that_stays_away_is_waited_for() -> None:
    it = await lose_the_bus(20)
    assert (it.phase, it.actions()) == (Phase.IDLE, ["restart app.service"])
    assert it.world.disk["/etc/app/x"] == RegularFile(b"2")


async def test_a_store_that_takes_no_refusal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal meets the fault that caused it, and is still reported."""
    it = await started()
    it.want(B)

    async def full(_self: FakeStore, *_what: object) -> None:
        raise Terminal("no space left", reason=Reason.NO_SPACE)

    for write in ("put_config", "save"):
        monkeypatch.setattr(FakeStore, write, full)
    running = asyncio.create_task(it.build().run())
    await asyncio.sleep(100)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "NoSpace" in {event.reason for event in it.world.events if isinstance(event, ConfigRefused)}
