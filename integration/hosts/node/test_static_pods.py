# SPDX-License-Identifier: Apache-2.0
"""Static pods with a real kubelet and a real etcd: what the kubelet does with a manifest, and what nodeagent does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from integration.hosts import nodeagent_client as agent
from integration.hosts.errors import CommandFailed
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.node_host import KUBELET_CONF, MANIFESTS, NodeHost, kubelet_configuration
from integration.hosts.node.node_programs import ETCD_NEXT
from integration.hosts.node.workloads import etcd_pod
from integration.hosts.nodeagent_client import machine_config, wait_done, wait_outcome

PATH = f"{MANIFESTS}/etcd.yaml"
ADDRESS = "10.77.0.10"
PODS = "/var/lib/kubelet/pods"
READY_LOG = "/run/etcd-ready.log"
# Writes a line at each change of the readiness of etcd: seconds since the epoch, and 1 or 0.
WATCH = rf"""
probe() {{
  exec 3<>/dev/tcp/127.0.0.1/2381 || return
  printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
  read -r line <&3 && [[ $line == *' 200 '* ]]
}}
last=
while :; do
  if (probe) 2>/dev/null; then now=1; else now=0; fi
  [[ $now == "$last" ]] || echo "$EPOCHREALTIME $now" >> {READY_LOG}
  last=$now
  sleep 0.05
done
"""
SLOW_TO_GO = 25.0
"""Seconds for a full listing of the kubelet, and some more."""


def manifest(*flags: str, image: str = "", name: str = "etcd") -> str:
    pod = etcd_pod("one", ADDRESS)
    pod["metadata"]["name"] = name
    container: dict[str, Any] = pod["spec"]["containers"][0]
    container["command"] += flags
    container["image"] = image or container["image"]
    return json.dumps(pod)


def put(node: NodeHost, text: str, path: str = PATH) -> None:
    """Rename a complete file into place, as the kubelet wants it."""
    node.write(f"{MANIFESTS}/.new", text)
    node.run(["mv", f"{MANIFESTS}/.new", path])


def is_ready(node: NodeHost) -> bool:
    probe = "exec 3<>/dev/tcp/127.0.0.1/2381; printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3; read -r l <&3; echo $l"
    try:
        return " 200 " in node.run(["timeout", "2", "bash", "-c", probe]).stdout
    except CommandFailed:
        return False


def wait_ready(node: NodeHost, timeout: float = 120.0) -> None:
    node.wait_for(lambda: is_ready(node), "etcd is ready", timeout)


def uids(node: NodeHost) -> set[str]:
    """Return the uids of static pods. Those of pods of the API have dashes."""
    return {uid for uid in node.run(["ls", PODS]).stdout.split() if "-" not in uid}


def starts(node: NodeHost, uid: set[str]) -> list[str]:
    """Return the logs of a pod's container: one for each start of it."""
    [only] = uid
    return node.run(["bash", "-c", f"ls /var/log/pods/*{only}/etcd"]).stdout.split()


def command_line(node: NodeHost) -> str:
    """Return the command line of the running etcd, "" for none."""
    try:
        return node.run(["bash", "-c", "pid=$(pgrep -x etcd) && tr '\\0' ' ' < /proc/$pid/cmdline"]).stdout
    except CommandFailed:
        return ""


def watch_readiness(node: NodeHost) -> Callable[[], float]:
    """Return a function for the longest time without a ready etcd that has ended, in seconds."""
    node.write("/run/etcd-watch", WATCH)
    node.run(["systemd-run", "--unit=etcd-watch", "bash", "/run/etcd-watch"])
    node.wait_for(lambda: node.run(["cat", READY_LOG], check=False).stdout != "", "the readiness is watched")

    def longest() -> float:
        lines = [line.split() for line in node.read_text(READY_LOG).splitlines()]
        downs = [float(at) for at, state in lines if state == "0"]
        ups = [float(at) for at, state in lines if state == "1"]
        gaps = [min(up for up in ups if up > down) - down for down in downs if down < max(ups, default=0.0)]
        return max(gaps, default=0.0)

    return longest


