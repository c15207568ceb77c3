# SPDX-License-Identifier: Apache-2.0
"""The deployments of a host that bootc updates: what is run for them, and what its result means."""

from __future__ import annotations

import asyncio
import fcntl
import os as system
import struct

import pytest
from dbus_next import Variant

from nodeagent.core.config.image import parse_image
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress
from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreconcilable
from nodeagent.features.bootc.adapter import Bootc
from nodeagent.features.bootc.decide.kargs import KARGS
from nodeagent.features.bootc.host import PULLER
from nodeagent.features.bootc.image import BOUND
from nodeagent.features.bootc.units import ADMIN, CHECK, PULL, SLICE
from nodeagent.host.ostree.staged import OwnDeployments, Ownership
from tests.features.bootc.fake_ostree import B_DIGEST, UPDATERS, FakeOstree
from tests.host.ostree.fake_sysroot import OSNAME, A, B, C, FakeDeployment, FakeSysroot, reference

pytestmark = pytest.mark.usefixtures("no_leaked_fds")

IMAGE = parse_image(f"quay.io/org/os@{B_DIGEST}")
TARGET = OsTarget(image=IMAGE, kernel_arguments=("nosmt", 'x="a $b"'), without_kernel_arguments=("quiet",))
NEW = f"{OSNAME}-{B}.0"


async def stage(os: Bootc, target: OsTarget = TARGET, tasks: list[str] | None = None, replace: str = "") -> Deployment:
    def note(progress: StageProgress) -> None:
        if tasks is not None:
            tasks.append(progress.task)

    return await os.stage(target, credentials=None, replace=replace, on_progress=note)


async def fails(os: Bootc, kind: type[AgentError], target: OsTarget = TARGET) -> AgentError:
    with pytest.raises(kind) as caught:
        await stage(os, target)
    return caught.value


def work(ostree: FakeOstree) -> list[str]:
    """Return what was run but for the ends of units that were left."""
    return [command for command in ostree.commands if not command.startswith("stop ")]


async def test_an_image_is_staged_locked_with_its_arguments(os: Bootc, ostree: FakeOstree) -> None:
    tasks: list[str] = []
    staged = await stage(os, tasks=tasks)
    assert (staged.id, staged.digest, staged.version, staged.locked) == (NEW, B_DIGEST, "41.2.0", True)
    assert staged.kernel_arguments == ("root=LABEL=root", "nosmt", 'x="a $b"')
    pull, deploy, check, prune = work(ostree)
    assert pull == f"container image pull --quiet /ostree/repo {reference('1')}"
    assert deploy.startswith("deploy --stage --lock-finalization --os=fedora-coreos --origin-file=")
    assert deploy.endswith(f'--karg-none --karg-append=root=LABEL=root --karg-append=nosmt --karg-append=x="a $b" {B}')
    assert (check, prune) == ("", "container image prune-images --sysroot=/ --and-layers")
    assert tasks == ["Pulling quay.io/org/os", "Staging the deployment"]
    assert [unit for unit, _ in ostree.systemd.transient] == [PULL, ADMIN, CHECK, PULL]
    assert ostree.systemd.transient_properties[0]["PrivateMounts"] is True
    # The limits of the fence are those of the slice.
    assert {properties["Slice"] for properties in ostree.systemd.transient_properties} == {SLICE}
    # The same again does nothing.
    ostree.commands.clear()
    assert await stage(os) == staged
    assert work(ostree) == ["container image prune-images --sysroot=/ --and-layers"]


async def test_arguments_alone_need_no_registry(os: Bootc, ostree: FakeOstree) -> None:
    ostree.images.clear()
    staged = await stage(os, OsTarget(kernel_arguments=("nosmt",)))
    assert (staged.id, staged.image) == (f"{OSNAME}-{A}.1", reference("0"))
    assert "nosmt" in staged.kernel_arguments
    assert not any("pull" in command for command in work(ostree))


