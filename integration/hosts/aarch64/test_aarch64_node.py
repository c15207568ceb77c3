# SPDX-License-Identifier: Apache-2.0
"""The daemon on aarch64: installed from the package, and through changes with a restart, a reboot and another OS."""

from __future__ import annotations

import json
from pathlib import Path

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.vm import nodes, test_sysext
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import DEFAULTS, NEW_UNIT, A, B

SITE = "/etc/site.conf"
UNLISTED = "/etc/unlisted.conf"
SERVICE = "reloadable.service"
SLOW = 300.0  # seconds for a command that starts the interpreter, on a machine with other work
ELF_AARCH64 = (0xB7).to_bytes(2, "little")
# The system calls have other numbers than on x86_64. ionice(1) has them from the C headers of its own architecture.
PRIORITY = """\
import glob, os, subprocess, sys
sys.path += glob.glob("/usr/lib/nodeagent/lib/python3.*/site-packages")
from nodeagent.features.fence.actuators.priorities import IDLE, IoPriority
kernel = IoPriority()
for value in (IDLE, 2 << 13 | 6):
    kernel.set(os.getpid(), value)
    assert kernel.get(os.getpid()) == value
    sys.stdout.buffer.write(subprocess.check_output(["ionice", "-p", str(os.getpid())]))
"""


def config(name: str, shelf: RegistryDisk, **files: str) -> str:
    """The config of a node at rest, with A, and more files."""
    paths = {"site": SITE, "unlisted": UNLISTED}
    return agent.machine_config(
        name,
        files={updates.MINE: "mine of a\n", **{paths[key]: text for key, text in files.items()}},
        units={updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True)},
        osImageURL=shelf.of(A).by_digest,
    )


def test_the_service_of_the_package_runs(node: Vm) -> None:
    assert node.run(["uname", "-m"]).stdout == "aarch64\n"
    assert node.read("/usr/lib/nodeagent/bin/python3")[18:20] == ELF_AARCH64
    assert node.is_active(agent.UNIT)
    assert node.run(["systemctl", "is-system-running"], check=False).stdout == "running\n"
    status = json.loads(node.run(["nodeagent", "status", "--json"], timeout=SLOW).stdout)
    assert (status["phase"], status["current"]) == ("Idle", "a")
    assert updates.shown(status) == [f"{A.version} booted"]
    # As the pages about the installation have it.
    node.run(["journalctl", "--update-catalog"], timeout=SLOW)
    checks = json.loads(node.run(["nodeagent", "selfcheck", "--json"], check=False, timeout=SLOW).stdout)["checks"]
    # The stand-in of rpm-ostreed has the images of that registry; the machine has no network.
    assert [each["id"] for each in checks if each["result"] not in ("ok", "warning", "skipped")] == ["reach.registry"]


def test_priorities_of_the_io_fence(node: Vm) -> None:
    done = node.run(["/usr/lib/nodeagent/bin/python3", "-BIS", "-c", PRIORITY], timeout=SLOW)
    assert done.stdout.splitlines() == ["idle", "best-effort: prio 6"]


def test_a_file_and_the_restart_of_a_unit(node: Vm, shelf: RegistryDisk) -> None:
    node.write(agent.POLICY, agent.policy(files={SITE: [f"Restart {SERVICE}"]}))
    node.run(["systemctl", "reload", agent.UNIT], timeout=SLOW)
    pid = node.unit(SERVICE, "MainPID")
    agent.apply_command(node, config("site", shelf, site="site\n"), "--wait", timeout=nodes.WAIT)
    assert agent.status(node)["current"] == "site"
    assert node.read_text(SITE) == "site\n"
    assert node.unit(SERVICE, "MainPID") != pid
    assert node.is_active(SERVICE)
    last = agent.history(node)[0]
    assert (last["to_name"], last["outcome"], last["disruption"], last["reboots"]) == ("site", "done", "restart", 0)
    assert node.reboots == 0


def test_a_change_that_reboots(node: Vm, shelf: RegistryDisk) -> None:
    first = node.boot_id
    agent.apply(node, config("rebooted", shelf, unlisted="new\n"))
    agent.wait_done(node, "rebooted", nodes.WAIT)
    assert node.reboots == 1
    assert node.boot_id != first
    assert node.read_text(UNLISTED) == "new\n"
    shown = json.loads(node.run(["nodeagent", "history", "--json"], timeout=SLOW).stdout)["updates"][0]
    assert (shown["to_name"], shown["outcome"], shown["disruption"], shown["reboots"]) == (
        *("rebooted", "done"),
        *("reboot", 1),
    )


def test_an_update_of_the_os(node: Vm, shelf: RegistryDisk) -> None:
    agent.apply(node, updates.config("b", shelf.of(B)))
    updates.wait_updated(node, "b", B, nodes.WAIT)
    assert node.reboots == 1
    assert node.read_text(DEFAULTS) == B.files[DEFAULTS]
    assert node.is_active(NEW_UNIT)
    last = agent.history(node)[0]
    assert (last["from_name"], last["to_name"], last["outcome"], last["disruption"]) == ("a", "b", "done", "reboot")


def test_the_system_extension_is_one_for_this_architecture(node: Vm, raw: Path) -> None:
    node.write(f"/etc/systemd/system/{test_sysext.UNIT}.d/10-modules.conf", test_sysext.MODULES)
    test_sysext.put(node, raw.read_bytes())
    assert not node.exists(test_sysext.ONLY)
    assert test_sysext.merge(node)
    assert "ARCHITECTURE=arm64" in node.read_text(test_sysext.ONLY).splitlines()
