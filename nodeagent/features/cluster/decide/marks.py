# SPDX-License-Identifier: Apache-2.0
"""The annotations by which autoscalers leave a Node alone while it is disrupted: an empty node is what they remove.

An annotation of the Node lists those that the agent has set, in the same write. So a later process, or an admin, can
take them back, and one that was set before is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.core.coordination.kube_objects import Node

# The annotation, and the label of the nodes for which it has a meaning; "" for all nodes.
MARKS: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "",
    "karpenter.sh/do-not-disrupt": "karpenter.sh/nodepool",
}
SET: Final = "true"
# Annotation of the Node: the marks that nodeagent has set.
MARKED: Final = "nodeagent.org/marked"

# Annotations to write; None removes one.
Annotations = dict[str, str | None]


def marks_with(node: Node) -> Annotations:
    """Return what is to be written before a disruption; empty if the Node has all marks."""
    labels = node["metadata"].get("labels") or {}
    notes = node["metadata"].get("annotations") or {}
    missing = [mark for mark, label in MARKS.items() if mark not in notes and (not label or label in labels)]
    if not missing:
        return {}
    return {**dict.fromkeys(missing, SET), MARKED: ",".join([*_marked(notes), *missing])}


def marks_without(node: Node) -> Annotations:
    """Return what is to be written after a disruption; empty if no mark is the agent's."""
    notes = node["metadata"].get("annotations") or {}
    if MARKED not in notes:
        return {}
    # A mark that has another value by now is that of another client.
    ours = [mark for mark in _marked(notes) if mark in MARKS and notes.get(mark) == SET]
    return {**dict.fromkeys(ours), MARKED: None}


def _marked(notes: Mapping[str, str]) -> list[str]:
    return [mark for mark in notes.get(MARKED, "").split(",") if mark]