async def test_an_image_that_a_deployment_has_is_not_pulled(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    ostree.images.clear()
    host.commit(C, f"sha256:{'9' * 64}")
    staged = await stage(os, OsTarget(image=parse_image(f"quay.io/org/os@sha256:{'9' * 64}")))
    assert (staged.checksum, staged.id) == (C, f"{OSNAME}-{C}.1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("error: Creating importer: OpenImage: reading manifest sha256:1: manifest unknown", "ImageNotFound"),
        ("error: Creating importer: OpenImage: reading manifest: authentication required", "Unauthorized"),
        ("error: received unexpected HTTP status: 503 Service Unavailable", "RegistryUnreachable"),
        ("layers needed: 2\nerror: Importing: min-free-space-size 500MB would be exceeded", "NoSpace"),
        ("", "StageFailed"),
    ],
)
async def test_a_pull_that_fails(os: Bootc, ostree: FakeOstree, host: FakeSysroot, text: str, reason: str) -> None:
    ostree.fails[PULL] = text
    error = await fails(os, AgentError)
    assert (error.reason, host.staged) == (reason, None)
    assert "layers needed" not in error.message
    # Without a text, how the unit ended counts.
    assert text or "exit status 1" in error.message


async def test_a_success_that_named_no_commit(os: Bootc, ostree: FakeOstree) -> None:
    ostree.idle = True
    assert (await fails(os, Terminal)).reason == "StageIncomplete"


