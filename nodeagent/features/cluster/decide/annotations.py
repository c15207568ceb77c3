# SPDX-License-Identifier: Apache-2.0
"""What the agent writes into the annotations of its Node, and what it takes from them.

The controller writes the desired config of the node, and that it drained the node. The agent writes the current config,
its progress to the desired one, and that it needs a drain.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.config.parse import API_VERSION, KIND
from nodeagent.core.coordination.annotations import (
    CURRENT,
    REASON,
    STATE,
    ControllerRequest,
    DaemonState,
    clean,
)
from nodeagent.features.cluster.decide.drain import is_blocked
from nodeagent.features.cluster.events import remaining_of
from nodeagent.kinds import Kind
from nodeagent.reasons import reason_of
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

# The name of an object: RFC 1123, as a path of the API has it.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def source_of(config: Mapping[str, Any]) -> ConfigSource:
    """Return a MachineConfig of the API server as the store keeps it: the spec, and no metadata but the name.

    So a config has the same digest in both API groups, with any annotations.
    """
    name = str(config["metadata"]["name"])
    extra = {key: value for key, value in config.items() if key not in ("metadata", "status")}
    document = {**extra, "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
    # The digest is of the text, and the API server does not promise an order of keys.
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return ConfigSource(name, hashlib.sha256(text).hexdigest(), text)


@dataclass(frozen=True, slots=True)
class NodeAnnotations:
    """The annotations that the agent writes. ``current`` is the config in force, if known. ``verified``: no update is
    in progress, so it is the config that was verified last."""

    state: DaemonState
    reason: str
    current: str
    verified: bool


def annotations_for(status: Status) -> NodeAnnotations | None:
    """Return the annotations of a status; None while no config was applied and no update is in progress."""
    # Each write of a Node goes to every client that watches Nodes.
    text = status.brief or status.message
    cause = clean(f"{status.reason}: {text}" if text else status.reason) if status.reason else ""
    if status.phase is Phase.DRAINING and not cause:
        # Names only: the reasons are in the conditions of the Node and change often.
        blocked = [f"{pod.namespace}/{pod.name}" for pod in remaining_of(status) if is_blocked(pod)]
        cause = clean(f"DrainBlocked: waits for {', '.join(blocked)}") if blocked else ""
    if status.phase is Phase.DEGRADED:
        # A valid config that no running host can apply.
        unreconcilable = reason_of(status.reason).kind is Kind.UNRECONCILABLE
        state = DaemonState.UNRECONCILABLE if unreconcilable else DaemonState.DEGRADED
        return NodeAnnotations(state, cause, status.current, verified=False)
    if status.phase is not Phase.IDLE:
        return NodeAnnotations(DaemonState.WORKING, cause, status.current, verified=False)
    # The machine-config-daemon clears the reason when it is done. A controller would show one that stays.
    return NodeAnnotations(DaemonState.DONE, "", status.current, verified=True) if status.current else None


def differing(wanted: NodeAnnotations, request: ControllerRequest) -> dict[str, str]:
    """Return the annotations to write. ``currentConfig`` is written after the verification."""
    there = {STATE: request.state, REASON: request.reason, CURRENT: request.current}
    want = {STATE: str(wanted.state), REASON: wanted.reason}
    # A Node without one, which was created again, gets the config in force at once: otherwise no controller would
    # manage it.
    if wanted.current and (wanted.verified or not request.current):
        want[CURRENT] = wanted.current
    return {key: value for key, value in want.items() if there[key] != value}


def drain_request(request: ControllerRequest, config: str) -> str | None:
    """Return the value of ``desiredDrain`` that requests a drain for ``config``; None if the node is drained for it."""
    # A controller acts on values that it has not answered yet, and reads only the word before the first dash. So the
    # request is repeated with one more dash for a node that was uncordoned after the drain.
    wish = f"drain-{config}"
    # No name of an object ends in a dash, so all dashes at the end are repetitions.
    if request.drain.rstrip("-") != wish:
        return wish
    if request.drained != request.drain:
        return request.drain
    return None if request.cordoned else f"{request.drain}-"


def uncordon_request(request: ControllerRequest) -> str | None:
    """Return the value that requests the uncordon; None if it was answered, or no drain was requested."""
    verb, _, config = request.drain.partition("-")
    if verb == "drain":
        return f"uncordon-{config.rstrip('-')}"
    return None if request.drained == request.drain else request.drain
