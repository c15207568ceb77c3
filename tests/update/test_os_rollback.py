# SPDX-License-Identifier: Apache-2.0
"""A new deployment that is bad: the rollback, and failures that do not cause one."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.update.ports.events import Warned
from nodeagent.update.states import Phase
from tests.world import FakeDeployments, FakeUnit, Fault
from tests.world.os_host import (
    A_DIGEST,
    B_DIGEST,
    C_DIGEST,
    FILES,
    KARGS,
    OLD,
    UNIT,
    at_old,
    bad_on,
    booted_digest,
    managed,
    on,
)

pytestmark = pytest.mark.looptime


BAD = on("b", "bad", {"/etc/app/x": "2"}, units=[UNIT])


async def test_bad_deployment_is_rolled_back_with_old_etc() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.want(BAD)
    await host.settle()
    ended = host.world.history[-1]
    assert (host.phase, host.record.reason, ended.reason) == (
        Phase.DEGRADED,
        "Reverted",
        "UnitUnhealthy",
    )
    assert booted_digest(host.world) == A_DIGEST
    assert managed(host.world, OLD, BAD) == expand(OLD)
    assert host.actions() == ["reboot", "reboot", "reboot"]
    assert host.world.units["app.service"].read["/etc/app/x"] == RegularFile(b"1")
    assert host.world.units["app.service"].active == "active"
    assert host.world.holder is None
    assert (host.world.history[-1].outcome, host.world.history[-1].reboots) == ("reverted", 3)
    await host.settle()
    assert len(host.actions()) == 3


async def test_etc_merge_repair_does_not_hide_bad_deployment() -> None:
    """A failure in the new deployment is not a state from before, although files are written there once more."""
    files = {"/etc/chrony": "a", "/etc/app/x": "1"}
    host = await at_old(on("a", "old", files, units=[UNIT]))
    bad_on(host.world, B_DIGEST)
    host.want(on("b", "bad", files, units=[UNIT]))
    await host.settle()
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "UnitUnhealthy")
    assert booted_digest(host.world) == A_DIGEST
    assert host.world.disk["/etc/chrony"] == RegularFile(b"a")


async def test_no_rollback_when_revert_is_off() -> None:
    host = await at_old()
    host.limits = replace(host.limits, revert=False)
    bad_on(host.world, B_DIGEST)
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason, host.actions()) == (Phase.DEGRADED, "UnitUnhealthy", ["reboot"])
    assert booted_digest(host.world) == B_DIGEST
    assert host.world.holder is not None
    host.want(OLD)  # an operator goes back
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)
    assert managed(host.world, OLD, BAD) == expand(OLD)
    assert host.world.holder is None


async def test_units_failed_before_do_not_fail_the_update() -> None:
    host = await at_old()
    host.world.units["app.service"] = FakeUnit(active="failed", bad_until_boot=99)
    host.want(BAD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_running_unit_must_run_after_update() -> None:
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
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "UnitUnhealthy")
    assert "app.service ran before the reboot and is inactive" in host.record.message


async def test_no_rollback_for_new_unit_with_unmet_condition() -> None:
    host = await at_old()
    host.want(
        on(
            "b",
            "new",
            FILES,
            units=[UnitEntry("new.service", "[Service]\n[Install]\nWantedBy=multi-user.target\n", enabled=True)],
        )
    )
    task = asyncio.create_task(host.settle())
    while host.world.boot == 1:
        await asyncio.sleep(0.1)
    host.world.units["new.service"].active = "inactive"
    await task
    assert host.phase is Phase.IDLE


async def test_no_promotion_before_boot_finished() -> None:
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
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "UnitUnhealthy")


async def test_new_unit_that_fails_late_causes_rollback() -> None:
    host = await at_old()
    host.want(
        on(
            "b",
            "new",
            FILES,
            units=[UnitEntry("new.service", "[Service]\n[Install]\nWantedBy=multi-user.target\n", enabled=True)],
        )
    )
    task = asyncio.create_task(host.settle())
    while host.world.boot == 1:
        await asyncio.sleep(0.1)
    host.world.units["new.service"].active = "activating"
    await asyncio.sleep(20)
    assert host.phase is Phase.VERIFYING
    host.world.units["new.service"].active = "failed"
    await task
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "UnitUnhealthy")


async def test_endless_boot_does_not_fail_the_update() -> None:
    host = await at_old()
    host.world.booting_until = 1e9
    host.want(BAD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, B_DIGEST)


async def test_failed_rollback_causes_no_loop() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.world.boot_menu[3] = "os-bbbb.1"
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RollbackFailed")
    assert host.actions().count("reboot") == 2
    assert host.world.holder is not None


@pytest.mark.parametrize("theirs", [False, True])
async def test_no_rollback_while_deployment_is_staged(theirs: bool) -> None:
    """An own staged deployment is removed. Another program removes its own."""
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
        assert any("os-cccc.9" in e.message for e in host.world.events if isinstance(e, Warned))
        return
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "StagedByOther")
    assert (host.world.deployments[0].id, booted_digest(host.world)) == ("os-cccc.9", B_DIGEST)
    assert host.world.holder is not None
    del host.world.deployments[0]  # removed: now an operator can go back
    host.want(OLD)
    await host.settle()
    assert (host.phase, booted_digest(host.world)) == (Phase.IDLE, A_DIGEST)
    assert managed(host.world, OLD, BAD) == expand(OLD)


async def test_new_deployment_boots_again_after_file_restore() -> None:
    host = await at_old()
    bad_on(host.world, B_DIGEST)
    host.world.boot_menu[4] = "os-bbbb.1"
    host.want(BAD)
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RollbackFailed")
    assert host.actions().count("reboot") == 3
    assert host.world.holder is not None


async def test_wrong_kernel_arguments_are_rolled_back() -> None:
    host = await at_old()
    host.world.faults.append(Fault("kernel arguments", times=None))
    host.want(on("b", "new", FILES, kernel_arguments=("nosmt",)))
    await host.settle()
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "DeploymentWrong")
    assert (booted_digest(host.world), host.actions()) == (A_DIGEST, ["reboot", "reboot"])


async def test_unexpected_image_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is a difference: the image that stays is not in it, and must be the right one all the same."""
    host = await at_old()
    make = FakeDeployments._make
    monkeypatch.setattr(FakeDeployments, "_make", lambda self, target: replace(make(self, target), digest=C_DIGEST))
    host.want(KARGS)
    await host.settle()
    assert (host.record.reason, host.world.history[-1].reason) == ("Reverted", "VerifyFailed")
    assert booted_digest(host.world) == A_DIGEST
