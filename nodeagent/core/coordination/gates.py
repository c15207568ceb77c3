# SPDX-License-Identifier: Apache-2.0
"""Other actors that work on this node without its lease: facts on the Node, its Machine and NodeMaintenance objects.

The machine-config-operator, the cluster-autoscaler, machine controllers and an admin with kubectl take no lease, but
leave these signs. While there is one, no new disruption begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.core.coordination.kube_objects import LifecycleHook, Machine, Node, NodeMaintenance
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason

MCO = "machineconfiguration.openshift.io/"
EXCLUDED = "remediation.medik8s.io/exclude-from-remediation"
TAINTS = {
    "ToBeDeletedByClusterAutoscaler": (Reason.NODE_LEAVING, "the cluster autoscaler is about to delete the node"),
    "node.kubernetes.io/out-of-service": (Reason.OUT_OF_SERVICE, "the node was declared out of service"),
    "medik8s.io/drain": (Reason.UNDER_MAINTENANCE, "the node-maintenance-operator drains the node"),
    "medik8s.io/remediation": (Reason.UNDER_MAINTENANCE, "the self-node-remediation operator restarts the node"),
    "medik8s.io/fence-agents-remediation": (Reason.UNDER_MAINTENANCE, "a fence agent restarts the node"),
    # Karpenter taints the node before it starts and waits for the replacement; the second key is that of v1beta1.
    "karpenter.sh/disrupted": (Reason.NODE_LEAVING, "Karpenter replaces the node"),
    "karpenter.sh/disruption": (Reason.NODE_LEAVING, "Karpenter replaces the node"),
    "node.cloudprovider.kubernetes.io/shutdown": (Reason.NODE_LEAVING, "the cloud provider shut the machine down"),
    "cloud.google.com/impending-node-termination": (Reason.NODE_LEAVING, "the cloud provider ends the machine"),
    "aws-node-termination-handler/spot-itn": (Reason.NODE_LEAVING, "the cloud provider takes the spot machine back"),
    "aws-node-termination-handler/scheduled-maintenance": (
        Reason.UNDER_MAINTENANCE,
        "the cloud provider maintains the machine",
    ),
    "aws-node-termination-handler/asg-lifecycle-termination": (
        Reason.NODE_LEAVING,
        "the autoscaling group ends the machine",
    ),
}
# Annotation of kured with --annotate-nodes; without it, kured leaves only a cordon.
KURED = "weave.works/kured-reboot-in-progress"
# Annotation of the Node, as namespace/name.
MACHINE_ANNOTATION = "machine.openshift.io/machine"

# Lifecycle hook on the Machine: while it is set, a deletion waits before the drain.
HOOK: LifecycleHook = {"name": "NodeUpdate", "owner": "nodeagent"}


@dataclass(frozen=True, slots=True, order=True)
class Gate:
    """Another actor. ``reason`` is stable for scripts; ``message`` names the actor and its work."""

    reason: AnyReason
    message: str


def node_gates(node: Node, *, controls_node: bool) -> Sequence[Gate]:
    """``controls_node``: nodeagent is the agent that answers the machine-config-operator on this node, so that the
    operator's annotations are requests to it. Otherwise they belong to the operator's own daemon."""
    meta, spec = node["metadata"], node.get("spec") or {}
    notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    gates = []
    if meta.get("deletionTimestamp"):
        gates.append(Gate(Reason.NODE_LEAVING, "the Node is being deleted"))
    keys = [taint["key"] for taint in spec.get("taints") or ()]
    gates += [Gate(*TAINTS[key]) for key in keys if key in TAINTS]
    # The node-maintenance-operator sets the label before it cordons the node.
    if labels.get(EXCLUDED, "").lower() == "true":
        gates.append(Gate(Reason.UNDER_MAINTENANCE, f"the node is excluded from remediation (label {EXCLUDED})"))
    if notes.get(KURED):
        gates.append(Gate(Reason.UNDER_MAINTENANCE, "kured restarts the node"))
    if not controls_node:
        # The controller copies the request when it has served it.
        drain, drained = notes.get(MCO + "desiredDrain"), notes.get(MCO + "lastAppliedDrain")
        if drain and drain != drained:
            gates.append(Gate(Reason.MACHINE_CONFIG_OPERATOR, f"the machine-config-operator works on {drain}"))
        current, desired = notes.get(MCO + "currentConfig"), notes.get(MCO + "desiredConfig")
        state = notes.get(MCO + "state", "Done")
        # The state counts beside the configs: they are equal on a node that the daemon calls degraded because of
        # drift.
        if desired and (desired != current or state != "Done"):
            message = f"the machine-config-daemon updates the node to {desired} (state {state})"
            gates.append(Gate(Reason.MACHINE_CONFIG_OPERATOR, message))
    return gates


def maintenance_gates(node: str, maintenances: Sequence[NodeMaintenance]) -> Sequence[Gate]:
    gates = []
    for maintenance in maintenances:
        # The object counts beside the lease: its operator renews the lease only when something else wakes it, and may
        # hold the node after the lease has expired.
        spec = maintenance.get("spec") or {}
        if spec.get("nodeName") == node:
            reason = f" ({cause})" if (cause := spec.get("reason")) else ""
            gates.append(Gate(Reason.UNDER_MAINTENANCE, f"NodeMaintenance {maintenance['metadata']['name']}{reason}"))
    return gates


def machine_gates(machine: Machine) -> Sequence[Gate]:
    meta = machine["metadata"]
    if meta.get("deletionTimestamp"):
        return [Gate(Reason.NODE_LEAVING, f"Machine {meta['namespace']}/{meta['name']} is being deleted")]
    return []


def machine_of(node: Node) -> tuple[str, str] | None:
    """Return namespace and name of the Machine; None for a node without one."""
    value = (node["metadata"].get("annotations") or {}).get(MACHINE_ANNOTATION) or ""
    namespace, _, name = value.partition("/")
    return (namespace, name) if namespace and name else None


def hooks_with(machine: Machine) -> list[LifecycleHook] | None:
    """Return the preDrain hooks with the agent's; None if it is set."""
    hooks = _hooks(machine)
    return None if HOOK["name"] in [hook["name"] for hook in hooks] else [*hooks, HOOK]


def hooks_without(machine: Machine) -> list[LifecycleHook] | None:
    """Return the preDrain hooks without the agent's; None if it is not set."""
    hooks = _hooks(machine)
    left = [hook for hook in hooks if hook["name"] != HOOK["name"]]
    return None if len(left) == len(hooks) else left


def _hooks(machine: Machine) -> list[LifecycleHook]:
    return list(((machine.get("spec") or {}).get("lifecycleHooks") or {}).get("preDrain") or ())
