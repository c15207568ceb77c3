# SPDX-License-Identifier: Apache-2.0
"""A change of the kubelet under a running pod: `make demo-node`, or `python -m integration.demo_node`.

A node with a real kubelet and containerd is made on the spot, in a cluster with a real API server. The programs have to
be there (`make cluster-tools` builds them, minutes). `make demo` ends with it where they are, and reports it where they
are not (`--if-built`).
"""

from __future__ import annotations

import contextlib
import os
import sys

from integration.demo import Failed, Story, machine_config, package_of, require
from integration.hosts import nodeagent_client as agent
from integration.hosts.container import container_host
from integration.hosts.container.package import installed_image
from integration.hosts.errors import HostRingError, Unavailable
from integration.hosts.node.node_host import (
    KUBELET_CONF,
    NODEAGENT_KUBECONFIG,
    NodeHost,
    kubeconfig,
    kubelet_configuration,
)
from integration.hosts.node.node_image import node_image
from integration.hosts.node.node_programs import NodePrograms
from integration.hosts.node.standalone import control_plane
from integration.hosts.node.workloads import pod, workload

NAME = "worker"
FIRST = "/root/worker-1.yaml"
SECOND = "/root/worker-2.yaml"
# More than the default of 110, so that no pod has to go.
PODS = 150
UPDATE_TIMEOUT = 120.0


def main() -> int:
    story = Story()
    try:
        # In CI, what cannot run is a failure.
        if "--if-built" in sys.argv[1:] and "CI" not in os.environ and (missing := not_built()):
            story.say(f"\ndemo-node: left out: {missing}")
            return 0
        run(story)
    except Unavailable as error:
        print(f"demo-node: cannot run here: {error}", file=sys.stderr)
        return 2
    except (Failed, HostRingError) as error:
        print(f"demo-node: FAILED after {story.seconds:.0f} s: {error}", file=sys.stderr)
        return 1
    story.say(f"\ndone in {story.seconds:.0f} s")
    return 0


def not_built() -> str:
    """Return what is missing to run a node, "" if nothing is."""
    try:
        NodePrograms.find().close()
    except Unavailable as error:
        return str(error)
    return ""


def run(story: Story) -> None:
    story.chapter("A node to try it on")
    require(story, "openssl")
    programs = NodePrograms.find()
    image = installed_image(node_image(story.say), package_of(story))
    container_host.sweep()
    with contextlib.ExitStack() as stack:
        stack.callback(programs.close)
        stack.callback(image.close)
        cluster, relay = stack.enter_context(control_plane(programs))
        node = stack.enter_context(NodeHost(image, programs, NAME, cluster, relay))
        node.write(NODEAGENT_KUBECONFIG, kubeconfig(cluster, f"nodeagent:{NAME}", ["nodeagent"]))
        agent.settings(node, {"node_name": NAME, "cluster": {"kubeconfig": NODEAGENT_KUBECONFIG}})
        node.boot()
        node.wait_ready()
        agent.wait_daemon(node)
        story.expect("the Node is Ready", node.is_ready())
        change(node, story)


def change(node: NodeHost, story: Story) -> None:
    path = "/api/v1/namespaces/default/pods"
    node.cluster.admin.create(path, pod("web", workload(serve=True, nodeName=NAME)))
    node.wait_pods_ready("web")
    before = node.container_ids()
    story.expect("a pod runs", "web" in before)
    for config, name, changes in ((FIRST, "worker-1", {}), (SECOND, "worker-2", {"maxPods": PODS})):
        text = machine_config(name, {KUBELET_CONF: kubelet_configuration(**changes)})
        node.write(config, text, mode=0o600)
    agent.apply(node, node.read_text(FIRST))
    agent.wait_done(node, "worker-1", UPDATE_TIMEOUT)

    story.chapter(f"A change of the kubelet under that pod: at most {PODS} pods")
    for argv in (["nodeagent", "plan", SECOND], ["nodeagent", "apply", "--wait", SECOND]):
        story.command(argv)
        done = node.run(argv, check=False, timeout=UPDATE_TIMEOUT)
        story.output(done.stdout + done.stderr)
        story.expect("the command succeeded", done.returncode == 0, done.returncode)
    capacity = node.cluster.admin.get(node.path)["status"]["capacity"]["pods"]
    story.expect(f"the Node takes {PODS} pods", capacity == str(PODS), capacity)
    story.expect("the Node is Ready", node.is_ready())
    story.expect("the container of the pod is the same", node.container_ids() == before)
    story.expect("nothing was rebooted", node.reboots == 0)


if __name__ == "__main__":
    sys.exit(main())
