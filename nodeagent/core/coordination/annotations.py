# SPDX-License-Identifier: Apache-2.0
"""The annotations of a Node by which a machine-config-controller and the agent of a node communicate.

Keys and meanings are those of the machine-config-daemon, so a controller with its pools, ``oc`` and dashboards work
with nodeagent. Every user who may read Nodes sees the reason, which is one line of limited length without secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nodeagent.core.coordination.gates import MCO
from nodeagent.core.coordination.kube_objects import Node
from nodeagent.core.redact import redact
from nodeagent.reasons import Reason

CURRENT: Final = f"{MCO}currentConfig"
DESIRED: Final = f"{MCO}desiredConfig"
DESIRED_IMAGE: Final = f"{MCO}desiredImage"
CURRENT_IMAGE: Final = f"{MCO}currentImage"
STATE: Final = f"{MCO}state"
REASON: Final = f"{MCO}reason"
DRAIN: Final = f"{MCO}desiredDrain"
DRAINED: Final = f"{MCO}lastAppliedDrain"
TOPOLOGY: Final = f"{MCO}controlPlaneTopology"

# Annotation that requests a config that failed, by its name. The agent removes it when the request is recorded.
RETRY: Final = "nodeagent.org/retry"

# Characters; the machine-config-daemon allows 2000.
MAX_REASON: Final = 1000

_BLANK: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class DaemonState(StrEnum):
    WORKING = "Working"
    DONE = "Done"
    DEGRADED = "Degraded"
    UNRECONCILABLE = Reason.UNRECONCILABLE


@dataclass(frozen=True, slots=True)
class ControllerRequest:
    """The annotations on the Node; "" for a missing one.

    ``controlled``: some are written only by a machine-config-controller, so there is one that drains. ``single``: the
    only node of its control plane, which is not drained because its pods have no other node.
    """

    desired: str = ""
    image: str = ""
    current: str = ""
    state: str = ""
    reason: str = ""
    drain: str = ""
    drained: str = ""
    retry: str = ""
    cordoned: bool = False
    controlled: bool = False
    single: bool = False
    current_image: str = ""


def read_request(node: Node) -> ControllerRequest:
    notes = node["metadata"].get("annotations") or {}
    return ControllerRequest(
        desired=notes.get(DESIRED, ""),
        image=notes.get(DESIRED_IMAGE, ""),
        current=notes.get(CURRENT, ""),
        state=notes.get(STATE, ""),
        reason=notes.get(REASON, ""),
        drain=notes.get(DRAIN, ""),
        drained=notes.get(DRAINED, ""),
        retry=notes.get(RETRY, ""),
        cordoned=bool((node.get("spec") or {}).get("unschedulable")),
        controlled=DRAINED in notes or TOPOLOGY in notes,
        single=notes.get(TOPOLOGY) == "SingleReplica",
        current_image=notes.get(CURRENT_IMAGE, ""),
    )


def clean(text: str) -> str:
    """Return one line of limited length, without text that looks like a secret."""
    # Again on the one line: a name and its value may have been on two.
    line = redact(_BLANK.sub(" ", redact(text))).strip()
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 3].rstrip() + "..."
