"""What a machine-config-controller and the agent of a node tell each other in annotations of the Node.

The controller writes which config the node shall have and that it drained the node; the agent writes which config the
node has, how it is about to get the other one, and that it wants a drain. Keys and meanings are those of the
machine-config-daemon, so that a controller with its pools, ``oc`` and dashboards take nodeagent for one. A reason goes
to everybody who may read Nodes: one line, without secrets, bounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.parse import API_VERSION, KIND
from nodeagent.core.coordination.drain import is_blocked
from nodeagent.core.coordination.gates import MCO
from nodeagent.core.report.redact import redact
from nodeagent.core.report.status import Status
from nodeagent.core.update.phase import Phase

__all__ = [
    "CURRENT",
    "DESIRED",
    "DRAIN",
    "DRAINED",
    "MAX_REASON",
    "REASON",
    "RETRY",
    "STATE",
    "ControllerRequest",
    "DaemonState",
    "NodeAnnotations",
    "annotations_for",
    "clean",
    "differing",
    "drain_request",
    "is_name",
    "read_request",
    "source_of",
    "uncordon_request",
]

CURRENT: Final = f"{MCO}currentConfig"
DESIRED: Final = f"{MCO}desiredConfig"
DESIRED_IMAGE: Final = f"{MCO}desiredImage"
CURRENT_IMAGE: Final = f"{MCO}currentImage"
STATE: Final = f"{MCO}state"
REASON: Final = f"{MCO}reason"
DRAIN: Final = f"{MCO}desiredDrain"
DRAINED: Final = f"{MCO}lastAppliedDrain"
TOPOLOGY: Final = f"{MCO}controlPlaneTopology"
RETRY: Final = "nodeagent.org/retry"
"""Annotation by which a person asks for a config that failed: its name. We take it off when we have seen it."""

MAX_REASON: Final = 1000  # characters; the machine-config-daemon cuts at 2000, and no one reads so much of it
UNRECONCILABLE: Final = frozenset({"Unreconcilable", "NoDeployments", "BootcHost", "ImageLayered"})
"""Reasons with which an update to a valid config is refused because no running host can make the change."""

_NAME: Final = re.compile(
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
)  # of an object: RFC 1123, as a path of the API has it
_BLANK: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")

Object = Mapping[str, Any]


class DaemonState(StrEnum):
    WORKING = "Working"
    DONE = "Done"
    DEGRADED = "Degraded"
    UNRECONCILABLE = "Unreconcilable"


@dataclass(frozen=True, slots=True)
class ControllerRequest:
    """The annotations as they are on the Node; "" where there is none. ``controlled``: there are some that only a
    machine-config-controller writes, so one is there that drains. ``single``: the only node of its control plane, which
    nobody drains, because its pods have nowhere to go."""

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


def read_request(node: Object) -> ControllerRequest:
    notes = (node.get("metadata") or {}).get("annotations") or {}
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


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def source_of(found: Object) -> ConfigSource:
    """A MachineConfig of the API server as the store keeps it: whatever the spec holds, and of the rest only what
    says something about a host. So the same config has the same digest, whoever annotates the object, and under
    whichever of the two groups it is kept."""
    extra = {key: value for key, value in found.items() if key not in ("metadata", "status")}
    name = str((found.get("metadata") or {}).get("name", ""))
    document = {**extra, "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return ConfigSource(name, hashlib.sha256(text).hexdigest(), text)


@dataclass(frozen=True, slots=True)
class NodeAnnotations:
    """What the agent has to say. ``current`` is the config in force, as far as that is known; ``verified``: nothing is
    under way, so it is the one that was verified last."""

    state: DaemonState
    reason: str
    current: str
    verified: bool


def annotations_for(status: Status) -> NodeAnnotations | None:
    """None as long as there is nothing to tell: no config was ever applied, and none is under way."""
    why = clean(f"{status.reason}: {status.message}" if status.message else status.reason) if status.reason else ""
    if status.phase is Phase.DRAINING and not why:
        # Names only: the reasons, which the conditions of the Node have, change at every second look.
        blocked = [f"{pod.namespace}/{pod.name}" for pod in status.remaining or () if is_blocked(pod)]
        why = clean(f"DrainBlocked: waits for {', '.join(blocked)}") if blocked else ""
    if status.phase is Phase.DEGRADED:
        state = DaemonState.UNRECONCILABLE if status.reason in UNRECONCILABLE else DaemonState.DEGRADED
        return NodeAnnotations(state, why, status.current, verified=False)
    if status.phase is not Phase.IDLE:
        return NodeAnnotations(DaemonState.WORKING, why, status.current, verified=False)
    return NodeAnnotations(DaemonState.DONE, "", status.current, verified=True) if status.current else None


def differing(told: NodeAnnotations, request: ControllerRequest) -> dict[str, str]:
    """The annotations to write. ``currentConfig`` is promoted only after the verification; a Node without one (it
    was made anew) gets what is in force all the same, or no controller would take it for managed."""
    there = {STATE: request.state, REASON: request.reason, CURRENT: request.current}
    want = {STATE: str(told.state), REASON: told.reason}
    if told.current and (told.verified or not request.current):
        want[CURRENT] = told.current
    return {key: value for key, value in want.items() if there[key] != value}


def clean(text: str) -> str:
    """On one line, without what looks like a secret, and cut."""
    # Once more on the one line: a name and its value may have stood on two.
    line = redact(_BLANK.sub(" ", redact(text))).strip()
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 3].rstrip() + "..."


def drain_request(request: ControllerRequest, config: str) -> str | None:
    """The value of ``desiredDrain`` that asks for a drain for ``config``; what is there already if it does that. None
    if it was answered and the node is still cordoned.

    A controller acts on values that it has not answered yet and reads only the word before the first dash. So a node
    that somebody uncordoned after the drain is asked for with one more dash.
    """
    wish = f"drain-{config}"
    if request.drain.rstrip("-") != wish:
        return wish
    if request.drained != request.drain:
        return request.drain
    return None if request.cordoned else f"{request.drain}-"


def uncordon_request(request: ControllerRequest) -> str | None:
    """The same for the end: None if it was answered, or nothing was ever asked for."""
    verb, _, config = request.drain.partition("-")
    if verb == "drain":
        return f"uncordon-{config.rstrip('-')}"
    return None if request.drained == request.drain else request.drain
