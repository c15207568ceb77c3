# SPDX-License-Identifier: Apache-2.0
"""Soft reboots into the staged deployment: checked, prepared, and seen and cleared where another program prepared them.

The stand-in of ``ostree admin prepare-soft-reboot`` writes what libostree 2026.4 writes, or lies about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Variant

from nodeagent.errors import NoSoftReboot, Refused, SoftObstacle
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree import soft_reboot
from nodeagent.host.ostree.soft_reboot import PREPARED
from nodeagent.host.systemd import Systemd
from tests.features.rpmostree.adapters import QUICK, adapter
from tests.features.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.features.rpmostree.test_changes import tree
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus
from tests.support.vardict import vardict

pytestmark = [
    pytest.mark.usefixtures("no_leaked_fds"),
    pytest.mark.finding(
        "OS: soft reboots",
        "A locked deployment that is prepared for a soft reboot is reported at once, and cleared before a "
        "reboot of ours.",
    ),
    pytest.mark.finding(
        "OS: soft reboots",
        "An update of the OS is entered by a soft reboot only with the same kernel, initramfs, arguments, "
        "policy and files of a starting kernel; an older libostree gets a full one with the reason.",
    ),
]
MOUNTINFO = "36 25 0:30 / /run/nextroot ro,relatime shared:1 - overlay composefs ro\n"


@pytest.fixture
def os(private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, model: FakeRpmOstree) -> RpmOstree:
    return adapter(private_bus, Systemd(bus), model.root)


def prepare(model: FakeRpmOstree, *, how: str = "note") -> Path:
    path = model.root / (PREPARED if how == "note" else "/proc/self/mountinfo").lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("" if how == "note" else MOUNTINFO)
    return path


@pytest.mark.parametrize("how", ["note", "mount"])
async def test_only_a_locked_deployment_starts_unmerged(os: RpmOstree, model: FakeRpmOstree, how: str) -> None:
    assert await os.unmerged_soft_reboot() == ""
    staged = model.stage()
    assert await os.unmerged_soft_reboot() == ""
    prepare(model, how=how)
    if how == "mount":
        assert await os.unmerged_soft_reboot() == "", "another program mounted another system"
        osname, name = staged["osname"], staged["id"].removeprefix(f"{staged['osname']}-")
        etc = model.root / "ostree/deploy" / osname / "deploy" / name / "etc"
        etc.mkdir(parents=True, exist_ok=True)
        (model.root / "run/nextroot").mkdir(parents=True)
        (model.root / "run/nextroot/etc").symlink_to(etc)
    assert await os.unmerged_soft_reboot() == staged["id"]
    model.write_state(staged, locked=False)
    assert await os.unmerged_soft_reboot() == ""
    (model.root / "run/ostree/staged-deployment").unlink()
    assert await os.unmerged_soft_reboot() == ""


async def test_it_is_cleared(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree) -> None:
    model.stage()
    note = prepare(model)

    async def run(job: int, unit: str) -> None:
        note.unlink()
        await manager.finish(job, unit, "done")

    manager.job_script = run
    await os.reset_soft_reboot()
    ((_, command),) = manager.transient
    assert command == ["/usr/bin/ostree", "admin", "prepare-soft-reboot", "--reset"]


@pytest.mark.parametrize("result", ["failed", "done"])
async def test_it_cannot_be_cleared(os: RpmOstree, manager: FakeSystemd, model: FakeRpmOstree, result: str) -> None:
    staged = model.stage()
    prepare(model)
    manager.properties["ExecMainStatus"] = Variant("i", 1 if result == "failed" else 0)
    manager.job_script = lambda job, unit: manager.finish(job, unit, result)
    with pytest.raises(Refused) as caught:
        await os.reset_soft_reboot()
    assert caught.value.reason == "LockedSoftReboot"
    assert staged["id"] in caught.value.message


# -- our own -----------------------------------------------------------------------------------------------------------

SAME = {
    "usr/lib/modules/6.1/vmlinuz": "k1",
    "usr/lib/modules/6.1/initramfs.img": "i1",
    "usr/etc/selinux/targeted/policy/policy.33": "p",
    "usr/lib/sysctl.d/50-a.conf": "s",
    "usr/bin/app": "1",
}


class Host:
    """The files of a host with a staged deployment, and its ostree command."""

    def __init__(self, model: FakeRpmOstree, manager: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.manager = model, manager
        self.version = (2026, 4)
        self.lie = ""
        self.staged = model.stage()
        self.booted = next(each for each in model.deployments if each["booted"])
        self.mounts = model.root / "proc/self/mountinfo"
        self.note = model.root / PREPARED.lstrip("/")
        for directory in (self.mounts.parent, self.note.parent):
            directory.mkdir(parents=True, exist_ok=True)
        (model.root / "run/ostree-booted").write_bytes(vardict({"composefs": True}))

        async def version() -> tuple[int, int]:
            return self.version

        monkeypatch.setattr(soft_reboot, "ostree_version", version)
        manager.job_script = self.run

    def trees(self, new: dict[str, str | None], old: dict[str, str] = SAME) -> None:
        tree(self.model.root, self.booted, old, database=False)
        files = {path: text for path, text in {**old, **new}.items() if text is not None}
        tree(self.model.root, self.staged, files, database=False)

    def directory(self, deployment: dict[str, Any]) -> Path:
        name = f"{deployment['checksum']}.{deployment['serial']}"
        return self.model.root / "ostree/deploy/fedora-coreos/deploy" / name

    def unlock(self) -> None:
        self.model.write_state(self.staged, locked=False)

    async def run(self, job: int, unit: str) -> None:
        if not unit.startswith("nodeagent-run-"):
            await self.manager.finish(job, unit, "done")
            return
        _, command = self.manager.transient[-1]
        self.manager.properties["ExecMainStatus"] = Variant("i", 1)
        if command[-1] == "--reset":
            self.note.unlink(missing_ok=True)
            self.mounts.write_text("")
        elif self.lie == "error":
            await self.manager.finish(job, unit, "failed")
            return
        elif self.lie != "nothing":
            self.prepare(self.booted if self.lie == "another" else self.staged)
        if self.lie == "no mount":
            self.mounts.write_text("")
        if self.lie == "locks":
            self.model.write_state(self.staged, locked=True)
        if self.lie == "deletes":
            (self.model.root / "run/ostree/staged-deployment").unlink(missing_ok=True)
        await self.manager.finish(job, unit, "done")

    def prepare(self, deployment: dict[str, Any]) -> None:
        info = self.directory(deployment).stat()
        pair = (info.st_dev, info.st_ino)
        self.note.write_bytes(vardict({"composefs": True, "backing-root-device-inode": pair, "sysroot-ro": True}))
        self.mounts.write_text(MOUNTINFO)

    @property
    def commands(self) -> list[str]:
        return [command[-1] for _, command in self.manager.transient]


@pytest.fixture
def own(daemon: FakeRpmOstree, manager: FakeSystemd, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(daemon, manager, monkeypatch)


@pytest.fixture
def adapted(private_bus: PrivateBus, bus: Bus, own: Host) -> RpmOstree:
    return adapter(private_bus, Systemd(bus), own.model.root)


async def refused(work: Awaitable[None]) -> Refused:
    with pytest.raises(Refused) as caught:
        await work
    return caught.value


def obstacle(error: Refused) -> SoftObstacle | None:
    assert isinstance(error, NoSoftReboot)
    return error.obstacle


async def test_a_deployment_with_the_same_kernel(adapted: RpmOstree, own: Host) -> None:
    own.trees({"usr/bin/app": "2", "usr/bin/new": "1", "usr/etc/app.conf": "x"})
    await adapted.check_soft_reboot(own.staged["id"])


@pytest.mark.parametrize(
    ("new", "path"),
    [
        ({"usr/lib/modules/6.1/vmlinuz": "k2"}, "usr/lib/modules"),
        ({"usr/lib/modules/6.1/initramfs.img": "i2"}, "usr/lib/modules"),
        ({"usr/lib/modules/6.1/extra/kmod.ko": "m"}, "usr/lib/modules"),
        ({"usr/etc/selinux/targeted/policy/policy.33": "p2"}, "usr/etc/selinux"),
        ({"usr/etc/selinux/targeted/policy/policy.33": None}, "usr/etc/selinux"),
        ({"usr/lib/sysctl.d/50-a.conf": None}, "usr/lib/sysctl.d"),
        ({"usr/lib/firmware/intel-ucode/06-55-04": "u"}, "usr/lib/firmware"),
        ({"usr/lib/udev/rules.d/50-a.rules": "u"}, "usr/lib/udev"),
        ({"usr/lib/systemd/network/99-default.link": "l"}, "usr/lib/systemd/network"),
        ({"usr/lib/ostree/prepare-root.conf": "c"}, "usr/lib/ostree/prepare-root.conf"),
    ],
)
async def test_what_only_a_starting_kernel_reads(
    adapted: RpmOstree, own: Host, new: dict[str, str | None], path: str
) -> None:
    own.trees(new)
    error = await refused(adapted.check_soft_reboot(own.staged["id"]))
    assert (obstacle(error), f"/{path}: " in error.message) == (SoftObstacle.KERNEL, True), error


async def test_trees_without_a_kernel(adapted: RpmOstree, own: Host) -> None:
    own.trees({}, {"usr/bin/app": "1"})
    assert obstacle(await refused(adapted.check_soft_reboot(own.staged["id"]))) is SoftObstacle.KERNEL


async def test_other_kernel_arguments(adapted: RpmOstree, own: Host) -> None:
    own.trees({})
    own.staged["options"] = "root=LABEL=root nosmt"
    own.model.write_state(own.staged, locked=True)
    error = await refused(adapted.check_soft_reboot(own.staged["id"]))
    assert (obstacle(error), "-quiet +nosmt" in error.message) == (SoftObstacle.KERNEL, True)


@pytest.mark.parametrize("version", [(0, 0), (2025, 2), (2025, 7)])
async def test_an_ostree_that_cannot_prepare_it(adapted: RpmOstree, own: Host, version: tuple[int, int]) -> None:
    own.trees({})
    own.version = version
    error = await refused(adapted.check_soft_reboot(own.staged["id"]))
    assert (obstacle(error), "2026.1" in error.message) == (SoftObstacle.UNSUPPORTED, True)


@pytest.mark.parametrize("content", [b"", b"x", vardict({"composefs": False}), None])
async def test_a_host_without_composefs(adapted: RpmOstree, own: Host, content: bytes | None) -> None:
    own.trees({})
    booted = own.model.root / "run/ostree-booted"
    booted.unlink() if content is None else booted.write_bytes(content)
    error = await refused(adapted.check_soft_reboot(own.staged["id"]))
    assert (obstacle(error), "composefs" in error.message) == (SoftObstacle.UNSUPPORTED, True)


async def test_what_another_program_prepared(adapted: RpmOstree, own: Host) -> None:
    """A preparation of our own deployment is no obstacle: it is ours, from before a restart."""
    own.trees({})
    own.prepare(own.staged)
    await adapted.check_soft_reboot(own.staged["id"])
    for spoil in (lambda: own.prepare(own.booted), own.note.unlink, lambda: own.note.write_bytes(b"odd")):
        spoil()
        assert obstacle(await refused(adapted.check_soft_reboot(own.staged["id"]))) is SoftObstacle.ANOTHER_SYSTEM


async def test_a_deployment_that_is_not_staged_any_more(adapted: RpmOstree, own: Host) -> None:
    own.trees({})
    assert (await refused(adapted.check_soft_reboot("fedora-coreos-x.1"))).reason == "StagedLost"
    assert obstacle(await refused(adapted.prepare_soft_reboot("fedora-coreos-x.1"))) is SoftObstacle.NOT_PREPARED
    assert own.commands == []


async def test_it_is_prepared_once(adapted: RpmOstree, own: Host) -> None:
    """A second preparation would mount over the first one."""
    own.trees({})
    own.unlock()
    for _ in range(2):
        await adapted.prepare_soft_reboot(own.staged["id"])
    ((_, command),) = own.manager.transient
    assert command == ["/usr/bin/ostree", "admin", "prepare-soft-reboot", "0"]


@pytest.mark.finding(
    "OS: soft reboots",
    "The deployment is unlocked, then prepared, then checked; a success of ostree that is none is cleared.",
)
@pytest.mark.parametrize("lie", ["error", "nothing", "another", "no mount", "locks", "deletes"])
async def test_a_success_that_is_none_is_cleared(adapted: RpmOstree, own: Host, lie: str) -> None:
    own.trees({})
    own.unlock()
    own.lie = lie
    error = await refused(adapted.prepare_soft_reboot(own.staged["id"]))
    assert obstacle(error) is SoftObstacle.NOT_PREPARED, error
    assert own.commands == ["0", "--reset"]
    assert not own.note.exists()


async def test_a_locked_deployment_is_not_entered(adapted: RpmOstree, own: Host) -> None:
    own.trees({})
    error = await refused(adapted.prepare_soft_reboot(own.staged["id"]))
    assert (obstacle(error), "locked" in error.message) == (SoftObstacle.NOT_PREPARED, True)
    assert not own.note.exists()


# -- after it ----------------------------------------------------------------------------------------------------------


def note_booted(own: Host, deployment: dict[str, Any]) -> None:
    info = own.directory(deployment).stat()
    note = vardict({"composefs": True, "backing-root-device-inode": (info.st_dev, info.st_ino)})
    (own.model.root / "run/ostree-booted").write_bytes(note)


async def test_the_deployments_are_read_when_libostree_knows_the_booted_one(adapted: RpmOstree, own: Host) -> None:
    """The note is left over: the switch has taken place, and its mount is the root now."""
    own.trees({})
    own.prepare(own.staged)
    own.mounts.write_text("")
    reading = asyncio.create_task(adapted.list())
    done, _ = await asyncio.wait([reading], timeout=0.2)
    assert not done
    own.note.unlink()
    assert [each.booted for each in await reading].count(True) == 1


async def test_a_note_that_stays_is_not_waited_for_again(private_bus: PrivateBus, bus: Bus, own: Host) -> None:
    """The service has failed, for example because of an earlier finalization."""
    os = adapter(private_bus, Systemd(bus), own.model.root, timing=replace(QUICK, complete=0.1))
    own.trees({})
    own.prepare(own.staged)
    own.mounts.write_text("")
    for _ in range(2):
        assert await os.list()


async def test_a_daemon_from_before_is_restarted_once(adapted: RpmOstree, own: Host) -> None:
    own.trees({})
    note_booted(own, own.staged)
    for _ in range(2):
        assert await adapted.list()
    restarts = [call for call in own.manager.calls if call[0] == "RestartUnit"]
    assert restarts == [("RestartUnit", ["rpm-ostreed.service", "replace"])]


@pytest.mark.parametrize("known", [True, False])
async def test_a_daemon_that_is_right_is_left_alone(adapted: RpmOstree, own: Host, known: bool) -> None:
    own.trees({})
    if known:
        note_booted(own, own.booted)
    await adapted.list()
    assert not [call for call in own.manager.calls if call[0] == "RestartUnit"]


@pytest.mark.finding(
    "OS: soft reboots",
    "A locked deployment that another program started all the same is left by a full reboot, and the update continues"
    " in the old one.",
)
async def test_a_locked_deployment_that_another_program_started(adapted: RpmOstree, own: Host) -> None:
    own.trees({})
    own.model.write_state(own.staged, locked=True)
    # It is prepared, which is no reason to leave the booted one.
    note_booted(own, own.booted)
    own.prepare(own.staged)
    assert await adapted.unmerged_soft_reboot(running=True) == ""
    own.note.unlink()
    note_booted(own, own.staged)
    assert await adapted.unmerged_soft_reboot(running=True) == own.staged["id"]
    own.model.write_state(own.staged, locked=False)
    assert await adapted.unmerged_soft_reboot(running=True) == "", "an update that was unlocked finds out itself"
    for odd in (b"", b"x"):
        own.model.write_state(own.staged, locked=True)
        (own.model.root / "run/ostree-booted").write_bytes(odd)
        assert await adapted.unmerged_soft_reboot(running=True) == ""
