# SPDX-License-Identifier: Apache-2.0
"""`bootloader.update: before-reboot` on a host that boots from ostree, as a node of a real API server.

bootupctl is the stand-in of the container ring: each tree has it with a payload of its own, and /boot what is
installed. It runs in the tree of the staged deployment, as libostree wrote that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.cluster.cluster import SLOT_PATH, Cluster
from integration.cluster.conftest import binaries, control_plane
from integration.cluster.other_holders import lease_of
from integration.cluster.tcp_proxy import relay
from integration.cluster.test_installed import KUBECONFIG, kubeconfig
from integration.cluster.test_rights import installed
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.test_bootloader import BOOTUPCTL, NEW, OLD, UNIT, UPDATES
from integration.hosts.ostree import updates
from integration.hosts.ostree.conftest import SMALL, OstreeHostMaker, Publish
from integration.hosts.ostree.ostree_host import OstreeHost
from integration.trees.tree import A, B, Part, Tree
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.update.ports.events import Warned

__all__ = ["binaries", "control_plane", "installed"]

NODE = "bootloader"
POD = f"/api/v1/namespaces/default/pods/{NODE}"
NEWEST = NEW.replace("16.1-3", "16.1-4")
OLD_VERSION, NEWEST_VERSION = "grub2-1:2.06-95.fc38,shim-15.6-2", "grub2-1:2.12-41.fc44,shim-16.1-4"
# A container has no firmware, and its /sys is a tmpfs. Without Secure Boot, no kernel is refused.
FIRMWARE = """\
[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=mount -o remount,rw /sys
ExecStart=mkdir -p /sys/firmware/efi/efivars
[Install]
WantedBy=sysinit.target
"""
SOCKET = "[Socket]\nListenStream=127.0.0.1:{port}\n[Install]\nWantedBy=sockets.target\n"
PROXY = "[Service]\nExecStart=/usr/lib/systemd/systemd-socket-proxyd /run/registry/socket\n"


def bootupd(tree: Tree, payload: str) -> Tree:
    def put(root: Path) -> None:
        (root / UPDATES.lstrip("/") / "EFI").mkdir(parents=True)
        (root / UPDATES.lstrip("/") / "EFI.json").write_text(payload)
        program = root / "usr/bin/bootupctl"
        program.write_text(BOOTUPCTL)
        program.chmod(0o755)

    return tree.having(Part("bootupd", f"{BOOTUPCTL}{payload}".encode(), put))


OLD_TREE, FAILING = bootupd(A, OLD), bootupd(B, NEW)
NEWEST_TREE = bootupd(replace(B, version="41.6.0"), NEWEST)


@pytest.fixture
def node(
    installed: Cluster, make_ostree_node: OstreeHostMaker, publish: Publish, registry: object
) -> Iterator[OstreeHost]:
    """A node of the cluster with a pod, whose bootloader is that of its first OS."""
    host = make_ostree_node(OLD_TREE, files={agent.POLICY: updates.POLICY})
    agent.apply(host, updates.config("a", publish(OLD_TREE)))
    agent.wait_done(host, "a")
    installed.node(NODE)
    units = "/etc/systemd/system"
    host.write(f"{units}/firmware.service", FIRMWARE)
    host.write(f"{units}/api.socket", SOCKET.format(port=installed.port))
    host.write(f"{units}/api.service", PROXY)
    host.write("/boot/state", OLD)
    host.write(KUBECONFIG, kubeconfig(installed, NODE), mode=0o600)
    about = {"node_name": NODE, "cluster": {"kubeconfig": KUBECONFIG}, "slots": {"pool": NODE}}
    agent.settings(host, {**SMALL, **about, "bootloader": {"update": "before-reboot"}})
    with relay(registry.folder, installed.port):  # type: ignore[attr-defined]
        host.run(["systemctl", "daemon-reload"])
        host.run(["systemctl", "enable", "--now", "firmware.service", "api.socket"])
        host.run(["systemctl", "restart", agent.UNIT])
        agent.wait_daemon(host)
        yield host


def pod(cluster: Cluster) -> None:
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    cluster.admin.create("/api/v1/namespaces/default/pods", {"metadata": {"name": NODE}, "spec": spec})


def slots(cluster: Cluster) -> list[str]:
    return [slot["spec"].get("holderIdentity", "") for slot in cluster.admin.get(SLOT_PATH)["items"]]


@pytest.mark.long
def test_the_bootloader_of_the_incoming_os_is_installed_before_the_drain(
    node: OstreeHost, installed: Cluster, publish: Publish
) -> None:
    # A failure is reported, and does not stop an update whose kernel starts.
    node.write("/boot/fail", "")
    agent.apply(node, updates.config("b", publish(FAILING)))
    updates.wait_updated(node, "b", FAILING)
    assert node.read_text("/boot/state") == OLD
    assert updates.logged(node, Warned, BootloaderReason.BOOTLOADER_UPDATE_FAILED)
    first = agent.history(node)[0]
    assert first["outcome"] == "done"
    assert "the update of the bootloader failed: /usr/bin/bootupctl update: failed, exit status 1" in first["message"]
    assert any("synthetic failpoint" in entry["MESSAGE"] for entry in node.journal(UNIT))

    # While bootupctl works, the update has lease and slot, and has moved and written nothing.
    node.run(["rm", "/boot/fail"])
    node.write("/boot/slow", "")
    pod(installed)
    agent.apply(node, updates.config("c", publish(NEWEST_TREE)))
    node.wait_for(lambda: node.exists("/boot/seen"), "bootupctl works", updates.WAIT)
    now = agent.status(node)
    assert now["phase"] == "Leasing"
    assert now["step"] is None or "drain" not in now["step"]["name"]
    assert updates.shown(now) == [f"{NEWEST_TREE.version} staged locked", f"{B.version} booted", A.version]
    lease = lease_of(installed, NODE)
    assert lease is not None
    assert lease["spec"]["holderIdentity"]
    assert [holder.startswith(f"{NODE}/") for holder in slots(installed)] == [True]
    assert not installed.admin.get(f"/api/v1/nodes/{NODE}")["spec"].get("unschedulable")
    assert installed.admin.find(POD) is not None
    assert node.read_text(updates.MINE) == "mine of b\n"
    assert node.read_text("/boot/state") == OLD

    node.run(["rm", "/boot/slow"])
    updates.wait_updated(node, "c", NEWEST_TREE)
    assert json.loads(node.read_text("/boot/state")) == json.loads(NEWEST), "of the OS that came"
    assert node.read_text("/boot/seen").split() == ["EFI", "EFI.json"]
    assert node.read_text("/boot/log").split() == ["begin", "end"], "once, and /usr was not writable"
    last = agent.history(node)[0]
    assert f"the bootloader was updated from {OLD_VERSION} to {NEWEST_VERSION}" in last["message"]
    assert agent.status(node)["bootloader"]["state"] == "same"
    assert installed.admin.find(POD) is None
    assert slots(installed) == []
    assert not installed.admin.get(f"/api/v1/nodes/{NODE}")["spec"].get("unschedulable")
