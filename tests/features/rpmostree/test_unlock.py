# SPDX-License-Identifier: Apache-2.0
"""Unlock without the reboot of the daemon, and the result of the last shutdown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Variant

from nodeagent.core.plan.deployment import StagedLock
from nodeagent.errors import Refused, Terminal
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.host import programs as host_programs
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.staged import OwnDeployments, Ownership
from nodeagent.host.systemd import Systemd
from tests.features.rpmostree.adapters import INACTIVE, adapter
from tests.features.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")
FINALIZE = "ostree-finalize-staged.service"


@pytest.fixture
def os(private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, model: FakeRpmOstree) -> RpmOstree:
    return adapter(private_bus, Systemd(bus), model.root)


def unlocks(manager: FakeSystemd, model: FakeRpmOstree) -> None:
    async def run(job: int, unit: str) -> None:
        model.write_state(model.first, locked=False)
        await manager.finish(job, unit, "done")

    manager.job_script = run


async def staged_by_us(model: FakeRpmOstree, *, good: bool = True) -> dict[str, Any]:
    """Leave the record of a transaction of the agent, which succeeded or not."""
    staged = model.stage()
    own = OwnDeployments({staged["id"]}, {staged["id"]} if good else set())
    await asyncio.to_thread(Ownership(model.root).close, own)
    return staged


@pytest.mark.finding(
    "rpm-ostreed: failed transactions",
    "It is neither accepted nor unlocked when the agent was killed before, or the discard fails.",
)
async def test_what_a_failed_transaction_left_is_never_unlocked(
    os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree
) -> None:
    staged = await staged_by_us(model, good=False)
    with pytest.raises(Refused) as caught:
        await os.unlock(staged["id"])
    assert caught.value.reason == "StagedLost"
    assert not manager.transient


async def test_a_lock_in_the_state(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    staged = await staged_by_us(model)
    unlocks(manager, model)
    await os.unlock(staged["id"])
    ((_, command),) = manager.transient
    assert command == ["/usr/bin/ostree", "admin", "lock-finalization", "--unlock"]
    await os.unlock(staged["id"])
    assert len(manager.transient) == 1


async def test_a_lock_that_is_a_file(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    model.legacy_locks = True
    staged = await staged_by_us(model)
    await os.unlock(staged["id"])
    assert not (model.root / "run/ostree/staged-deployment-locked").exists()
    assert not manager.transient


async def test_the_finalizer_is_started_first(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    model.legacy_locks = True
    staged = await staged_by_us(model)
    manager.units[FINALIZE] = dict(INACTIVE)

    async def start(job: int, unit: str) -> None:
        assert (model.root / "run/ostree/staged-deployment-locked").exists()
        manager.units[FINALIZE] = {}
        await manager.finish(job, unit, "done")

    manager.job_script = start
    await os.unlock(staged["id"])
    assert "StartUnit" in manager.members()
    assert "RestartUnit" not in manager.members()  # its stop finalizes


async def test_a_finalizer_that_does_not_come_up(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    staged = await staged_by_us(model)
    manager.units[FINALIZE] = dict(INACTIVE)
    with pytest.raises(Terminal) as caught:
        await os.unlock(staged["id"])
    assert caught.value.reason == "UnlockFailed"
    assert not manager.transient


async def test_something_else_or_nothing_is_staged(os: RpmOstree, model: FakeRpmOstree) -> None:
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            await os.unlock("fedora-coreos-x.0")
        assert caught.value.reason == "StagedLost"
        model.stage()


async def test_a_command_that_fails(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    staged = await staged_by_us(model)
    manager.properties["ExecMainStatus"] = Variant("i", 3)
    manager.job_script = lambda job, unit: manager.finish(job, unit, "failed")
    with pytest.raises(Terminal, match="failed, exit status 3") as caught:
        await os.unlock(staged["id"])
    assert caught.value.reason == "CommandFailed"
    assert manager.members()[-1] == "ResetFailedUnit"


@pytest.mark.parametrize(
    ("properties", "result", "words", "reason"),
    [
        ({"Result": "timeout"}, "failed", "it did not end within", "CommandTimedOut"),
        ({"Result": "signal"}, "failed", "failed, ended by SIGTERM", "CommandFailed"),
        ({}, "timeout", "it did not end within", "CommandTimedOut"),
    ],
)
async def test_a_command_that_is_ended(
    os: RpmOstree,
    manager: FakeSystemd,
    model: FakeRpmOstree,
    properties: dict[str, str],
    result: str,
    words: str,
    reason: str,
) -> None:
    """The number of the signal is no exit status."""
    staged = await staged_by_us(model)
    manager.properties |= {name: Variant("s", value) for name, value in properties.items()}
    manager.properties |= {"ExecMainCode": Variant("i", 2), "ExecMainStatus": Variant("i", 15)}
    manager.job_script = lambda job, unit: manager.finish(job, unit, result)
    with pytest.raises(Terminal, match=words) as caught:
        await os.unlock(staged["id"])
    assert caught.value.reason == reason
    assert "15" not in caught.value.message.partition("; see")[0], "the name of the unit is random"


async def test_a_command_that_does_nothing(os: RpmOstree, model: FakeRpmOstree) -> None:
    staged = await staged_by_us(model)
    with pytest.raises(Terminal) as caught:
        await os.unlock(staged["id"])
    assert caught.value.reason == "UnlockFailed"


# -- afterwards -------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the output of journalctl, by the name of the unit."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "journalctl"
    program.write_text(f'#!/bin/sh\ncat "{tmp_path}/$1$2" 2>/dev/null\n')
    program.chmod(0o755)
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{programs}:/usr/bin:/bin")
    return tmp_path


async def test_nothing_went_wrong(os: RpmOstree, journal: Path) -> None:
    assert await os.finalize_failure() == ""


async def test_a_stamp_that_was_not_read_yet(os: RpmOstree, journal: Path) -> None:
    stamp = journal / "boot/ostree/finalize-failure.stamp"
    stamp.parent.mkdir(parents=True)
    stamp.write_text("Installing kernel: No space left on device\n")
    assert await os.finalize_failure() == "Installing kernel: No space left on device"


async def test_the_unit_that_read_it_failed(os: RpmOstree, manager: FakeSystemd, journal: Path) -> None:
    manager.units["ostree-boot-complete.service"] = {"ActiveState": Variant("s", "failed")}
    assert "gives no reason" in await os.finalize_failure()
    (journal / "--boot=0--unit=ostree-boot-complete.service").write_text(
        "Starting OSTree Complete Boot...\n"
        "error: ostree-finalize-staged.service failed on previous boot: Installing kernel: No space left on device\n"
        "Failed to start OSTree Complete Boot.\n"
    )
    assert await os.finalize_failure() == "Installing kernel: No space left on device"


async def test_systemd_had_to_kill_it(os: RpmOstree, journal: Path) -> None:
    (journal / "--boot=-1--unit=ostree-finalize-staged.service").write_text(
        "Finalizing staged deployment\nostree-finalize-staged.service: Failed with result 'timeout'.\n"
    )
    assert "timeout" in await os.finalize_failure()


async def test_there_was_no_room_for_a_stamp(os: RpmOstree, journal: Path) -> None:
    before = journal / "--boot=-1--unit=ostree-finalize-staged.service"
    before.write_text(
        "Finalizing staged deployment\n"
        "Failed to write ostree/finalize-failure.stamp: fallocate: No space left on device\n"
        "error: Installing kernel: regfile copy: No space left on device\n"
        "ostree-finalize-staged.service: Failed with result 'exit-code'.\n"
    )
    assert await os.finalize_failure() == "Installing kernel: regfile copy: No space left on device"
    before.write_text("error: of another client\nostree-finalize-staged.service: Deactivated successfully.\n")
    assert await os.finalize_failure() == ""


@pytest.mark.finding(
    "OS: locked deployments", "A deployment of the agent that was unlocked is locked again, for all versions."
)
async def test_an_unlocked_deployment_is_locked_again(
    os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree
) -> None:
    assert await os.staged_lock() is None
    staged = await staged_by_us(model)
    assert await os.staged_lock() == StagedLock(staged["id"], locked=True)
    model.write_state(staged, locked=False)
    assert await os.staged_lock() == StagedLock(staged["id"], locked=False)
    await os.lock_again("os-other.0")
    assert await os.staged_lock() == StagedLock(staged["id"], locked=False), "another one is not touched"
    await os.lock_again(staged["id"])
    assert await os.staged_lock() == StagedLock(staged["id"], locked=True)
    # The agent unlocks it for its own reboot all the same.
    await os.unlock(staged["id"])
    assert await os.staged_lock() == StagedLock(staged["id"], locked=False)


@pytest.mark.finding(
    "OS: what a boot brings", "What a reboot boots is read from the files of libostree, on hosts of bootc as well."
)
async def test_what_another_program_staged_for_the_next_boot(os: RpmOstree, model: FakeRpmOstree) -> None:
    assert await os.boots_of_other("") == ""
    other = model.stage()
    assert await os.boots_of_other("") == "", "a locked one boots with no reboot"
    model.write_state(other, locked=False)
    assert await os.boots_of_other("") == other["id"]
    assert await os.boots_of_other(other["id"]) == ""
    await asyncio.to_thread(Ownership(model.root).close, OwnDeployments({other["id"]}, set()))
    assert await os.boots_of_other("") == "", "the record of the stagings names it"
