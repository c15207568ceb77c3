"""pyudev and the real libudev on a sysfs of our own: libudev reads /sys and no other place, so it gets one, in a mount
namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import AgentError
from nodeagent.fence.blockdev.find import disks_below, find_disks, mounted_at
from nodeagent.fence.blockdev.hotplug import hotplug
from nodeagent.fence.blockdev.udev import Udev, number_of
from nodeagent.fence.policy.disks import BlockNode, DeviceNumber, Disks
from tests.fence.blockdev.trees import lay_out

ASKED = "tests.fence.blockdev.asked"
TREE = Path(__file__).resolve().parents[3]
ROOT_NUMBER = str(number_of(os.stat("/").st_dev))

# from where: limit, disks at the bottom, layers above the limit
STACKS = {
    "254:4": ("/dev/vda", ["/dev/vda"], ["partition"]),
    "254:0": ("/dev/vda", ["/dev/vda"], []),
    "253:1": ("/dev/sda", ["/dev/sda"], ["LVM", "dm-crypt", "partition"]),
    "253:2": ("/dev/dm-2", ["/dev/sdb", "/dev/sdc"], []),
    "253:3": ("/dev/md126", ["/dev/sdd", "/dev/sde"], ["dm-crypt"]),
    "9:127": ("/dev/sdd", ["/dev/sdd"], ["md raid1", "partition"]),
    "253:5": ("/dev/dm-4", ["/dev/sdf", "/dev/sdg"], ["device mapper"]),
    "253:6": ("/dev/sdh", ["/dev/sdh"], ["multipath"]),
    "253:7": ("/dev/sdi", ["/dev/sdi"], ["dm-verity", "partition"]),
    "259:4": ("/dev/nvme0n1", ["/dev/nvme0n1"], ["partition"]),
    "259:20": ("/dev/nvme1n1", ["/dev/nvme1n1"], ["partition"]),
    "104:2": ("/dev/cciss/c0d0", ["/dev/cciss/c0d0"], ["partition"]),
    "7:7": ("/dev/loop7", ["/dev/loop7"], []),  # its file is gone
}
OTHERS = ("/dev/mapper/vg-root", "/dev/dm-1", "/dev/mapper/none", "btrfs=8:16", "btrfs=8:3", "8:200")


def needs_namespace(kind: str) -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", kind, "true"], capture_output=True, timeout=20).returncode != 0:
        pytest.skip("needs root and leave to make namespaces")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All questions to one process: starting it is what takes the time."""
    needs_namespace("-m")
    root = tmp_path_factory.mktemp("sysfs")
    lay_out(root)
    for device in ("sdb", "sdc"):
        (root / "sys/fs/btrfs/6f0e/devices").mkdir(parents=True, exist_ok=True)
        (root / f"sys/fs/btrfs/6f0e/devices/{device}").symlink_to(f"../../../../block/{device}")
    script = 'mkdir -p /run/udev && mount --bind "$0/sys" /sys && mount --bind "$0/udev" /run/udev && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", script, root, sys.executable, "-m", ASKED, *STACKS, *OTHERS],
        env=os.environ | {"SYSTEMD_DEVICE_VERIFY_SYSFS": "0"},  # libudev's switch for exactly this
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("top", STACKS)
def test_the_disk_below_a_stack(answers: dict[str, Any], top: str) -> None:
    limit, disks, layers = STACKS[top]
    found = answers[top]
    assert [at["path"] for at in found["limits"]] == [limit]
    assert [disk["path"] for disk in found["disks"]] == disks
    assert found["layers"] == layers


@pytest.mark.parametrize(
    ("top", "word"),
    [
        ("253:2", "several disks: /dev/sdb, /dev/sdc"),
        ("253:3", "md raid1"),
        ("253:6", "one path"),
        ("259:20", "several paths"),
        ("7:7", "file on another file system"),
    ],
)
def test_what_is_unusual_is_said(answers: dict[str, Any], top: str, word: str) -> None:
    assert any(word in note for note in answers[top]["notes"])