@pytest.fixture
def node(make_agent_node: NodeMaker, request: pytest.FixtureRequest) -> NodeHost:
    """A node with a single member of etcd, which nodeagent manages."""
    made = make_agent_node(f"static-{abs(hash(request.node.name)) % 10000}", {"etcd": {"single_member": True}})
    made.run(["mkdir", "-p", MANIFESTS])
    agent.apply(made, machine_config("first", files={PATH: manifest()}))
    wait_done(made, "first")
    assert is_ready(made)
    return made


def hidden(node: NodeHost) -> list[str]:
    return node.run(["ls", "-A", MANIFESTS]).stdout.split()


@pytest.mark.timeout(1200)
def test_a_changed_pod_is_replaced(node: NodeHost) -> None:
    before, longest = uids(node), watch_readiness(node)
    agent.apply(node, machine_config("flag", files={PATH: manifest("--max-txn-ops=64")}))
    entry = wait_outcome(node, "flag")
    assert (entry["outcome"], entry["reboots"], entry["disruption"]) == ("done", 0, "restart")
    after = uids(node)
    assert len(after) == 1
    assert after != before
    assert "--max-txn-ops=64" in command_line(node)
    gap = longest()
    print(f"{gap:.1f} s without etcd")
    assert gap > 0.1
    # Its first start succeeded: the kubelet restarts a container only after a back-off of 10 s.
    assert starts(node, after) == ["0.log"]
    assert hidden(node) == ["etcd.yaml"]

    # A comment is no change: nothing restarts.
    text = json.dumps(json.loads(manifest("--max-txn-ops=64")), indent=3)
    agent.apply(node, machine_config("spaces", files={PATH: text}))
    wait_done(node, "spaces")
    assert uids(node) == after

    # Another image: the keyspace is saved before.
    agent.apply(node, machine_config("image", files={PATH: manifest("--max-txn-ops=64", image=ETCD_NEXT)}))
    wait_done(node, "image")
    assert int(node.run(["stat", "-c", "%s", "/var/lib/nodeagent/etcd-before-change.db"]).stdout) > 10_000
    assert is_ready(node)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_another_directory_and_a_reboot(make_agent_node: NodeMaker) -> None:
    """The pod of another `staticPodPath` is replaced before the reboot of its plan, and a bad one prevents it."""
    node = make_agent_node("static-elsewhere", {"etcd": {"single_member": True}})
    node.run(["mkdir", "/etc/pods"])
    node.write(KUBELET_CONF, kubelet_configuration(staticPodPath="/etc/pods"))
    node.run(["systemctl", "restart", "kubelet.service"])
    path = "/etc/pods/etcd.yaml"
    agent.apply(node, machine_config("first", files={path: manifest()}))
    assert wait_outcome(node, "first")["disruption"] == "restart"
    assert is_ready(node)

    bad = {path: manifest("--no-such-flag=1"), "/etc/unlisted": "1"}
    agent.apply(node, machine_config("bad", files=bad))
    entry = wait_outcome(node, "bad", 400)
    assert (entry["outcome"], entry["reason"], entry["reboots"]) == ("reverted", "StaticPodUnhealthy", 0)
    assert is_ready(node)

    both = {path: manifest("--max-txn-ops=64", image=ETCD_NEXT), "/etc/unlisted": "1"}
    agent.apply(node, machine_config("both", files=both))
    node.wait_for(lambda: "--max-txn-ops=64" in command_line(node), "the pod is replaced", 180)
    assert node.reboots == 0
    entry = wait_outcome(node, "both", 400)
    assert (entry["outcome"], entry["reboots"], node.reboots) == ("done", 1, 1)
    assert "--max-txn-ops=64" in command_line(node)
    assert int(node.run(["stat", "-c", "%s", "/var/lib/nodeagent/etcd-before-change.db"]).stdout) > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_bad_manifest_is_reverted_without_a_reboot(node: NodeHost) -> None:
    agent.apply(node, machine_config("bad", files={PATH: manifest("--no-such-flag=1")}))
    entry = wait_outcome(node, "bad", 400)
    assert entry["outcome"] == "reverted"
    assert entry["reason"] == "StaticPodUnhealthy"
    assert entry["reboots"] == 0
    assert "--no-such-flag" not in node.read_text(PATH)
    assert is_ready(node)
    assert len(uids(node)) == 1
    assert node.reboots == 0


