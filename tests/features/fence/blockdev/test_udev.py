# SPDX-License-Identifier: Apache-2.0
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
from nodeagent.features.fence.blockdev.find import Udev, disks_below, filesystem_at, find_disks, number_of
from tests.features.fence.blockdev.trees import lay_out

ASKED = "tests.features.fence.blockdev.asked"
TREE = Path(__file__).resolve().parents[4]
ROOT_NUMBER = str(number_of(os.stat("/").st_dev))

# from where: limit, disks at the bottom
STACKS = {
    "254:4": ("/dev/vda", ["/dev/vda"]),
    "254:0": ("/dev/vda", ["/dev/vda"]),
    "253:1": ("/dev/sda", ["/dev/sda"]),
    "253:2": ("/dev/dm-2", ["/dev/sdb", "/dev/sdc"]),
    "253:3": ("/dev/md126", ["/dev/sdd", "/dev/sde"]),
    "9:127": ("/dev/sdd", ["/dev/sdd"]),
    "253:5": ("/dev/dm-4", ["/dev/sdf", "/dev/sdg"]),
    "253:6": ("/dev/sdh", ["/dev/sdh"]),
    "253:7": ("/dev/sdi", ["/dev/sdi"]),
    "259:4": ("/dev/nvme0n1", ["/dev/nvme0n1"]),
    "259:20": ("/dev/nvme1n1", ["/dev/nvme1n1"]),
    "104:2": ("/dev/cciss/c0d0", ["/dev/cciss/c0d0"]),
    "7:7": ("/dev/loop7", ["/dev/loop7"]),  # its file is gone
}
MISSING = "8:200"


def needs_namespace() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, timeout=20).returncode != 0:
        pytest.skip("needs root and leave to make namespaces")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All questions to one process: starting it is what takes the time."""
    needs_namespace()
    root = tmp_path_factory.mktemp("sysfs")
    lay_out(root)
    script = 'mkdir -p /run/udev && mount --bind "$0/sys" /sys && mount --bind "$0/udev" /run/udev && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", script, root, sys.executable, "-m", ASKED, *STACKS, MISSING],
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
    limit, disks = STACKS[top]
    found = answers[top]
    assert found["limit"]["path"] == limit
    assert [disk["path"] for disk in found["disks"]] == disks


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


def test_no_such_device(answers: dict[str, Any]) -> None:
    assert answers[MISSING] is None


# -- this machine -----------------------------------------------------------------------------------------------------


async def test_the_disk_of_this_machine() -> None:
    try:
        found = await find_disks(("/nowhere", "/proc", "/"))
    except AgentError as error:
        if error.reason == "NoDisk":
            pytest.skip("the root of this machine is on no disk")
        raise
    assert Path(f"/sys/dev/block/{found.limit.number}/queue").is_dir(), "a whole disk has a queue"
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


MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 /sub /data rw,relatime shared:1 - btrfs /dev/mapper/my\\040disk rw,subvol=/sub
31 30 0:31 / /data/in\\040side rw - tmpfs tmpfs rw
32 27 0:32 / /data rw - xfs /dev/sdb rw
33 27 0:33 / /home/u/\x0c\u2028\x85 rw - fuse.x x rw
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/etc", "ext4"),
        ("/database", "ext4"),
        ("/data/in side/x", "tmpfs"),
        ("/data", "xfs"),  # mounted over the other
    ],
)
def test_what_is_mounted_there(path: str, mount: str) -> None:
    assert filesystem_at(path, MOUNTS) == mount
