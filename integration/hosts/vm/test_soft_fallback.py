# SPDX-License-Identifier: Apache-2.0
"""A fallback by a soft reboot on a booted ostree system with composefs: same kernel, same deployment, same /etc.

The guest is Debian sid, whose libostree and systemd are those of a host that makes soft reboots; its versions are in
the output of the first test. The fault is a unit that fails until the userspace, or the kernel, has started again.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import deployments_of
from integration.hosts.vm import nodes
from integration.hosts.vm.image import OSNAME
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.soft_reboots import MODE, POLICY, flaky, hold_verification, kinds, release, wait_held
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import A

pytestmark = [pytest.mark.slow, pytest.mark.long]

LOCAL = "/etc/local.conf"
# The unit notes in which boot it failed first. Without that it would fail in the next one as well.
FLUSH = "sync /var/lib/stand-ins/flaky-*"


@pytest.fixture
def node(composefs_node: Vm) -> Vm:
    """A node that falls back by a soft reboot, with a local file in /etc that no config has."""
    composefs_node.write(agent.POLICY, POLICY)
    composefs_node.write(LOCAL, "local\n")
    composefs_node.run(["sync", LOCAL])
    nodes.settings(composefs_node, {"reboot": {"soft": "fallback"}})
    return composefs_node


def same_system(node: Vm, mode: str) -> None:
    """A is booted as it was before, with /usr from its composefs, and nothing failed or is left."""
    assert deployments_of(node)[0].booted
    updates.check(node, "a", A)
    assert node.run(["findmnt", "-no", "SOURCE", "/"]).stdout.strip() == "composefs"
    assert node.run(["touch", "/usr/new"], check=False).returncode != 0
    for mount, options in (("/sysroot", "ro"), ("/boot", "ro"), ("/etc", "rw"), ("/var", "rw")):
        assert node.run(["findmnt", "-no", "OPTIONS", mount]).stdout.split(",")[0] == options, mount
    assert (node.read_text(LOCAL), node.read_text(MODE)) == ("local\n", mode)
    assert node.is_active("flaky.service")
    assert node.run(["systemctl", "--failed", "--no-legend"]).stdout == ""
    assert node.run(["findmnt", "/run/nextroot"], check=False).returncode == 1


def ended(node: Vm) -> tuple[str, int, int]:
    return kinds(agent.wait_outcome(node, "new", nodes.WAIT))


def test_a_soft_reboot_that_cures(node: Vm, composefs_shelf: RegistryDisk, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{', '.join(nodes.versions(node))}")
    first, machine = node.boot_id, node.read_text("/etc/machine-id")
    agent.apply(node, flaky(composefs_shelf, "fail until-soft-reboot"))
    assert ended(node) == ("done-after-fallback", 1, 1)
    assert (len(node.boots), node.boot_id, node.soft_reboots) == (1, first, 1)
    assert node.read_text("/proc/sys/kernel/random/boot_id").strip() == first
    assert agent.status(node)["soft_reboots"] == 1
    assert node.read_text("/etc/machine-id") == machine
    same_system(node, "fail until-soft-reboot")


@pytest.mark.parametrize("mode", ["fail until-reboot", "fail"], ids=["a full one cures", "none cures"])
def test_a_full_one_follows_it_once(node: Vm, composefs_shelf: RegistryDisk, mode: str) -> None:
    agent.apply(node, flaky(composefs_shelf, mode))
    assert ended(node) == ("reverted" if mode == "fail" else "done-after-fallback", 2, 1)
    assert (node.reboots, node.soft_reboots) == (1, 0), "the count begins again with the kernel"
    if mode == "fail":
        assert node.read_text(MODE).strip() == "ok"
    else:
        same_system(node, mode)


def requested(node: Vm, start: Callable[[], None]) -> None:
    """Logind has accepted the soft reboot and waits for a program that delays it."""
    nodes.delay_shutdown(node)
    start()
    node.wait_for(lambda: node.run(["sh", "-c", FLUSH]), "the unit has failed", nodes.WAIT)
    preparing = ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"]
    preparing += ["org.freedesktop.login1.Manager", "PreparingForShutdown"]
    node.wait_for(lambda: "true" in node.run(preparing).stdout, "the shutdown is requested", nodes.WAIT)


def going_down(node: Vm, start: Callable[[], None]) -> None:
    """Services are being stopped for the soft reboot."""
    start()
    # Requested in the guest, because it is over in seconds.
    begun = "systemctl list-jobs --no-legend | grep -q soft-reboot.target"
    node.run(["sh", "-c", f"until {begun}; do sleep 0.2; done; {FLUSH}"], timeout=nodes.WAIT)


def verifying(node: Vm, start: Callable[[], None]) -> None:
    """The userspace has started again, and the agent has not verified all of it yet."""
    hold_verification(node)
    start()
    node.wait_for(lambda: node.soft_reboots == 1, "the userspace starts again", nodes.WAIT)
    wait_held(node)
    node.run(["sh", "-c", FLUSH])


@pytest.mark.parametrize("moment", [requested, going_down, verifying], ids=lambda moment: moment.__name__)
def test_power_cut(node: Vm, composefs_shelf: RegistryDisk, moment: Callable[[Vm, Callable[[], None]], None]) -> None:
    """The kernel starts again, which is more than the soft reboot: no other reboot follows it.

    The history counts the reboot that was requested, and the boot of a later cut apart.
    """
    mode = "fail until-soft-reboot"
    moment(node, lambda: agent.apply(node, flaky(composefs_shelf, mode)))
    node.power_cut(nodes.WAIT, complete=False)
    release(node)
    assert ended(node) == ("done-after-fallback", 1, 1 if moment is verifying else 0)
    assert agent.history(node)[0]["boots"] == (2 if moment is verifying else 1)
    assert (len(node.boots), node.reboots, node.soft_reboots) == (2, 0, 0)
    same_system(node, mode)


@pytest.mark.parametrize("moment", [requested, verifying], ids=lambda moment: moment.__name__)
def test_kill_of_the_agent(
    node: Vm, composefs_shelf: RegistryDisk, moment: Callable[[Vm, Callable[[], None]], None]
) -> None:
    mode = "fail until-soft-reboot"
    moment(node, lambda: agent.apply(node, flaky(composefs_shelf, mode)))
    node.kill(agent.UNIT)
    node.wait_for(lambda: node.soft_reboots == 1, "the userspace starts again", nodes.WAIT)
    release(node)
    assert ended(node) == ("done-after-fallback", 1, 1)
    assert (len(node.boots), node.soft_reboots) == (1, 1)
    same_system(node, mode)


@pytest.mark.parametrize("lock", ["unlocked", "locked"])
def test_a_system_that_another_program_prepared(node: Vm, composefs_shelf: RegistryDisk, lock: str) -> None:
    """A soft reboot would start it, locked even without the merge of /etc."""
    first, machine = node.boot_id, node.read_text("/etc/machine-id")
    checksum = deployments_of(node)[0].checksum
    origin = f"--origin-file=/ostree/deploy/{OSNAME}/deploy/{checksum}.0.origin"
    options = ["--lock-finalization"] if lock == "locked" else []
    node.run(["ostree", "admin", "deploy", "--stage", *options, origin, checksum], timeout=nodes.WAIT)
    node.run(["ostree", "admin", "prepare-soft-reboot", "0"], timeout=nodes.WAIT)
    assert node.run(["findmnt", "-no", "SOURCE", "/run/nextroot"]).stdout.strip() == "composefs"
    config = flaky(composefs_shelf, "fail until-soft-reboot")
    planned = json.loads(node.run(["nodeagent", "plan", "--json", "-"], stdin=config, timeout=nodes.WAIT).stdout)
    assert (planned["fallback"]["kind"], planned["fallback"]["reason"]) == ("full", "NextRootPrepared")
    # A reboot boots what is staged and unlocked, and waits for an operator who wants that.
    agent.apply_command(node, config, *([] if lock == "locked" else ["--boot-staged"]), timeout=nodes.WAIT)
    assert ended(node) == ("done-after-fallback", 1, 0)
    assert (node.reboots, node.soft_reboots) == (1, 0)
    assert node.boot_id != first
    assert node.read_text("/etc/machine-id") == machine
    assert node.read_text(LOCAL) == "local\n"
    # The shutdown finalizes what is unlocked, as each shutdown does.
    serials = [(each.serial, each.booted) for each in deployments_of(node)]
    assert serials == ([(0, True)] if lock == "locked" else [(1, True), (0, False)])
    assert node.is_active("flaky.service")