@pytest.mark.timeout(1200)
def test_what_the_kubelet_would_kill_the_pod_for_is_refused(node: NodeHost) -> None:
    before = uids(node)
    broken = {
        "yaml": {PATH: "kind: Pod\n\tmetadata: {}"},
        "type": {PATH: manifest().replace('"hostNetwork": true', '"hostNetwork": "true"')},
        "backup": {PATH: manifest(), f"{PATH}.bak": manifest("--max-txn-ops=1")},
    }
    for name, files in broken.items():
        agent.write_desired(node, machine_config(name, files=files))
        node.wait_for(lambda: agent.status(node).get("reason") == "InvalidContent", f"{name} is refused")
    put(node, manifest(), f"{MANIFESTS}/.etcd.yaml.bak")
    agent.apply(node, machine_config("hidden", files={PATH: manifest()}))
    wait_done(node, "hidden")
    assert uids(node) == before
    assert is_ready(node)


@pytest.mark.timeout(1200)
def test_killed_while_the_manifest_is_away(node: NodeHost) -> None:
    agent.apply(node, machine_config("flag", files={PATH: manifest("--max-txn-ops=64")}))
    taken = f"{MANIFESTS}/.nodeagent-taken-etcd.yaml"
    # Inside of the host, because the manifest is away for two seconds only.
    script = f"until [ -e {taken} ]; do :; done; systemctl kill --signal=KILL nodeagent.service; ls -A {MANIFESTS}"
    seen = node.run(["timeout", "60", "bash", "-c", script]).stdout.split()
    assert ".nodeagent-taken-etcd.yaml" in seen
    wait_done(node, "flag")
    assert hidden(node) == ["etcd.yaml"]
    assert "--max-txn-ops=64" in command_line(node)
    assert is_ready(node)
    assert len(uids(node)) == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_the_kubelet_does(make_node: NodeMaker) -> None:
    """The pitfalls for which all of this is there. If a kubelet behaves otherwise, this fails and nothing else."""
    node = make_node("kubelet-alone")
    node.boot()
    node.wait_ready()
    node.run(["mkdir", "-p", MANIFESTS])
    put(node, manifest())
    wait_ready(node)
    longest = watch_readiness(node)
    (first,) = uids(node)

    # Renamed over the previous one, the new pod waits in the back-off.
    put(node, manifest("--max-txn-ops=64"))
    node.wait_for(lambda: "--max-txn-ops=64" in command_line(node), "the new pod runs", 180)
    node.wait_for(lambda: longest() > 0, "etcd is ready again", 180)
    print(f"renamed over: {longest():.1f} s without etcd")
    assert longest() > 3
    assert first not in uids(node)

    # A backup replaces it, and stays.
    put(node, manifest("--max-txn-ops=32"), f"{PATH}.bak")
    node.wait_for(lambda: "--max-txn-ops=32" in command_line(node), "the pod of the backup runs", 180)
    node.run(["rm", f"{PATH}.bak"])
    node.wait_for(lambda: "--max-txn-ops=64" in command_line(node), "the pod of the manifest runs", 180)
    wait_ready(node)

    # A broken manifest changes nothing at first.
    put(node, "not: [yaml")
    began = time.monotonic()
    time.sleep(1)
    assert is_ready(node)
    node.wait_for(lambda: not command_line(node), "the kubelet has killed etcd", SLOW_TO_GO)
    print(f"broken: killed after {time.monotonic() - began:.1f} s")
    put(node, manifest())
    wait_ready(node)