def test_nothing_is_said_of_plain_stacks(answers: dict[str, Any]) -> None:
    assert [top for top in ("254:4", "253:1", "253:7", "259:4", "104:2") if answers[top]["notes"]] == []


def test_a_device_by_its_names(answers: dict[str, Any]) -> None:
    assert answers["/dev/mapper/vg-root"] == answers["/dev/dm-1"] == [253, 1]
    assert answers["/dev/mapper/none"] is None


def test_all_devices_of_a_btrfs(answers: dict[str, Any]) -> None:
    assert answers["btrfs=8:16"] == [[8, 16], [8, 32]]
    assert answers["btrfs=8:3"] == [[8, 3]]


def test_no_such_device(answers: dict[str, Any]) -> None:
    assert answers["8:200"] is None


# -- this machine -----------------------------------------------------------------------------------------------------


async def test_the_disk_of_this_machine() -> None:
    try:
        found = await find_disks(("/nowhere", "/proc", "/"))
    except AgentError as error:
        if error.reason == "NoDisk":
            pytest.skip("the root of this machine is on no disk")
        raise
    limit = found.limits[0]
    assert Path(f"/sys/dev/block/{limit.number}/queue").is_dir(), "a whole disk has a queue"
    assert found.disks


def test_on_no_disk() -> None:
    with pytest.raises(AgentError) as caught:
        disks_below(("/proc", "/nowhere"))
    assert caught.value.reason == "NoDisk"


def test_without_libudev(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyudev  # the real one: what is missing is the library below it

    def missing() -> None:
        raise ImportError("No library named udev")

    monkeypatch.setattr(pyudev, "Context", missing)
    with pytest.raises(AgentError, match="No library named udev") as caught:
        Udev()
    assert caught.value.reason == "NoUdev"


class BtrfsUdev(Udev):
    """Two disks with one btrfs over them, for what is asked after the mount is known."""

    def __init__(self) -> None:
        pass

    def named(self, source: str) -> DeviceNumber | None:
        return DeviceNumber(8, 0) if source == "/dev/sda" else None

    def btrfs(self, member: DeviceNumber) -> tuple[DeviceNumber, ...]:
        return (member, DeviceNumber(8, 16))

    def node(self, number: DeviceNumber) -> Any:
        return BlockNode(number, "/dev/sda" if number.minor == 0 else "/dev/sdb")


def test_a_btrfs_over_two_disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 0:21 / /proc rw shared:5 - btrfs /dev/sda rw,subvol=/\n")  # /proc: a number without a disk
    monkeypatch.setattr("nodeagent.fence.blockdev.find._MOUNTINFO", mounts)
    found: Disks = disks_below(("/proc",), BtrfsUdev())
    assert [at.path for at in found.limits] == ["/dev/sda", "/dev/sdb"]
    assert "each gets the whole limit" in found.notes[-1]


MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 /sub /data rw,relatime shared:1 - btrfs /dev/mapper/my\\040disk rw,subvol=/sub
31 30 0:31 / /data/in\\040side rw - tmpfs tmpfs rw
32 27 0:32 / /data rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/etc", ("ext4", "/dev/vda")),
        ("/database", ("ext4", "/dev/vda")),
        ("/data/in side/x", ("tmpfs", "tmpfs")),
        ("/data", ("xfs", "/dev/sdb")),  # mounted over the other
    ],
)
def test_what_is_mounted_there(path: str, mount: tuple[str, str]) -> None:
    assert mounted_at(path, MOUNTS) == mount


def test_the_source_of_a_mount_is_unescaped() -> None:
    assert mounted_at("/data", MOUNTS.rpartition("32 27")[0]) == (
        "btrfs",
        "/dev/mapper/my disk",
    )


def test_hotplug_is_heard() -> None:
    """From a udevd of our own, in a network namespace: its messages are multicast, and nobody else shall get ours."""
    needs_namespace("-n")
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "tests.fence.blockdev.plugged"],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["add", "/dev/sdz", [65, 144]], ["remove", "/dev/sdz", [65, 144]]]


async def test_hotplug_is_silent_without_changes() -> None:
    async with hotplug() as events:
        assert events.empty()
