# SPDX-License-Identifier: Apache-2.0
"""A member of etcd that is a static pod of a real kubelet: it joins, boots, loses its disk, and leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.cluster.test_etcd_installed import OTHER, OTHERS, OURS, change, roles
from integration.hosts import nodeagent_client as agent
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import MANIFESTS, NodeHost
from integration.hosts.node.node_programs import ETCD, ETCD_PROGRAMS

PERMISSION = "/run/nodeagent/etcd/member.json"
DATA = "/var/lib/etcd"
SETTINGS = f"""config: /etc/etcd/etcd.conf.yaml
endpoints: [{", ".join(f"http://{address}:2379" for address in OTHERS.values())}]
static_pod: /etc/etcd/etcd-pod.yaml
"""
CONFIG = f"""name: c
data-dir: {DATA}
listen-client-urls: http://{OURS}:2379
advertise-client-urls: http://{OURS}:2379
listen-peer-urls: http://{OURS}:2380
initial-advertise-peer-urls: http://{OURS}:2380
log-level: warn
"""


def manifest() -> dict[str, Any]:
    container = {
        "name": "etcd",
        "image": ETCD,
        "imagePullPolicy": "Never",
        "command": ["/etcd", f"--config-file={PERMISSION}"],
        "volumeMounts": [{"name": "member", "mountPath": PERMISSION}, {"name": "data", "mountPath": DATA}],
    }
    volumes = [
        {"name": "member", "hostPath": {"path": PERMISSION, "type": "File"}},
        {"name": "data", "hostPath": {"path": DATA, "type": "DirectoryOrCreate"}},
    ]
    spec = {"hostNetwork": True, "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etcd", "namespace": "kube-system"}, "spec": spec}


@pytest.fixture
def node(make_agent_node: NodeMaker) -> NodeHost:
    made = make_agent_node("etcd-member")
    cluster = ",".join(f"{name}=http://{address}:2380" for name, address in OTHERS.items())
    for name, address in OTHERS.items():
        unit = OTHER.format(programs=ETCD_PROGRAMS, name=name, address=address, cluster=cluster)
        made.write(f"/etc/systemd/system/other-{name}.service", unit)
    made.write("/etc/etcd/etcd.conf.yaml", CONFIG, mode=0o600)
    made.write("/etc/etcd/etcd-pod.yaml", json.dumps(manifest()))
    made.write("/etc/nodeagent/etcd-member.yaml", SETTINGS, mode=0o600)
    made.write(
        "/etc/systemd/system/kubelet.service.d/etcd.conf", "[Service]\nExecStartPre=-+/usr/bin/nodeagent etcd prepare\n"
    )
    made.run(["systemctl", "daemon-reload"])
    made.run(["systemctl", "enable", "--now", *(f"other-{name}.service" for name in OTHERS)])
    return made


def works(node: NodeHost) -> bool:
    return roles(node) == {"a": "", "b": "", "c": ""}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_static_pod_is_a_member_by_permission(node: NodeHost) -> None:
    assert change(node, "join")["ended"] == "done"
    assert works(node)
    assert node.run(["ls", MANIFESTS]).stdout.split() == ["etcd-pod.yaml"]
    saved = json.loads(node.run(["nodeagent", "etcd", "snapshot", "/var/tmp/etcd.db", "--json"]).stdout)
    assert node.run(["stat", "--format", "%a %s", "/var/tmp/etcd.db"]).stdout.split() == ["600", str(saved["size"])]
    assert saved["size"] > 16384

    with node.rebooting():
        node.run(["systemctl", "reboot"])
    agent.wait_daemon(node)
    node.wait_for(lambda: works(node), "the member is up after the boot", 180)

    # The disk is lost. The kubelet starts the container again, and etcd does not take its old id.
    node.run(["rm", "-r", f"{DATA}/member"])
    node.run(["pkill", "--signal", "KILL", "--full", PERMISSION])
    node.run(["sleep", "5"])
    assert roles(node)["c"] != ""
    with node.rebooting():
        node.run(["systemctl", "reboot"])
    agent.wait_daemon(node)
    journal = node.run(["journalctl", "-b", "-u", "kubelet.service", "-o", "cat"]).stdout
    assert "EtcdDataLost" in journal
    assert roles(node)["c"] != ""
    assert change(node, "replace")["ended"] == "done"
    assert works(node)

    # Killed while the pod ends.
    hidden = f"{MANIFESTS}/.nodeagent-taken-etcd-pod.yaml"
    script = (
        f"nodeagent etcd leave --no-wait; until [ -e {hidden} ]; do :; done; systemctl kill -s KILL nodeagent.service"
    )
    node.run(["timeout", "60", "bash", "-c", script])
    node.wait_for(lambda: (agent.status(node)["etcd_member"] or {}).get("ended") == "done", "it has left", 180)
    assert roles(node) == {"a": "", "b": ""}
    assert node.run(["ls", "-A", MANIFESTS]).stdout == ""
    assert node.run(["ls", DATA]).stdout.startswith("member-archive-")
