"""A host that boots with SELinux enforcing: the agent runs in its domain, updates files and units, and nothing is
denied to it, also not what the policy would keep out of the audit log: the trees are made without dontaudit rules."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import FileSpec, UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.snapshot import difference
from integration.hosts.vm import enforcing, nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import A

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

# Types that differ from those of their directories.
FILES = {
    "/etc/ssh/sshd_config.d/60-site.conf": "PermitRootLogin no\n",
    "/etc/sudoers.d/site": "core ALL=(ALL) NOPASSWD: ALL\n",
    "/etc/containers/policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}\n',
    "/etc/systemd/journald.conf.d/60-site.conf": "[Journal]\n",
    "/etc/audit/rules.d/site.rules": "-D\n",
    "/var/lib/site/data/file": "data\n",
}
CHECK = "/etc/nodeagent/checks/after-apply.d/required.d/10-site"
SILENT = {path: ["None"] for path in (updates.MINE, CHECK, *FILES)}


def mislabelled(vm: Vm, *paths: str) -> str:
    """Return what restorecon would change."""
    return vm.run(["restorecon", "-n", "-R", "-v", *paths], timeout=300).stdout


def confined(vm: Vm) -> None:
    """The agent is in its domain, SELinux enforces, and nothing was denied."""
    assert vm.run(["getenforce"]).stdout.strip() == "Enforcing"
    pid = vm.unit(agent.UNIT, "MainPID")["MainPID"]
    assert ":nodeagent_t:" in vm.read_text(f"/proc/{pid}/attr/current")
    assert enforcing.denials(vm) == []


def test_files_and_units(enforcing_node: Vm, enforcing_shelf: RegistryDisk) -> None:
    vm, image = enforcing_node, enforcing_shelf.of(A)
    vm.write(agent.POLICY, agent.policy(files=SILENT, units={updates.MINE_UNIT: ["DaemonReload"]}))
    vm.run(["systemctl", "reload", agent.UNIT], timeout=120)
    before = agent.managed(vm)
    unit = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True)}
    check = FileSpec("#!/bin/sh\necho seen >/run/site-check\n", 0o755)
    files: dict[str, str | bytes | FileSpec] = {updates.MINE: "mine\n", CHECK: check, **FILES}
    agent.apply(vm, agent.machine_config("files", files=files, units=unit, osImageURL=image.by_digest))
    agent.wait_done(vm, "files", nodes.WAIT)
    assert vm.reboots == 0
    assert vm.read_text("/run/site-check") == "seen\n"
    assert mislabelled(vm, "/etc", "/var/lib/site", "/run/nodeagent", "/var/lib/nodeagent") == ""
    checks = json.loads(vm.run(["nodeagent", "selfcheck", "--json"], check=False, timeout=300).stdout)["checks"]
    domain = next(each for each in checks if each["id"] == "selinux.domain")
    assert (domain["result"], domain["message"]) == ("ok", "the daemon runs in nodeagent_t")
    # What a config no longer has goes away again.
    agent.apply(vm, updates.config("a", image))
    agent.wait_done(vm, "a", nodes.WAIT)
    assert difference(before, agent.managed(vm)) == []
    confined(vm)
