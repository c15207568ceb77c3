# SPDX-License-Identifier: Apache-2.0
"""The I/O fence in the update path, on a real disk: what the kernel holds while an OS is staged, and afterwards.

How well it protects whom is for the benchmark to say (`integration/bench/fence`).
"""

from __future__ import annotations

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import B
from nodeagent.features.fence.events import FenceChanged
from nodeagent.update.ports.events import DaemonStarted

RPMOSTREED = "rpm-ostreed.service"
QUEUE = "/sys/block/vda/queue"
SHAPED = ("max_sectors_kb", "nr_requests", "scheduler", "wbt_lat_usec")
# The pull stops where it can be looked at, as often as the agent is lost in it.
STOPS = {"at": "layer:2", "do": "sleep", "seconds": 20, "times": 9}
# Without an etcd, which would keep the node from its reboot.
FENCE = {"fence": {"enabled": "always"}}


def queue(node: Vm) -> list[str]:
    return node.run(["sh", "-c", f"cd {QUEUE}; grep -H . {' '.join(SHAPED)}"], check=False).stdout.splitlines()


def io_max(node: Vm) -> str:
    """Return the present limits of the kernel for rpm-ostreed; "" where it does not run, or has no limit."""
    group = node.unit(RPMOSTREED, "ControlGroup")["ControlGroup"]
    return node.run(["sh", "-c", f"cat /sys/fs/cgroup{group or '/none'}/io.max"], check=False).stdout.strip()


def wait_up(node: Vm) -> None:
    """Wait until writes of rpm-ostreed are counted by the kernel, and `status` says so."""
    node.wait_for(lambda: "wiops=" in io_max(node).replace("wiops=max", ""), "writes are capped", nodes.WAIT)
    updates.wait_status(node, "the fence is shown", lambda now: now["fence"] and now["fence"]["write_iops"], nodes.WAIT)


@pytest.mark.slow
@pytest.mark.timeout(nodes.WAIT * 3)
def test_nothing_is_left_of_it_however_it_ends(node: Vm, shelf: RegistryDisk) -> None:
    node.run(["modprobe", "mq-deadline"])
    nodes.settings(node, FENCE)
    updates.inject_faults(node, STOPS)
    # A fast disk needs no fence.
    node.throttle(iops=500, bytes_per_second=12_000_000)
    before = queue(node)
    assert (len(before), io_max(node)) == (len(SHAPED), "")

    agent.apply(node, updates.config("b", shelf.of(B)))
    wait_up(node)
    shaped = queue(node)
    assert "max_sectors_kb:32" in shaped
    assert any("[mq-deadline]" in line for line in shaped)

    # After a kill, the next process removes the fence, and applies it again for the rest of the staging.
    starts = len(updates.logged(node, DaemonStarted))
    node.kill(agent.UNIT)
    updates.wait_logged(node, DaemonStarted, count=starts + 1, timeout=nodes.WAIT)
    wait_up(node)

    # Stopped: it takes it down itself, from under an rpm-ostreed that still runs.
    node.run(["systemctl", "stop", agent.UNIT], timeout=nodes.WAIT)
    assert (queue(node), io_max(node)) == (before, "")
    assert node.is_active(RPMOSTREED)

    # Without a client it ends when its work is done; the next one has no limit either.
    updates.inject_faults(node)
    node.wait_for(lambda: not node.is_active(RPMOSTREED), "rpm-ostreed leaves", nodes.WAIT)
    node.run(["systemctl", "start", RPMOSTREED], timeout=120)
    assert io_max(node) == ""

    # And to its end, with the reboot.
    node.run(["systemctl", "start", agent.UNIT], timeout=nodes.WAIT)
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert updates.logged(node, FenceChanged)
    node.run(["systemctl", "start", RPMOSTREED], timeout=120)
    assert io_max(node) == ""
    assert agent.status(node)["fence"] is None


DIRTY = "dirty.service"
WRITTEN = 2 << 20  # bytes
HOLD = f"""\
import asyncio
from pathlib import Path

from nodeagent.host.dbus.client import Bus
from nodeagent.features.fence.fence import FenceOptions, fenced
from nodeagent.features.fence.sensors.sensors import Protected
from nodeagent.features.fence.restore_log import RestoreLog


async def main():
    home = Path("/var/lib/nodeagent")
    async with Bus() as bus:
        restore_log, options = RestoreLog(home / "try"), FenceOptions(baseline=0)
        async with fenced("{DIRTY}", Protected(home), bus=bus, restore_log=restore_log, options=options):
            await asyncio.Event().wait()


asyncio.run(main())
"""
# All else of the unit counts, its sandbox above all.
INSTEAD = """\
[Service]
Type=exec
WatchdogSec=0
ExecStart=
ExecStart=/usr/lib/nodeagent/bin/python3 /run/hold.py
"""


def dirty(vm: Vm) -> int:
    """Bytes that the service wrote and the disk does not have."""
    group = vm.unit(DIRTY, "ControlGroup")["ControlGroup"]
    fields = dict(line.split() for line in vm.read_text(f"/sys/fs/cgroup{group}/memory.stat").splitlines())
    return int(fields["file_dirty"]) + int(fields["file_writeback"])


@pytest.mark.timeout(nodes.WAIT)
def test_what_is_not_synced_is_sent_to_an_ext4_from_within_the_sandbox(vm: Vm) -> None:
    vm.run(["sh", "-c", "echo 0 >/proc/sys/vm/dirty_writeback_centisecs"])  # or the kernel does it, sooner or later
    write = f"head -c {WRITTEN} /dev/zero >/var/written; exec sleep infinity"
    vm.run(["systemd-run", "--quiet", f"--unit={DIRTY}", "sh", "-c", write])
    vm.wait_for(lambda: dirty(vm) >= WRITTEN, "it is in memory", nodes.WAIT / 4)
    vm.write("/run/hold.py", HOLD)
    vm.write(f"/run/systemd/system/{agent.UNIT}.d/90-instead.conf", INSTEAD)
    vm.run(["systemctl", "daemon-reload"], timeout=60)
    assert dirty(vm) >= WRITTEN
    vm.run(["systemctl", "restart", agent.UNIT], timeout=nodes.UNIT_WAIT)
    vm.wait_for(lambda: dirty(vm) < WRITTEN / 8, "it is on the disk", nodes.WAIT / 4)
