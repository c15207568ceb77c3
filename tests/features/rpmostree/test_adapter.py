# SPDX-License-Identifier: Apache-2.0
"""The adapter against a daemon that does what the real one does, and what it does on a bad day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Variant

from nodeagent import installed
from nodeagent.core.config.image import OsImage, parse_image
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.packages import optional_of, packages_of, replaced_of
from nodeagent.core.plan.deployment import OsTarget, StageProgress, target_between
from nodeagent.core.plan.effective import mismatches_of
from nodeagent.door import Door
from nodeagent.errors import AgentError, Refused, Retryable, ServiceUnavailable, Terminal, Unreconcilable
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.features.rpmostree.host import sweep
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from nodeagent.update.ports.system import Deployments
from tests.features.rpmostree.adapters import IMAGE, NEW, QUICK, ProgressList, adapter
from tests.features.rpmostree.fake_rpmostree import BUSY, FAILED, OLD_IMAGE, A, B, FakeRpmOstree, deployment, until
from tests.features.rpmostree.fake_transaction import FakeTransaction
from tests.host.fake_systemd import FakeSystemd
from tests.support.fake_peer import DBusFault
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")
PINNED = "ostree-unverified-registry:" + NEW


async def stage(os: RpmOstree, target: OsTarget = IMAGE, **more: Any) -> Any:
    more = {"credentials": None, "replace": "", "on_progress": lambda progress: None} | more
    return await os.stage(target, **more)


async def fails(os: RpmOstree, kind: type[AgentError], target: OsTarget = IMAGE, **more: Any) -> AgentError:
    with pytest.raises(kind) as caught:
        await stage(os, target, **more)
    return caught.value


def test_fulfils_the_port(os: RpmOstree) -> None:
    port: Deployments = os
    assert port


# -- what is there -------------------------------------------------------------------------------------------------


async def test_deployments_as_values(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.deployments = [
        deployment(B, 1, staged=True, base_checksum=A, requested_packages=["kata"], options="x=1"),
        deployment(A, booted=True, version="41", options='root=LABEL=root a="b c" ostree=/ostree/boot.1/x'),
        deployment(A, 3, origin="fedora:stable", pinned=True),
    ]
    daemon.write_state(daemon.first, locked=True)
    one, two, three = await os.list()
    assert (one.staged, one.locked, one.base, one.checksum) == (True, True, A, B)
    assert one.packages == {"kata"}
    assert one.kernel_arguments == ("x=1",)
    assert (two.booted, two.locked, two.version, two.image) == (True, None, "41", OLD_IMAGE)
    assert two.kernel_arguments[:2] == ("root=LABEL=root", 'a="b c"')
    assert (three.origin, three.image, three.digest, three.pinned) == ("fedora:stable", "", "", True)
    assert three.kernel_arguments[:2] == ("root=LABEL=root", "quiet")
    assert daemon.members().index("Reload") < daemon.members().index("Get")


@pytest.mark.finding(
    "rpm-ostreed: boot entries",
    "The daemon is never queried for a boot entry; kernel arguments are read from /boot and from the staged state.",
)
async def test_the_daemon_is_never_asked_for_a_boot_entry(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """The daemon aborts where a key is missing, as in what ``ostree admin deploy --stage`` staged."""
    theirs = daemon.stage(checksum=B, options=None)
    staged, booted, _ = await os.list()
    assert staged.id == theirs["id"]
    assert staged.kernel_arguments[:2] == booted.kernel_arguments[:2] == ("root=LABEL=root", "quiet")
    (daemon.root / "sysroot").mkdir()
    await os.check_stageable(IMAGE)
    for done in (stage(os), os.rollback()):
        with pytest.raises(Refused) as caught:
            await done
        assert caught.value.reason == "StagedByOther"
    assert "GetDeploymentBootConfig" not in daemon.members()


async def test_a_boot_menu_without_the_booted_deployment(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """No verdict on a config: its kernel arguments cannot be known before /boot is back."""
    looks = 0

    def reload(message: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks > 5:
            daemon.write_entries()
        return "", ()

    daemon.on("Reload", reload)
    with pytest.raises(Retryable) as caught:
        await os.list()
    assert caught.value.reason == "NoBootEntry"
    assert looks == 4
    assert await os.list(), "one that is written just now is waited for"


async def test_a_host_that_was_not_booted_from_a_deployment(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.booted_path = "/"
    with pytest.raises(Unreconcilable) as caught:
        await os.list()
    assert caught.value.reason == "NoDeployments"


async def test_a_list_without_the_booted_deployment(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    for deployments in ([], [deployment(A), deployment(B)]):
        daemon.deployments = deployments
        with pytest.raises(Unreconcilable, match="none of the deployments is the booted one") as caught:
            await os.list()
        assert caught.value.reason == "NoDeployments"


async def test_a_host_without_rpm_ostree(
    private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, tmp_path: Path
) -> None:
    manager.units["rpm-ostreed.service"] = {"LoadState": Variant("s", "not-found")}
    with pytest.raises(Unreconcilable) as caught:
        await adapter(private_bus, Systemd(bus), tmp_path).list()
    assert caught.value.reason == "NoDeployments"


# -- staging -------------------------------------------------------------------------------------------------------


async def test_a_container_by_digest(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    progress = ProgressList()
    staged = await stage(os, on_progress=progress.append)
    assert (staged.digest, staged.staged, staged.locked) == (NEW[-71:], True, True)
    ((member, (modifiers, options)),) = daemon.requests
    assert (member, modifiers) == ("UpdateDeployment", {"set-refspec": PINNED})
    assert options["allow-downgrade"] is True
    assert "no-pull-base" not in options
    assert progress.tasks() == ["Staging deployment"]
    assert daemon.transactions[0].over.is_set()  # our connection was closed


async def test_a_commit_of_another_branch_and_then_of_the_same(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.deployments = [deployment(booted=True, origin="fedora:stable")]
    await stage(os, OsTarget(image=parse_image(f"ostree://fedora/testing@{B}")))
    modifiers, options = daemon.requests[0][1]
    assert modifiers == {"set-refspec": "fedora:testing", "set-revision": B}
    assert options["skip-branch-check"] is True
    # The origin that counts is that of the staged one.
    staged = await stage(os, OsTarget(image=parse_image(f"ostree://fedora/testing@{A}")), replace=daemon.first["id"])
    assert daemon.requests[1][1][0] == {"set-revision": A}
    assert staged.checksum == A


async def test_what_is_staged_already_is_returned(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    first = await stage(os)
    assert await stage(os) == first
    assert len(daemon.requests) == 1


async def test_kernel_arguments_by_difference(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    target = OsTarget(kernel_arguments=("quiet", "nosmt"), without_kernel_arguments=("root=LABEL=root", "absent"))
    staged = await stage(os, target)
    assert staged.kernel_arguments == ("quiet", "nosmt")
    ((member, (existing, added, replaced, deleted, options)),) = daemon.requests
    assert (member, existing, added, replaced, deleted) == ("KernelArgs", "root=LABEL=root quiet", [], [], [])
    assert options["append-if-missing"] == ["nosmt"]
    assert options["delete-if-present"] == ["root=LABEL=root"]
    assert options["lock-finalization"] is True


async def test_an_image_with_packages_and_kernel_arguments_is_two_transactions(
    os: RpmOstree, daemon: FakeRpmOstree
) -> None:
    daemon.first["requested-packages"] = ["old", "mine"]
    target = OsTarget(
        image=IMAGE.image,
        kernel_arguments=("nosmt",),
        packages=frozenset({"new"}),
        without_packages=frozenset({"old"}),
        removed=frozenset({"kernel"}),
    )
    staged = await stage(os, target)
    assert [member for member, _ in daemon.requests] == ["UpdateDeployment", "KernelArgs"]
    assert daemon.requests[0][1][0] == {
        "set-refspec": PINNED,
        "install-packages": ["new"],
        "uninstall-packages": ["old"],
        "override-remove-packages": ["kernel"],
    }
    assert staged.packages == {"new", "mine"}
    assert staged.kernel_arguments == ("root=LABEL=root", "quiet", "nosmt")


async def test_packages_alone_pull_no_image(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.first["requested-base-removals"] = ["kernel"]
    await stage(os, OsTarget(packages=frozenset({"kata"}), without_removed=frozenset({"kernel"})))
    modifiers, options = daemon.requests[0][1]
    assert modifiers == {"install-packages": ["kata"], "override-reset-packages": ["kernel"]}
    assert options["no-pull-base"] is True
    assert options["idempotent-layering"] is True


REALTIME = {
    "packages": frozenset({"kernel-rt-core"}),
    "removed": replaced_of(MachineConfig("", kernel_type="realtime")),
}


@pytest.mark.parametrize("image", [IMAGE.image, None], ids=["with another image", "alone"])
async def test_another_kernel_where_the_image_lacks_parts_of_its_own(
    os: RpmOstree, daemon: FakeRpmOstree, image: OsImage | None
) -> None:
    daemon.not_in_base = {"kernel-modules-core", "kernel-modules-extra"}
    staged = await stage(os, OsTarget(image=image, kernel_arguments=("nosmt",), **REALTIME))
    assert staged.removed == {"kernel", "kernel-core", "kernel-modules"}
    assert "nosmt" in staged.kernel_arguments
    assert [member for member, _ in daemon.requests] == ["UpdateDeployment"] * 3 + ["KernelArgs"]


IPSEC = MachineConfig("", extensions=("ipsec",))


@pytest.mark.finding(
    "configs: as the machine-config-operator", "A package that only newer releases have is layered where it exists."
)
@pytest.mark.parametrize("exists", [True, False])
async def test_an_optional_package(os: RpmOstree, daemon: FakeRpmOstree, *, exists: bool) -> None:
    daemon.not_in_repositories = set() if exists else {"openvswitch3.5-ipsec"}
    target = target_between(MachineConfig(""), IPSEC)
    assert target
    staged = await stage(os, target)
    assert staged.packages == packages_of(IPSEC) | (optional_of(IPSEC) if exists else frozenset())
    assert not mismatches_of(IPSEC, staged)
    left = target_between(IPSEC, MachineConfig(""))
    assert left
    assert (await stage(os, left)).packages == frozenset()


async def test_a_needed_package_that_no_repository_has(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.not_in_repositories = {"openvswitch3.5-ipsec", "libreswan"}
    target = target_between(MachineConfig(""), IPSEC)
    assert target
    assert (await fails(os, Terminal, target)).reason == "PackageUnavailable"


async def test_a_package_that_has_to_go_and_is_not_there(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """An image without a known kernel is refused."""
    daemon.not_in_base = {"kernel-core"}
    assert (await fails(os, Terminal, OsTarget(**REALTIME))).reason == "PackageUnavailable"


async def test_with_another_kernel_nothing_is_removed_twice(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """The package that this image lacks may be in another image."""
    daemon.first.update({"requested-packages": ["kernel-rt-core"], "requested-base-removals": ["kernel-core"]})
    await stage(os, OsTarget(kernel_arguments=("nosmt",), **REALTIME))
    assert [member for member, _ in daemon.requests] == ["KernelArgs"]
    await stage(os, OsTarget(image=IMAGE.image, kernel_arguments=("nosmt",), **REALTIME), replace=daemon.first["id"])
    assert "kernel-modules-core" in daemon.requests[1][1][0]["override-remove-packages"]


async def test_nothing_of_a_former_target_is_left(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    first = await stage(os, OsTarget(image=IMAGE.image, kernel_arguments=("one",), packages=frozenset({"p"})))
    second = await stage(os, OsTarget(kernel_arguments=("two",)), replace=first.id)
    assert second.kernel_arguments == ("root=LABEL=root", "quiet", "two")
    assert (second.image, second.packages) == (OLD_IMAGE, frozenset())


async def test_kernel_arguments_of_a_former_target_go_with_the_next_image(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    first = await stage(os, OsTarget(kernel_arguments=("one",)))
    second = await stage(os, OsTarget(image=IMAGE.image, kernel_arguments=("two",)), replace=first.id)
    assert second.kernel_arguments == ("root=LABEL=root", "quiet", "two")
    assert second.digest == NEW[-71:]


async def test_a_lock_that_got_lost_is_put_back(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.legacy_locks = daemon.drops_second_lock = True
    staged = await stage(os, OsTarget(image=IMAGE.image, kernel_arguments=("nosmt",)))
    assert staged.locked is True
    assert (daemon.root / "run/ostree/staged-deployment-locked").exists()


@pytest.mark.parametrize("staged", [True, False])
async def test_a_foreign_staged_deployment_stays(os: RpmOstree, daemon: FakeRpmOstree, staged: bool) -> None:
    theirs = daemon.stage(checksum=B, container_image_reference="theirs", container_image_reference_digest="x")
    theirs["staged"] = staged  # or made by ostree admin deploy
    error = await fails(os, Refused)
    assert error.reason == "StagedByOther"
    assert theirs["id"] in error.message
    assert not daemon.requests


async def test_an_agent_that_was_killed_knows_its_own_deployment(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    target = OsTarget(image=IMAGE.image, kernel_arguments=("nosmt",))

    daemon.handlers["KernelArgs"] = lambda message: None  # no answer: killed while it waits
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await stage(os, target)
    daemon.on("KernelArgs", daemon._begin)
    staged = await stage(os, target)  # without knowing its id
    assert staged.kernel_arguments[-1] == "nosmt"


# -- success is what the deployments say ------------------------------------------------------------------------------


async def test_success_without_a_deployment(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    async def nothing(transaction: FakeTransaction) -> None:
        await transaction.emit("Message", "s", "No change.")
        await transaction.finish(True)

    daemon.script = nothing
    error = await fails(os, Terminal)
    assert error.reason == "StageIncomplete"
    assert "osImageURL" in error.message
    assert len(daemon.requests) == 1


async def test_success_with_half_of_it(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    async def half(transaction: FakeTransaction) -> None:
        daemon.stage(container_image_reference=PINNED, container_image_reference_digest=NEW[-71:])
        await transaction.finish(True)

    daemon.script = half
    error = await fails(os, Terminal, OsTarget(image=IMAGE.image, packages=frozenset({"kata"})))
    assert (error.reason, "lacks kata" in error.message) == ("StageIncomplete", True)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("Creating importer: ... reading manifest sha256:1 in q/x: manifest unknown", Terminal, "ImageNotFound"),
        ("While pulling x: min-free-space-percent '3%' would be exceeded", Terminal, "NoSpace"),
        ("pinging container registry q: dial tcp: lookup q: no such host", Retryable, "RegistryUnreachable"),
        ("While pulling x: Operation was cancelled", Retryable, "TransactionCancelled"),
        ("something new", Retryable, "StageFailed"),
    ],
)
async def test_what_a_failure_means(
    os: RpmOstree, daemon: FakeRpmOstree, text: str, kind: type[AgentError], reason: str
) -> None:
    daemon.script = lambda transaction: transaction.finish(False, text)
    error = await fails(os, kind)
    assert error.reason == reason
    assert text in error.message


async def test_a_failure_of_the_method_itself(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    def refuse(message: Any) -> Any:
        raise DBusFault(FAILED, "Reboot initiated, cannot start new transaction")

    daemon.on("UpdateDeployment", refuse)
    assert (await fails(os, Retryable)).reason == "ShuttingDown"


async def test_another_client_staged_the_same_refspec_in_between(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    async def race(transaction: FakeTransaction) -> None:
        daemon.effect(transaction)
        daemon.script = daemon.work
        await transaction.finish(False, f"Old and new refs are equal: {PINNED}")

    daemon.script = race
    assert (await stage(os)).digest == NEW[-71:]


# -- the daemon comes and goes ----------------------------------------------------------------------------------------


async def test_a_daemon_that_is_off_is_started_by_systemd(
    private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, tmp_path: Path
) -> None:
    """Which waits for as long as that takes; the bus would give up after 25 seconds."""
    started: list[str] = []
    async with FakeRpmOstree(tmp_path) as daemon:

        async def start(job: int, unit: str) -> None:
            started.append(unit)
            await daemon.start(private_bus.address)
            await manager.finish(job, unit, "done")

        manager.job_script = start
        os = adapter(private_bus, Systemd(bus), tmp_path)
        assert await os.list()
        assert await os.list()
    assert started == ["rpm-ostreed.service"]


async def test_registers_once_and_again_with_a_new_daemon(
    os: RpmOstree, daemon: FakeRpmOstree, private_bus: PrivateBus
) -> None:
    await os.list()
    assert daemon.members().count("RegisterClient") == 1
    async with FakeRpmOstree(daemon.root / "second") as second:
        second.on("UpdateDeployment", second._begin)

        async def leave(message: Any) -> Any:
            daemon.bus.disconnect()  # idle exit with our call in its hands: the bus answers NoReply
            await second.start(private_bus.address)
            daemon.root = second.root

        daemon.on("UpdateDeployment", leave)
        os._staged._state = second.root / "run/ostree/staged-deployment"
        await stage(os)
        assert second.members()[0] == "RegisterClient"


async def test_a_daemon_that_always_leaves(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    def leave(message: Any) -> Any:
        raise DBusFault("org.freedesktop.DBus.Error.NoReply", "Message recipient disconnected")

    daemon.on("Reload", leave)
    assert (await fails(os, Retryable)).reason == "NoReply"
    assert daemon.members().count("Reload") == 4


async def test_polkit_that_lets_us_not_register(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    def refuse(message: Any) -> Any:
        raise DBusFault("org.freedesktop.DBus.Error.AccessDenied", "not allowed for user")

    daemon.on("RegisterClient", refuse)
    assert await stage(os)


async def test_an_answer_that_comes_too_late_leaves_no_transaction(
    private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, daemon: FakeRpmOstree
) -> None:
    os = adapter(private_bus, Systemd(bus), daemon.root, timing=replace(QUICK, call=1))
    callers: list[str] = []
    daemon.on("UpdateDeployment", lambda message: callers.append(str(message.sender)))
    error = await fails(os, Retryable)
    assert error.reason == "BusTimeout"
    bus = "org.freedesktop.DBus"
    reply = await daemon.call(bus, "/org/freedesktop/DBus", bus, "NameHasOwner", "s", callers)
    assert reply.body == [False]  # the daemon sees that and drops the transaction


# -- others -----------------------------------------------------------------------------------------------------------


async def test_waits_for_another_transaction_and_says_whose(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    theirs = await FakeTransaction(daemon.root / "run/txn.sock", daemon.work).listen()
    theirs.title = "upgrade"
    daemon.transactions.append(theirs)
    daemon._current = theirs
    progress = ProgressList()

    def end_it(step: StageProgress) -> None:
        """End the other transaction when the wait for it is reported."""
        progress.append(step)
        asyncio.get_running_loop().call_soon(theirs.over.set)

    assert (await stage(os, on_progress=end_it)).staged
    assert "'upgrade' of client(id:cli" in progress[0].task
    assert "Cancel" not in theirs.calls
    assert "Start" not in theirs.calls


async def test_a_deployment_staged_during_the_wait_stays(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    theirs = await FakeTransaction(daemon.root / "run/txn.sock", daemon.work).listen()
    daemon.transactions.append(theirs)
    daemon._current = theirs

    def end() -> None:
        if not theirs.over.is_set():
            daemon.stage(checksum=B, container_image_reference="theirs", container_image_reference_digest="x")
            theirs.over.set()

    def lose_it(_progress: StageProgress) -> None:
        """End the wait at the first report of it."""
        asyncio.get_running_loop().call_soon(end)

    assert (await fails(os, Refused, on_progress=lose_it)).reason == "StagedByOther"
    assert not daemon.requests


@pytest.mark.parametrize(
    ("error", "text", "who"),
    [
        (BUSY, "System transaction in progress", "another program"),
        # Another version has another code, or other words. The transaction has ended when its client is read.
        (FAILED, "Transaction in progress: upgrade\n wait", "the transaction 'upgrade' of another client"),
        (BUSY, "in use: rebase", "the transaction 'rebase' of another client"),
    ],
)
async def test_what_is_busy_for_too_long_is_named(
    private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, daemon: FakeRpmOstree, error: str, text: str, who: str
) -> None:
    os = adapter(private_bus, Systemd(bus), daemon.root, timing=replace(QUICK, busy=0.3))

    def busy(message: Any) -> Any:
        raise DBusFault(error, text)

    daemon.on("UpdateDeployment", busy)
    fault = await fails(os, Refused)
    assert fault.reason == "TransactionBusy"
    assert who in fault.message


async def test_a_transaction_of_an_earlier_life_is_cancelled(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    async def ends(transaction: FakeTransaction) -> None:
        await transaction.cancelled.wait()
        transaction.over.set()

    left = await FakeTransaction(daemon.root / "run/txn.sock", ends).listen()
    left.title = "nodeagent stage sha256:2"
    daemon.transactions.append(left)
    daemon._current = left
    waiting = asyncio.ensure_future(ends(left))
    assert (await stage(os)).staged
    await waiting


async def test_the_same_request_is_joined(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """The transaction goes on as after a kill: the same request returns its address, and Start returns false."""
    go = asyncio.Event()

    async def slowly(transaction: FakeTransaction) -> None:
        await go.wait()
        await daemon.work(transaction)

    daemon.script = slowly
    first, second = asyncio.ensure_future(stage(os)), asyncio.ensure_future(stage(os))
    await until(lambda: daemon.transactions and daemon.transactions[0].calls.count("Start") == 2)
    go.set()
    assert await first == await second
    assert len(daemon.transactions) == 1


async def test_cancelling_us_cancels_the_transaction(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    async def until_cancelled(transaction: FakeTransaction) -> None:
        await transaction.cancelled.wait()
        await transaction.finish(False, "While pulling x: Operation was cancelled")

    daemon.script = until_cancelled
    task = asyncio.ensure_future(stage(os, credentials=b"{}"))
    await until(lambda: daemon.transactions and daemon.transactions[0].started.is_set())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert daemon.transactions[0].cancelled.is_set()
    assert not (daemon.root / "run/ostree/auth.json").exists()


# -- what a failed transaction leaves ---------------------------------------------------------------------------------

BROKEN = "Sanity-checking final rootfs: bwrap(/usr/bin/true): Child process exited with code 1"
AFTER = {
    BROKEN: (Terminal, "ImageBroken"),
    "opening history database: No space left on device": (Terminal, "NoSpace"),
    "error writing refs: something new": (Retryable, "StageFailed"),
}


def fails_after_staging(daemon: FakeRpmOstree, text: str, *, cleans: bool = True) -> None:
    """Fail after the staging, where the checks of the real daemon are. ``cleans``: Cleanup works."""

    async def work(transaction: FakeTransaction) -> None:
        if daemon._effects[transaction].member == "Cleanup":
            error = daemon.effect(transaction) if cleans else "opening sysroot: Input/output error"
            await transaction.finish(not error, error)
            return
        daemon.effect(transaction)
        await transaction.finish(False, text)

    daemon.script = work


@pytest.mark.finding(
    "rpm-ostreed: failed transactions",
    "What a failed transaction left staged is discarded, and an image that fails the sanity check is `ImageBroken`.",
)
@pytest.mark.parametrize("text", AFTER)
async def test_what_the_daemon_rejected_is_discarded(os: RpmOstree, daemon: FakeRpmOstree, text: str) -> None:
    fails_after_staging(daemon, text)
    kind, reason = AFTER[text]
    assert (await fails(os, kind)).reason == reason
    assert [member for member, _ in daemon.requests] == ["UpdateDeployment", "Cleanup"]
    assert daemon.first["booted"]
    assert (await fails(os, kind)).reason == reason, "and it is no better at the next try"


@pytest.mark.finding(
    "rpm-ostreed: failed transactions", "What failed after the image was staged is still known as ours."
)
async def test_what_was_half_done_is_discarded_when_the_second_half_is_rejected(
    os: RpmOstree, daemon: FakeRpmOstree
) -> None:
    """An agent that lost its record took its own deployment for a foreign one."""
    target = OsTarget(image=IMAGE.image, kernel_arguments=("nosmt",))
    fails_after_staging(daemon, "opening history database: no")
    assert (await fails(os, Retryable, target)).reason == "StageFailed"
    daemon.script = daemon.work
    assert (await stage(os, target)).kernel_arguments[-1] == "nosmt"


@pytest.mark.finding(
    "rpm-ostreed: failed transactions",
    "It is neither accepted nor unlocked when the agent was killed before, or the discard fails.",
)
async def test_what_could_not_be_discarded_is_not_accepted(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    fails_after_staging(daemon, BROKEN, cleans=False)
    error = await fails(os, Terminal)
    assert error.reason == "ImageBroken"
    assert "Input/output error" in error.message
    left = daemon.first["id"]
    assert (await fails(os, Retryable)).reason == "DiscardFailed"
    with pytest.raises(Refused) as caught:
        await os.unlock(left)
    assert caught.value.reason == "StagedLost"
    daemon.script = daemon.work
    daemon.requests.clear()
    assert (await stage(os)).staged
    assert [member for member, _ in daemon.requests] == ["Cleanup", "UpdateDeployment"]


LAYERS = {
    "packages": ("[packages]\nrequested=usbguard;\n", "[packages] requested=usbguard"),
    "overrides": ("[overrides]\nremove=nano;\n", "[overrides] remove=nano"),
    "modules": ("[modules]\nenable=nodejs:18;\n", "[modules] enable=nodejs:18"),
    "an initramfs": (
        "[rpmostree]\nregenerate-initramfs=true\ninitramfs-args=-v;\n",
        "[rpmostree] regenerate-initramfs=true, [rpmostree] initramfs-args=-v",
    ),
    "what was removed again": ("[packages]\n[overrides]\nremove=\n", ""),
    "nothing": ("", ""),
}


@pytest.fixture
def another() -> Iterator[None]:
    """Another back end, which could serve each image."""
    with installed.replaced([Door(title="Another", page="x.md", serves_tree=lambda _tree: True)]):
        yield


def stages_tree(daemon: FakeRpmOstree, origin: str, *, with_daemon: bool) -> None:
    """Write the tree and the origin of what is staged, as libostree does."""

    async def work(transaction: FakeTransaction) -> None:
        await daemon.work(transaction)
        if daemon.first["staged"]:
            name = f"{daemon.first['checksum']}.{daemon.first['serial']}"
            units = daemon.root / f"ostree/deploy/{daemon.first['osname']}/deploy/{name}/usr/lib/systemd/system"
            units.mkdir(parents=True, exist_ok=True)
            units.parents[3].with_name(f"{name}.origin").write_text(f"[origin]\ncontainer-image-reference=x\n{origin}")
            if with_daemon:
                (units / "rpm-ostreed.service").touch()

    daemon.script = work


@pytest.mark.usefixtures("another")
@pytest.mark.parametrize("layers", LAYERS)
async def test_what_an_image_without_the_daemon_cannot_keep(os: RpmOstree, daemon: FakeRpmOstree, layers: str) -> None:
    """It would be in the boot that is verified, and no program of that boot knows it."""
    origin, lost = LAYERS[layers]
    stages_tree(daemon, origin, with_daemon=False)
    if not lost:
        assert (await stage(os)).staged
        return
    error = await fails(os, Terminal)
    assert error.reason == "ImageWithoutDaemon"
    assert error.message == f"the new image has no rpm-ostreed.service, and the host has {lost}"
    assert daemon.first["booted"], "what was staged is discarded"
    assert (await fails(os, Terminal)).reason == "ImageWithoutDaemon", "and it is no better at the next try"
    stages_tree(daemon, origin, with_daemon=True)
    assert (await stage(os)).staged


@pytest.mark.usefixtures("another")
async def test_what_cannot_be_kept_is_not_unlocked(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """An agent that was killed before its check, and a discard that fails."""
    stages_tree(daemon, "", with_daemon=False)
    left = await stage(os)
    tree = daemon.root / f"ostree/deploy/{left.osname}/deploy" / left.id.rpartition("-")[2]
    tree.with_name(f"{tree.name}.origin").write_text(LAYERS["packages"][0])
    fails_after_staging(daemon, "", cleans=False)
    error = await fails(os, Terminal)
    assert error.reason == "ImageWithoutDaemon"
    assert "its locked result was not removed" in error.message
    with pytest.raises(Refused) as caught:
        await os.unlock(left.id)
    assert caught.value.reason == "StagedLost"


async def test_what_lost_its_lock_is_locked_before_it_is_discarded(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """Were the discard to fail, the next shutdown would finalize it."""

    async def work(transaction: FakeTransaction) -> None:
        if daemon._effects[transaction].member != "Cleanup":
            daemon.effect(transaction)
            daemon.write_state(daemon.first, locked=False)
        await transaction.finish(False, BROKEN)

    daemon.script = work
    assert (await fails(os, Terminal)).reason == "ImageBroken"
    assert (daemon.root / "run/ostree/staged-deployment-locked").exists()


@pytest.mark.finding(
    "rpm-ostreed: failed transactions",
    "It is neither accepted nor unlocked when the agent was killed before, or the discard fails.",
)
@pytest.mark.parametrize("success", [True, False])
async def test_an_unseen_end_is_no_success(
    private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, daemon: FakeRpmOstree, success: bool
) -> None:
    """The agent is killed after the staging, and the transaction ends without it."""
    os = adapter(private_bus, Systemd(bus), daemon.root, timing=replace(QUICK, leave=0.1))
    finished = asyncio.Event()

    async def work(transaction: FakeTransaction) -> None:
        daemon.effect(transaction)
        finished.set()

    daemon.script = work
    task = asyncio.ensure_future(stage(os))
    await finished.wait()
    path = daemon.root / "run/nodeagent/staging.json"
    note = path.read_text()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    path.write_text(note)  # killed, so it could not tidy up
    await daemon.transactions[0].finish(success, "" if success else BROKEN)
    left = daemon.first["id"]
    with pytest.raises(Refused):
        await os.unlock(left)
    daemon.script = daemon.work
    daemon.requests.clear()
    assert (await stage(os)).staged
    assert [member for member, _ in daemon.requests] == ["Cleanup", "UpdateDeployment"]


@pytest.mark.finding(
    "rpm-ostreed: deployments of other programs",
    "What another program staged is not used, even if it fulfils the target.",
)
async def test_a_foreign_deployment_of_the_same_image_is_not_owned(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    """The result of the foreign transaction is unknown."""
    theirs = daemon.stage(container_image_reference=PINNED, container_image_reference_digest=NEW[-71:])
    for replace_it in ("", theirs["id"], ""):  # Nor by a caller that takes it for its own.
        assert (await fails(os, Refused, replace=replace_it)).reason == "StagedByOther"
    with pytest.raises(Refused):
        await os.unlock(theirs["id"])
    assert not daemon.requests


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_the_pull_secret_is_there_for_the_transaction_only(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    path = daemon.root / "run/ostree/auth.json"
    seen: list[tuple[int, bytes]] = []

    async def look(transaction: FakeTransaction) -> None:
        seen.append((path.stat().st_mode & 0o777, path.read_bytes()))
        await daemon.work(transaction)

    daemon.script = look
    await stage(os, credentials=b'{"auths": {}}')
    assert seen == [(0o600, b'{"auths": {}}')]
    assert sorted(p.name for p in path.parent.iterdir()) == ["staged-deployment"]


async def test_foreign_credentials_stay(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    path = daemon.root / "run/ostree/auth.json"
    path.write_text("theirs")
    await stage(os, credentials=b"ours")
    assert path.read_text() == "theirs"
    assert not (path.parent / ".nodeagent-auth.json").exists()


async def test_a_killed_agents_credentials_are_swept(os: RpmOstree, bus: Bus, daemon: FakeRpmOstree) -> None:
    await asyncio.to_thread(os._credentials._put, b"ours")
    path = daemon.root / "run/ostree/auth.json"
    assert path.exists()
    await sweep(Systemd(bus), daemon.root)
    assert not path.exists()
    # Another program replaced it in the meantime.
    await asyncio.to_thread(os._credentials._put, b"ours")
    path.unlink()
    path.write_text("theirs")
    await sweep(Systemd(bus), daemon.root)
    assert path.read_text() == "theirs"


# -- discard and rollback ---------------------------------------------------------------------------------------------


async def test_discard(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    await stage(os)
    await os.discard()
    assert daemon.first["booted"]
    assert daemon.requests[-1] == ("Cleanup", [["pending-deploy"]])
    await os.discard()
    assert len(daemon.requests) == 2


async def test_discard_that_did_nothing(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    await stage(os)
    daemon.script = lambda transaction: transaction.finish(True)
    with pytest.raises(Terminal) as caught:
        await os.discard()
    assert caught.value.reason == "DiscardFailed"


async def test_rollback_is_done_once(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    await os.rollback()
    assert not daemon.first["booted"]
    await os.rollback()
    assert [member for member, _ in daemon.requests] == ["Rollback"]


@pytest.mark.finding(
    "services: results that were lost",
    "An rpm-ostreed that dies while the old deployment is put first is waited for, not taken for a host without a way"
    " back.",
)
async def test_rollback_whose_daemon_dies_may_be_done_again(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.script = lambda transaction: daemon.die()
    with pytest.raises(ServiceUnavailable) as caught:
        await os.rollback()
    assert (caught.value.reason, caught.value.service) == ("TransactionLost", "rpm-ostreed")
    assert daemon.first["booted"]
    daemon.script = daemon.work
    await os.rollback()
    assert not daemon.first["booted"]


async def test_rollback_with_nothing_to_go_back_to(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.script = lambda transaction: transaction.finish(False, "No rollback deployment found")
    with pytest.raises(Terminal) as caught:
        await os.rollback()
    assert caught.value.reason == "NoRollback"


async def test_rollback_over_something_staged(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    daemon.stage()
    with pytest.raises(Refused) as caught:
        await os.rollback()
    assert caught.value.reason == "StagedByOther"


# -- what is noted ----------------------------------------------------------------------------------------------------


async def test_the_note_names_what_is_ours(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    others = sorted(d["id"] for d in daemon.deployments)
    path = daemon.root / "run/nodeagent/staging.json"

    async def look(transaction: FakeTransaction) -> None:
        assert json.loads(path.read_text()) == {"image": NEW[-71:], "others": others, "ours": [], "good": []}
        await daemon.work(transaction)

    daemon.script = look
    staged = await stage(os)
    assert json.loads(path.read_text()) == {"image": "", "others": [], "ours": [staged.id], "good": [staged.id]}


@pytest.mark.parametrize("fails_first", [True, False])
async def test_a_later_manual_staging_is_not_owned(os: RpmOstree, daemon: FakeRpmOstree, fails_first: bool) -> None:
    target = OsTarget(kernel_arguments=("one",))
    if fails_first:
        daemon.script = lambda transaction: transaction.finish(False, "no")
        await fails(os, Retryable, target)
        daemon.script = daemon.work
    else:
        await stage(os, target)
        await os.discard()
    theirs = daemon.stage(options="root=LABEL=root by-hand")  # of the same image, and with the id that ours had
    assert theirs["id"].endswith(f"{A}.1")
    assert (await fails(os, Refused, target)).reason == "StagedByOther"


async def test_what_was_half_done_is_ours_after_a_failure(os: RpmOstree, daemon: FakeRpmOstree) -> None:
    target = OsTarget(image=IMAGE.image, kernel_arguments=("one",))

    async def fails_second(transaction: FakeTransaction) -> None:
        if len(daemon.transactions) == 1:
            await daemon.work(transaction)
        else:
            await transaction.finish(False, "no")

    daemon.script = fails_second
    await fails(os, Retryable, target)
    daemon.script = daemon.work
    assert (await stage(os, target)).kernel_arguments[-1] == "one"
