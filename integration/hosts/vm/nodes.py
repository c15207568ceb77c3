# SPDX-License-Identifier: Apache-2.0
"""Machines with a node on them: nodeagent up and at rest, its config `a` with the tree A, from an image by digest.

They take the place of the hosts of `integration.hosts.ostree`, whose `updates.py` has the configs and the questions
of both.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.container.conftest import FAILED
from integration.hosts.ostree import updates
from integration.hosts.vm import image, live, registry_disk, vm_requirements
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.image_registry import Published, Pulled
from integration.trees.ostree_repo import OstreeRepo
from integration.trees.tree import B, Part, Tree

LONG = 60  # seconds
WAIT = 1500.0  # seconds for an update with a reboot, without KVM and beside other work
UNIT_WAIT = 400.0  # seconds for a restart or reload of the agent: more than the limits of its unit
FIRST_START = 1200  # seconds for the first start, without KVM and beside other work: nothing of it is in memory

# Without KVM everything takes ten times as long as on a host in a container.
SLOW: Mapping[str, Any] = {
    "actions": {"timeout": 90, "settle": 0.3},
    "reboot": {"warn_users": 0, "inhibitor_wait": 20},
    "verify": {"timeout": 180},
    "os": {"free_space": 512},
}


def _pad_initramfs(root: Path) -> None:
    (path,) = root.glob("usr/lib/modules/*/initramfs.img")
    # A copy: the file may be shared with other trees.
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + bytes(512))


# B with another initramfs, which the kernel unpacks as it does that of B: for libostree, another kernel.
NEW_KERNEL = Tree("41.2.1", B.files, B.units).having(Part("initramfs", b"padded", _pad_initramfs))


def settle(vm: Vm, image: Published) -> None:
    """Make `a` with this image the current config of a machine that was installed from it; takes no reboot."""
    agent.settings(vm, SLOW)
    vm.write(agent.POLICY, updates.POLICY)
    vm.write(f"/run/systemd/system/{agent.UNIT}.d/50-slow.conf", f"[Service]\nTimeoutStartSec={FIRST_START}\n")
    vm.run(["systemctl", "daemon-reload"], timeout=UNIT_WAIT)
    vm.run(["systemctl", "restart", agent.UNIT], timeout=FIRST_START + LONG)
    agent.wait_daemon(vm, UNIT_WAIT)
    agent.apply(vm, updates.config("a", image))
    agent.wait_done(vm, "a", WAIT)
    assert vm.reboots == 0, "it has A already"


def settings(vm: Vm, changes: Mapping[str, Any]) -> None:
    """Change settings of the running agent, over those that nodes have here."""
    agent.settings(vm, {**SLOW, **{key: {**SLOW.get(key, {}), **value} for key, value in changes.items()}})
    vm.run(["systemctl", "reload", agent.UNIT], timeout=UNIT_WAIT)


def delay_shutdown(vm: Vm) -> None:
    """Make logind wait LONG between a request to reboot and what comes of it, for the rest of this boot."""
    vm.write("/run/systemd/logind.conf.d/delay.conf", f"[Login]\nInhibitDelayMaxSec={LONG}\n")
    vm.run(["systemctl", "reload", "systemd-logind.service"])
    delay = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "sleep", "infinity"]
    vm.run(["systemd-run", "--unit=delay.service", *delay])
    vm.wait_for(lambda: "delay" in vm.run(["systemd-inhibit", "--list"]).stdout, "the shutdown is delayed")


def versions(vm: Vm) -> list[str]:
    """Return the versions of what a soft reboot depends on."""
    commands = (["ostree", "--version"], ["systemctl", "--version"], ["uname", "-sr"])
    return [" ".join(vm.run(argv).stdout.split()[:3]) for argv in commands]


def key() -> bytes:
    """Return everything beside the image that determines the result of settle()."""
    parts = [
        json.dumps([agent.FAST, SLOW], default=dict),
        updates.POLICY,
        updates.config("a"),
        inspect.getsource(settle),
    ]
    return "\0".join(parts).encode()


def accelerator(ostree_repo: OstreeRepo) -> str:
    """Return what runs the kernel of these trees."""
    found = (list(path.glob("usr/lib/modules/*/vmlinuz")) for path in ostree_repo.image.paths)
    (kernel,) = next(kernels for kernels in found if kernels)
    return vm_requirements.accelerator(kernel)


def installed(
    stack: contextlib.ExitStack,
    test: pytest.Item,
    ostree_repo: OstreeRepo,
    tree: Tree,
    media: RegistryDisk,
    filesystem: str,
    accel: str,
    say: Callable[[str], None],
    kind: Callable[..., Vm] = Vm,
    options: Mapping[str, Any] | None = None,
    pulled: Callable[[], Pulled] | None = None,
) -> Vm:
    """A booted node that was installed from the image of `tree`, which `media` has. `options` are of image.system.

    `pulled` returns that image where another program than the stand-in of rpm-ostreed pulls it.
    """
    source = pulled() if pulled is not None else registry_disk.pulled(ostree_repo, tree)
    disk = image.system(ostree_repo, source, say, filesystem=filesystem, **(options or {}))
    stack.callback(disk.close)
    settled = (key(), lambda vm: settle(vm, media.of(tree)))
    frozen = live.frozen(disk, say, media=media.disk, accel=accel, prepare=settled)
    stack.callback(frozen.close)
    vm = frozen.vm(kind)
    stack.callback(finish, vm, test)
    vm.boot()
    return vm


def finish(vm: Vm, node: pytest.Item) -> None:
    """End a machine, and keep what it said if the test failed."""
    try:
        if node.stash.get(FAILED, False):
            test = re.sub(r"[^\w.-]+", "_", node.name)
            kept = vm.keep_logs(Path(tempfile.gettempdir()) / "nodeagent-vm-logs" / f"{test}-{vm.name}")
            node.add_report_section("teardown", "machine logs", f"kept in {kept}")
            reporter: Any = node.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(f"logs of {vm.name}: {kept}")
    finally:
        vm.close()
