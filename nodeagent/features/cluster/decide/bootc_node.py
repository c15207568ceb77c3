# SPDX-License-Identifier: Apache-2.0
"""bootc-operator on this node: it stages an image of the OS, drains the node and reboots it, without a lease.

Its controller labels each node of one of its pools, and keeps a BootcNode of the same name. It annotates that when the
node gets its turn, and takes the annotation away when the node is ready with the new image. Its daemon may reboot from
the moment at which ``desiredImageState`` is Booted (api/v1alpha1 and rollout.go of bootc-operator at 1ba0439).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Required, TypedDict

from nodeagent.core.coordination.gates import Gate
from nodeagent.core.coordination.kube_objects import Node, ObjectMeta
from nodeagent.features.cluster.reasons import ClusterReason

BOOTC_NODES: Final = "/apis/node.bootc.dev/v1alpha1/bootcnodes/{}"

_MANAGED: Final = "bootc.dev/managed"
_TURN: Final = "bootc.dev/in-reboot-slot"
_BOOTED: Final = "Booted"


class BootcNodeSpec(TypedDict, total=False):
    desiredImage: str | None
    desiredImageState: str | None


class ImageInfo(TypedDict, total=False):
    imageDigest: str | None


class BootcNodeStatus(TypedDict, total=False):
    booted: ImageInfo | None


class BootcNode(TypedDict, total=False):
    metadata: Required[ObjectMeta]
    spec: BootcNodeSpec | None
    status: BootcNodeStatus | None


def is_managed(node: Node) -> bool:
    """Return whether bootc-operator updates the OS of this node."""
    return _MANAGED in (node["metadata"].get("labels") or {})


def bootc_gates(bootc_node: BootcNode) -> Sequence[Gate]:
    """Return a gate while bootc-operator drains or reboots the node, and none while it only stages."""
    spec, status = bootc_node.get("spec") or {}, bootc_node.get("status") or {}
    # A staging disrupts nothing, and may last for hours before the node has its turn.
    image = spec.get("desiredImage") or "another image"
    if _TURN in (bootc_node["metadata"].get("annotations") or {}):
        return [Gate(ClusterReason.BOOTC_OPERATOR, f"bootc-operator updates the node to {image}")]
    # Without a turn its daemon obeys as well: a controller of another release, or an admin, may write the object.
    booted = (status.get("booted") or {}).get("imageDigest") or ""
    if spec.get("desiredImageState") == _BOOTED and image.rpartition("@")[2] != booted:
        return [Gate(ClusterReason.BOOTC_OPERATOR, f"bootc-operator is about to reboot the node into {image}")]
    return []
