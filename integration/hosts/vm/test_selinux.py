# SPDX-License-Identifier: Apache-2.0
"""A host that boots with SELinux enforcing: the agent runs in its domain, updates files, units and the OS, reverts an
OS that fails, and nothing is denied to it, also not what the policy would keep out of the audit log: the trees are made
without dontaudit rules."""

from __future__ import annotations

import json

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.nodeagent_client import FileSpec, UnitSpec
from integration.hosts.ostree import updates
from integration.hosts.ostree.ostree_host import deployments_of
from integration.hosts.snapshot import difference
from integration.hosts.vm import enforcing, nodes
from integration.hosts.vm.registry_disk import RegistryDisk
from integration.hosts.vm.virtual_machine import Vm
from integration.trees.tree import BAD, BAD_UNIT, A, B

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
# libostree builds the policy of each new deployment again, at the staging and the shutdown: a minute each, without KVM.
WAIT = 2 * nodes.WAIT
OURS = (updates.MINE, f"/etc/systemd/system/{updates.MINE_UNIT}", "/run/nodeagent", "/var/lib/nodeagent")
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
    vm.run(["systemctl", "reload", agent.UNIT], timeout=nodes.UNIT_WAIT)
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
    # What a config no longer has goes away again. These are most of its entries: the site's files and the check.
    agent.apply_command(vm, updates.config("a", image), "--remove", f"{len(FILES) + 1}", timeout=120)
    agent.wait_done(vm, "a", nodes.WAIT)
    assert difference(before, agent.managed(vm)) == []
    confined(vm)


@pytest.mark.parametrize("enforcing_repo", ["rpm-ostree", "bootc"], indirect=True)
def test_an_update_of_the_os(enforcing_node: Vm, enforcing_shelf: RegistryDisk) -> None:
    vm = enforcing_node
    agent.apply(vm, updates.config("b", enforcing_shelf.of(B)))
    updates.wait_updated(vm, "b", B, WAIT)
    assert vm.reboots == 1
    last = agent.history(vm)[0]
    assert (last["to_name"], last["outcome"], last["disruption"]) == ("b", "done", "reboot")
    assert mislabelled(vm, *OURS) == ""
    confined(vm)


def test_an_os_that_fails_is_rolled_back(enforcing_node: Vm, enforcing_shelf: RegistryDisk) -> None:
    vm = enforcing_node
    nodes.settings(vm, {"verify": {"timeout": 60}})
    before = agent.managed(vm)
    units = {updates.MINE_UNIT: UnitSpec(updates.UNIT, enabled=True), BAD_UNIT: UnitSpec(enabled=True)}
    image = enforcing_shelf.of(BAD).by_digest
    agent.apply(vm, agent.machine_config("bad", files={updates.MINE: "mine of bad\n"}, units=units, osImageURL=image))
    end = agent.wait_outcome(vm, "bad", 3 * WAIT)
    assert (end["outcome"], end["reason"]) == ("reverted", "UnitUnhealthy")
    updates.check(vm, "a", A)
    assert difference(before, agent.managed(vm)) == []
    assert mislabelled(vm, *OURS) == ""
    confined(vm)


def test_a_unit_that_writes_to_the_sysroot(enforcing_node: Vm) -> None:
    """The command that pulls an image on a host of bootc, with another command of ostree in place of the pull."""
    vm = enforcing_node
    commit = deployments_of(vm)[0].checksum
    interpreter = vm.run(["head", "-n1", "/usr/bin/nodeagent"]).stdout.removeprefix("#!").split()
    write = [*interpreter, "/usr/bin/nodeagent", "write-sysroot", "--"]
    assert write[0] == "/usr/lib/nodeagent/bin/python3"
    unit = ["systemd-run", "--quiet", "--wait", "--property=PrivateMounts=yes"]
    output = "--property=StandardOutput=file:/run/nodeagent/pull.txt"
    vm.run([*unit, output, *write, "refs", "--repo=/ostree/repo", "--create=test/written", commit], timeout=300)
    assert "test/written" in vm.run(["ostree", "refs", "--repo=/ostree/repo"]).stdout
    assert vm.run(["touch", "/sysroot/new"], check=False).returncode != 0, "the remount is not seen outside"
    confined(vm)
