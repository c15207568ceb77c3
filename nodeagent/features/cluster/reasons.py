# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class ClusterReason(ReasonEnum):
    # fmt: off
    LEASE_CONTENDED = "LeaseContended", Kind.RETRY, "kubectl get lease -n medik8s-leases -w shows which client keeps writing it", "Another client keeps writing the lease, so the agent cannot."
    NODE_CONTENDED = "NodeContended", Kind.RETRY, "kubectl get node -w shows which client keeps writing it", "Another client keeps writing the Node, so the agent cannot."
    MACHINE_CONTENDED = "MachineContended", Kind.RETRY, "kubectl get machine -A -w shows which client keeps writing it", "Another client keeps writing the Machine, so the agent cannot."
    CONFIG_NOT_FOUND = "ConfigNotFound", Kind.REFUSED, "create the named MachineConfig, or correct the Node's desiredConfig", "The cluster does not have the MachineConfig that the Node names."
    CONFIG_NAME_INVALID = "ConfigNameInvalid", Kind.INPUT, "put the name of a MachineConfig into the Node's annotation desiredConfig", "The annotation of the Node is no name of a MachineConfig."
    IMAGE_LAYERED = "ImageLayered", Kind.UNRECONCILABLE, "remove the Node's desiredImage and put the image into osImageURL of its MachineConfig", "The Node names an image of its own, which takes precedence over that of its MachineConfig."
    BOOTC_OPERATOR = "BootcOperator", Kind.REFUSED, "wait until it is done (kubectl get bootcnodes); two programs must not disrupt one node", "The operator for bootc hosts works on this node."
    # fmt: on