async def test_a_commit_of_another_image(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    ostree.before_end = lambda: host.commit(B, f"sha256:{'2' * 64}")
    error = await fails(os, Terminal)
    assert (error.reason, host.staged) == ("StageIncomplete", None)


async def test_a_success_that_staged_nothing(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    """An exit status of 0 proves nothing."""

    def away() -> None:
        host.staged = None
        host.write()

    ostree.before_end = away
    error = await fails(os, Terminal)
    assert (error.reason, "none is staged" in error.message) == ("StageIncomplete", True)


async def test_what_a_failed_command_left_is_removed(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    ostree.fails[ADMIN], ostree.after = "error: something at the end\n", True
    error = await fails(os, Retryable)
    assert (error.reason, host.staged) == ("StageFailed", None)
    assert "something at the end" in error.message
    assert [command.partition(" ")[0] for command in work(ostree)] == ["container", "deploy", "undeploy"]


async def test_what_could_not_be_removed_is_not_accepted(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    ostree.fails[CHECK] = ""

    def only_once() -> None:
        # From the check on, no command of ostree works.
        ostree.idle = ostree.systemd.transient[-1][0] == CHECK

    ostree.before_end = only_once
    error = await fails(os, Terminal)
    assert (error.reason, "its locked result was not removed" in error.message) == ("ImageBroken", True)
    assert host.staged is not None
    with pytest.raises(Refused):
        await os.unlock(NEW)
    ostree.fails.clear()
    ostree.commands.clear()
    ostree.idle, ostree.before_end = False, lambda: None
    await stage(os)
    assert work(ostree)[0] == "undeploy 0"


async def test_a_tree_whose_programs_do_not_run(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    ostree.fails[CHECK] = ""
    error = await fails(os, Terminal)
    assert (error.reason, host.staged) == ("ImageBroken", None)
    check = next(each for unit, each in zip(*_units(ostree), strict=True) if unit == CHECK)
    assert check["RootDirectory"].endswith(f"/ostree/deploy/{OSNAME}/deploy/{B}.0")


async def test_a_check_that_was_killed_says_nothing_about_the_image(os: Bootc, ostree: FakeOstree) -> None:
    ostree.fails[CHECK] = ""
    ostree.systemd.units[CHECK] = {"ExecMainCode": Variant("i", 2), "ExecMainStatus": Variant("i", 9)}
    assert (await fails(os, Retryable)).reason == "StageFailed"


def _units(ostree: FakeOstree) -> tuple[list[str], list[dict[str, object]]]:
    return [unit for unit, _ in ostree.systemd.transient], ostree.systemd.transient_properties


async def test_what_a_killed_agent_left_is_removed_first(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    """Also if it is the target: no one has seen the end of its staging."""
    booted = (await os.list())[0]
    await asyncio.to_thread(Ownership(host.root).open, TARGET, booted, [], OwnDeployments())
    host.staged, host.locked = FakeDeployment(B, 0, reference("1"), "root=LABEL=root nosmt"), False
    host.commit(B, B_DIGEST)
    host.write()
    staged = await stage(os)
    assert work(ostree)[0] == "undeploy 0"
    assert staged.locked
    assert [f"stop {unit}" for unit in (PULL, ADMIN, CHECK)] == ostree.commands[:3]


async def test_one_of_another_program_stays(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    host.staged, host.locked = FakeDeployment(B, 0, reference("1")), True
    host.write()
    assert (await fails(os, Refused)).reason == "StagedByOther"
    assert (work(ostree), host.staged.id) == ([], NEW)
    host.staged = None
    host.deployments.reverse()
    host.write()
    assert (await fails(os, Refused)).reason == "StagedByOther"


async def test_another_target_takes_the_place_of_ours(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    await stage(os)
    ostree.commands.clear()
    staged = await stage(os, OsTarget(kernel_arguments=("other",)))
    assert work(ostree)[0] == "undeploy 0"
    assert (staged.checksum, host.locked) == (A, True)


async def test_an_unlocked_one_is_locked_again(os: Bootc, host: FakeSysroot) -> None:
    await stage(os)
    host.locked = False
    host.write()
    assert (await stage(os)).locked
    assert (host.root / "run/ostree/staged-deployment-locked").exists()


async def test_cancelling_ends_the_unit(os: Bootc, ostree: FakeOstree) -> None:
    ostree.hang = PULL
    staging = asyncio.create_task(stage(os))
    async with asyncio.timeout(20):
        while not ostree.systemd.transient:
            await asyncio.sleep(0.01)
    ostree.commands.clear()
    staging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await staging
    assert ostree.commands == [f"stop {PULL}"]


async def test_another_program_has_the_lock(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    lock = host.root / "ostree/lock"
    lock.touch()
    with lock.open("rb+") as file:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, system.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        tasks: list[str] = []
        with pytest.raises(Refused) as caught:
            await stage(os, tasks=tasks)
        assert caught.value.reason == "SysrootBusy"
        assert tasks[-1] == "Waiting for another program that changes the deployments"
        assert work(ostree) == []
    assert (await stage(os)).id == NEW


async def test_discard(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    await stage(os)
    await os.discard()
    assert (host.staged, len(host.deployments)) == (None, 2)
    with pytest.raises(Refused) as caught:
        await os.unlock(NEW)
    assert caught.value.reason == "StagedLost"
    ostree.commands.clear()
    await os.discard()
    assert work(ostree) == []
    # What a killed agent began could stage after that.
    assert f"stop {ADMIN}" in ostree.commands


async def test_a_discard_that_does_nothing(os: Bootc, ostree: FakeOstree) -> None:
    await stage(os)
    ostree.idle = True
    with pytest.raises(Terminal) as caught:
        await os.discard()
    assert caught.value.reason == "DiscardFailed"


async def test_rollback(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    assert await os.rollback() == f"{OSNAME}-{C}.0"
    assert ostree.commands == ["set-default 1"]
    # A second one, after a kill, does not bring the first one back.
    assert await os.rollback() == f"{OSNAME}-{C}.0"
    assert [d.checksum for d in host.deployments] == [C, A]


async def test_no_rollback(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    await stage(os)
    with pytest.raises(Refused) as refused:
        await os.rollback()
    assert refused.value.reason == "StagedByOther"
    await os.discard()
    ostree.idle = True
    with pytest.raises(Terminal) as caught:
        await os.rollback()
    assert caught.value.reason == "NoRollback"
    del host.deployments[1]
    host.write()
    with pytest.raises(Terminal) as caught:
        await os.rollback()
    assert caught.value.reason == "NoRollback"


async def test_only_the_result_of_a_success_is_unlocked(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    await stage(os)
    await os.unlock(NEW)
    assert ostree.systemd.transient[-1][1] == ["/usr/bin/ostree", "admin", "lock-finalization", "--unlock"]
    assert host.locked is False


@pytest.mark.parametrize("unit", UPDATERS)
async def test_another_updater(os: Bootc, ostree: FakeOstree, host: FakeSysroot, unit: str) -> None:
    (host.root / PULLER).parent.mkdir(parents=True)
    (host.root / PULLER).touch()
    await os.check_stageable(TARGET)
    ostree.systemd.units[unit] = {"ActiveState": Variant("s", "active")}
    with pytest.raises(Refused) as caught:
        await os.check_stageable(TARGET)
    assert caught.value.reason == "OtherDriver"


async def test_what_such_a_host_cannot_do(os: Bootc) -> None:
    with pytest.raises(Unreconcilable) as caught:
        await os.check_stageable(TARGET)
    assert caught.value.reason == "NoPuller"
    with pytest.raises(Unreconcilable) as caught:
        await os.check_stageable(OsTarget(image=parse_image(f"ostree://fedora/branch@{B}")))
    assert caught.value.reason == "ImageNeeded"


async def test_a_host_of_its_own_back_end_is_refused(os: Bootc, host: FakeSysroot) -> None:
    (host.root / "run/ostree-booted").unlink()
    (host.root / "proc").mkdir(exist_ok=True)
    (host.root / "proc/cmdline").write_text("root=UUID=1 composefs=abc\n")
    for work in (os.list(), os.check_stageable(TARGET), os.rollback(), os.discard()):
        with pytest.raises(Unreconcilable) as caught:
            await work
        assert caught.value.reason == "BootcHost"


async def test_less_space_is_enough_after_a_reload(os: Bootc) -> None:
    os.use(min_free=7)
    assert os._checks.space.min_free == 7
    assert await os.preparation(TARGET) is None
    assert (os.staging_unit.name, os.staging_unit.slice) == (PULL, SLICE)
    assert os.staging_unit.is_busy is not None
    assert not await os.staging_unit.is_busy()


async def test_changes(os: Bootc) -> None:
    staged = await stage(os)
    changes = await os.changes(staged.id, None)
    assert (changes.staged, changes.arguments_added, changes.packages) == (NEW, ["nosmt", 'x="a $b"'], None)
    with pytest.raises(Refused):
        await os.changes("other", None)


async def test_the_arguments_of_both_images_count(os: Bootc, host: FakeSysroot) -> None:
    here = host.root / f"ostree/deploy/{OSNAME}/deploy/{A}.0"
    for tree, argument in ((here, "quiet"), (host.root / f"ostree/repo/{B}", "fromimage=2")):
        (tree / KARGS).mkdir(parents=True)
        (tree / KARGS / "10.toml").write_text(f'kargs = ["{argument}"]\n')
    staged = await stage(os, OsTarget(image=IMAGE, kernel_arguments=("nosmt",)))
    assert staged.kernel_arguments == ("root=LABEL=root", "fromimage=2", "nosmt")


async def test_bound_images_are_refused(os: Bootc, ostree: FakeOstree, host: FakeSysroot) -> None:
    (host.root / f"ostree/repo/{B}" / BOUND).mkdir(parents=True)
    (host.root / f"ostree/repo/{B}" / BOUND / "app.image").touch()
    assert (await fails(os, Terminal)).reason == "BoundImages"
    assert [command.partition(" ")[0] for command in work(ostree)] == ["container"]


async def test_packages_and_layers_are_refused(os: Bootc, host: FakeSysroot) -> None:
    with pytest.raises(Unreconcilable) as caught:
        await os.check_stageable(OsTarget(packages=frozenset({"kata"})))
    assert caught.value.reason == "NoLayering"
    host.deployments[0].more_origin = "[packages]\nrequested=vim;\n"
    host.write()
    with pytest.raises(Unreconcilable) as caught:
        await os.check_stageable(TARGET)
    assert caught.value.reason == "HasLayers"


async def test_arguments_of_a_host_in_an_image_that_nothing_serves(os: Bootc, host: FakeSysroot) -> None:
    """It has to be left, and its arguments may be what keeps it from that."""
    tree = host.root / f"ostree/deploy/{OSNAME}/deploy/{A}.1"
    (tree / "usr/lib/systemd/system").mkdir(parents=True)
    assert (await stage(os, OsTarget(kernel_arguments=("nosmt",)))).locked
