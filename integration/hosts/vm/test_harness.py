# SPDX-License-Identifier: Apache-2.0
"""The machines keep their promises; without this, a green ring could mean that nothing was proven.

Every boot costs half a minute without KVM, so each test proves as much as its boots allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.hosts.errors import CommandFailed, HostGone
from integration.hosts.vm.conftest import VmMaker
from integration.hosts.vm.registry_disk import IN_GUEST, RegistryDisk
from integration.hosts.vm.virtual_machine import DISK_ID, Vm
from integration.trees.tree import CONTENT, A, B

STAGED = "/run/ostree/staged-deployment"
SCRATCH = "/var/scratch"
SIZE = 1 << 20
QUIET = 600  # seconds between two flushes by a filesystem
TRIES = 20


def deployments(vm: Vm) -> list[str]:
    """Return the deployments as `ostree admin status` marks them: "*" booted, " " another, "(staged)"."""
    lines = vm.run(["ostree", "admin", "status"]).stdout.splitlines()
    return [line for line in lines if "fedora-coreos" in line]


def stage(vm: Vm) -> None:
    """Stage a deployment that differs from the booted one by a kernel argument."""
    checksum = deployments(vm)[0].split()[2].partition(".")[0]
    vm.run(["ostree", "admin", "deploy", "--stage", "--karg-append=ring=four", checksum], timeout=120)
    assert vm.exists(STAGED)


def write(vm: Vm, name: str, *options: str) -> None:
    """Fill a file with "x" past the page cache."""
    argv = ["dd", "if=/dev/stdin", f"of={SCRATCH}/{name}", f"bs={SIZE}", "iflag=fullblock", "oflag=direct", *options]
    vm.run(argv, stdin="x" * SIZE, timeout=60)


def allocate(vm: Vm, name: str) -> None:
    """Make a file whose blocks have a place on the disk, and nothing in them."""
    vm.run(["fallocate", f"--length={SIZE}", f"{SCRATCH}/{name}"])
    vm.run(["sync", f"{SCRATCH}/{name}"])


def flushes(vm: Vm) -> int:
    """Return how often the guest flushed the cache of the system disk."""
    disks = vm.qmp("query-blockstats")
    (count,) = (each["stats"]["flush_operations"] for each in disks if each.get("qdev") == DISK_ID)
    return int(count)


def write_unflushed(vm: Vm, filesystem: str) -> str:
    """Write a file, and return its name, while nothing flushes the disk. The power is to be cut at once.

    The journal of a filesystem causes flushes, and so does each program that syncs a file.
    """
    quiet = {"ext4": ["mount", "-o", f"remount,commit={QUIET}", "/var"]}
    quiet["xfs"] = ["sysctl", f"fs.xfs.xfssyncd_centisecs={QUIET * 100}"]
    vm.run(quiet[filesystem])
    for number in range(TRIES):
        name = f"lost-{number}"
        allocate(vm, name)
        before = flushes(vm)
        write(vm, name, "conv=notrunc")
        if flushes(vm) == before:
            return name
    raise AssertionError(f"something flushed the disk during each of {TRIES} writes")


def test_a_booted_machine_is_a_whole_one(vm: Vm) -> None:
    assert vm.run(["systemctl", "is-system-running"], check=False).stdout.strip() == "running", vm.run(
        ["systemctl", "--failed", "--no-legend"]
    ).stdout
    # ostree's: booted from the deployment, with the layout of Fedora CoreOS.
    (booted,) = deployments(vm)
    assert booted.startswith("* fedora-coreos")
    assert vm.read_text(CONTENT) == A.files[CONTENT]
    with pytest.raises(CommandFailed, match="Read-only file system"):
        vm.run(["touch", "/usr/new"])
    for mount, options in (("/sysroot", "ro"), ("/boot", "ro"), ("/etc", "rw"), ("/var", "rw")):
        assert vm.run(["findmnt", "-no", "OPTIONS", mount]).stdout.split(",")[0] == options, mount
    # QEMU adds what it knows about the machine.
    assert vm.read_text("/proc/cmdline").startswith(vm.boots[-1].options)
    # The kernel's: cgroup v2 with the io controller, which a container on many machines has not.
    assert "io" in vm.read_text("/sys/fs/cgroup/cgroup.controllers").split()
    vm.run(["systemctl", "set-property", "--runtime", "crio.service", "IOWriteBandwidthMax=/dev/vda 5M"])
    assert "wbps=5000000" in vm.read_text("/sys/fs/cgroup/system.slice/crio.service/io.max")
    # Our own: the agent and its rpm-ostreed.
    assert vm.is_active("nodeagent.service")
    assert "org.projectatomic.rpmostree1" in vm.run(["busctl", "list", "--no-legend"]).stdout


def test_commands_files_and_their_errors(vm: Vm) -> None:
    data = bytes(range(256)) * 500
    vm.write("/etc/some/where", data, mode=0o640)
    assert vm.read("/etc/some/where") == data
    assert vm.run(["stat", "--format=%a", "/etc/some/where"]).stdout.strip() == "640"
    assert vm.run(["id", "-un"], user="core").stdout == "core\n"
    done = vm.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    with pytest.raises(CommandFailed, match=r"cat -- /etc/none: exit status 1: .*No such file"):
        vm.read("/etc/none")
    with pytest.raises(CommandFailed, match=r"no-such-program: .*No such file"):
        vm.run(["no-such-program"])
    with pytest.raises(CommandFailed, match=r"sleep 77: still running after 1 s"):
        vm.run(["sleep", "77"], timeout=1)
    assert "sleep 77" not in vm.run(["ps", "ax", "-o", "args"]).stdout, "it was left behind in the guest"


def test_a_frozen_guest_goes_on_with_the_right_time_and_its_own_secrets(make_vm: VmMaker) -> None:
    started = time.monotonic()
    one, two = make_vm(), make_vm()
    made = time.monotonic() - started
    for vm in (one, two):
        vm.boot()
        # Far below any boot. The figure is of a machine with other work; it is under 3 s on one without.
        assert vm.boots[-1].seconds < 15, (vm.boots, made)
        assert abs(float(vm.run(["date", "+%s"]).stdout) - time.time()) < 5  # noqa: TID251
    assert one.boot_id == two.boot_id, "this is what going on means"
    secrets = {vm.run(["od", "-An", "-tx8", "-N16", "/dev/urandom"]).stdout for vm in (one, two)}
    assert len(secrets) == 2
    one.write("/etc/mine", "one")
    assert not two.exists("/etc/mine")


@pytest.mark.long
@pytest.mark.parametrize("filesystem", ["ext4", "xfs"])
def test_staged_reboot_and_power_cut(make_vm: VmMaker, filesystem: str) -> None:
    vm = make_vm(filesystem=filesystem)
    vm.boot()
    assert vm.run(["findmnt", "-no", "FSTYPE", "/sysroot"]).stdout.strip() == filesystem
    first = vm.boot_id

    # Of what went past the page cache to new places of the disk, a cut leaves what was flushed.
    vm.run(["mkdir", "-p", SCRATCH])
    stage(vm)
    allocate(vm, "flushed")
    write(vm, "flushed", "conv=notrunc,fsync")
    lost = write_unflushed(vm, filesystem)
    vm.power_cut()
    assert vm.boot_id != first
    assert (vm.reboots, len(vm.boots)) == (0, 2)
    assert set(vm.read(f"{SCRATCH}/flushed")) == {ord("x")}
    assert ord("x") not in vm.read(f"{SCRATCH}/{lost}"), "the disk kept data without a flush"

    # The staged deployment lived in /run, so the cut took it.
    assert not vm.exists(STAGED)
    assert "ring=four" not in vm.read_text("/proc/cmdline")

    # Staged again and rebooted in good order, it is finalized, and the machine boots its entry.
    stage(vm)
    with vm.rebooting():
        vm.run(["systemctl", "reboot"])
    assert vm.reboots == 1
    assert "ring=four" in vm.read_text("/proc/cmdline").split()
    assert "ring=four" in vm.boots[-1].options.split()
    assert [line[0] for line in deployments(vm)] == ["*", " "]
    assert len(vm.run(["journalctl", "--list-boots", "--quiet", "--no-pager"]).stdout.splitlines()) == 3


def test_the_disk_can_be_slowed(vm: Vm) -> None:
    argv = ["dd", "if=/dev/zero", f"of={SCRATCH}", "bs=1M", "count=8", "oflag=direct"]

    def seconds() -> float:
        started = time.monotonic()
        vm.run(argv, timeout=120)
        return time.monotonic() - started

    fast = seconds()
    vm.throttle(iops=500, bytes_per_second=1 << 20)
    slow = seconds()
    vm.unthrottle()
    again = seconds()
    assert slow > 6, "8 MiB at 1 MiB/s, with at most a second on credit"
    assert slow > 2 * max(fast, again), (fast, slow, again)


def test_the_second_disk_is_a_registry_and_is_never_slow(
    make_vm: VmMaker, make_registry: Callable[..., RegistryDisk]
) -> None:
    shelf = make_registry(B)
    (published,) = shelf.published
    vm = make_vm(media=shelf.disk)
    vm.boot()
    assert published.digest in vm.run(["sh", "-c", f"cat {IN_GUEST}/images/*.json"]).stdout
    vm.throttle(iops=500, bytes_per_second=1 << 20)
    started = time.monotonic()
    vm.run(["dd", "if=/dev/vdb", "of=/dev/null", "bs=1M", "count=24", "iflag=direct"], timeout=60)
    assert time.monotonic() - started < 12, "24 MiB at 1 MiB/s would take 23 s"


def test_a_machine_that_is_off_says_why(make_vm: VmMaker) -> None:
    vm = make_vm()
    with pytest.raises(HostGone, match=r"is off or between two boots \(never started\)"):
        vm.run(["true"])
    vm.boot()
    vm.run(["systemctl", "poweroff", "--force"])
    vm.wait_off(60)
    with pytest.raises(HostGone, match=r"the guest powered itself off"):
        vm.run(["true"])


def test_a_crash_is_no_reboot(vm: Vm) -> None:
    vm.run(["sysctl", "kernel.sysrq=1"])
    with pytest.raises(HostGone):
        vm.run(["sh", "-c", "echo c >/proc/sysrq-trigger"], timeout=20)
    vm.wait_off(20)
    with pytest.raises(HostGone, match=r"the guest's kernel or QEMU crashed"):
        vm.run(["true"])


def test_nothing_is_left_of_a_closed_machine(vm: Vm) -> None:
    pid, directory = vm.pid, vm.directory
    vm.close()
    vm.close()
    assert not Path(f"/proc/{pid}").exists()
    assert not directory.exists()
