# SPDX-License-Identifier: Apache-2.0
"""The disk below a path, on real device-mapper devices: found, and a limit on it is put there by systemd."""

from __future__ import annotations

import json

from integration.hosts.vm.virtual_machine import Vm

PYTHON = "/usr/lib/nodeagent/bin/python3"
FIND = """\
import json, sys
from nodeagent.features.fence.blockdev.find import disks_below
found = disks_below(sys.argv[1:])
limit = found.limit
print(json.dumps([[limit.path, str(limit.number)], [disk.path for disk in found.disks]]))
"""
UNIT = "capped.service"
CAP = 1_000_000  # bytes a second
FILE, POINT = "/var/disk.img", "/var/stacked"
SLOW = 120  # seconds: LUKS and LVM without KVM


def found_below(vm: Vm, path: str) -> tuple[list[str], list[str]]:
    """Path and number of what is limited, and paths of the disks at the bottom."""
    limit, disks = json.loads(vm.run([PYTHON, "-c", FIND, path], timeout=SLOW).stdout)
    return limit, disks


def capped_by_systemd(vm: Vm, device: str) -> list[str]:
    """Numbers of the devices on which systemd caps a unit whose setting names this one."""
    vm.run(["systemd-run", f"--unit={UNIT}", f"--property=IOWriteBandwidthMax={device} {CAP}", "sleep", "infinity"])
    try:
        lines = vm.read_text(f"/sys/fs/cgroup/system.slice/{UNIT}/io.max").splitlines()
    finally:
        vm.run(["systemctl", "stop", UNIT])
    return [line.split()[0] for line in lines if f"wbps={CAP}" in line]


def test_a_limit_is_put_where_the_disk_was_found(vm: Vm) -> None:
    limit, disks = found_below(vm, "/sysroot")
    assert (limit[0], disks) == ("/dev/vda", ["/dev/vda"])
    assert capped_by_systemd(vm, limit[0]) == [limit[1]]

    # A logical volume on LUKS. Below is a file, since the guest has no other disk to write to.
    vm.run(["modprobe", "-a", "loop", "dm-mod", "dm-crypt"])
    vm.run(["fallocate", "--length=128M", FILE])
    loop = vm.run(["losetup", "--find", "--show", FILE]).stdout.strip()
    weak = ["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000", "--batch-mode", "--key-file=-"]
    vm.run(["cryptsetup", "luksFormat", "--type=luks2", *weak, loop], stdin="secret", timeout=SLOW)
    vm.run(["cryptsetup", "open", "--key-file=-", loop, "sealed"], stdin="secret", timeout=SLOW)
    vm.run(["vgcreate", "--yes", "group", "/dev/mapper/sealed"], timeout=SLOW)
    vm.run(["lvcreate", "--yes", "--extents=100%FREE", "--name=volume", "group"], timeout=SLOW)
    vm.run(["mkfs.ext4", "-q", "/dev/group/volume"], timeout=SLOW)
    vm.run(["mkdir", POINT])
    vm.run(["mount", "/dev/group/volume", POINT])

    limit, disks = found_below(vm, POINT)
    assert limit[0] == loop
    assert disks == ["/dev/vda"], "the file is there"
    # For a volume, systemd 257 stops one layer below it, so the setting must name the device itself.
    assert capped_by_systemd(vm, limit[0]) == [limit[1]]
