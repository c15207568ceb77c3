# SPDX-License-Identifier: Apache-2.0
"""This host as a node of its cluster."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from nodeagent.core.coordination.annotations import RETRY
from nodeagent.door import Base, Feature
from nodeagent.errors import AgentError
from nodeagent.features.cluster.backend import Cluster
from nodeagent.features.cluster.gates import ClusterGuard
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.features.cluster.reports import ClusterReporter
from nodeagent.update.next.desired import DesiredSource
from nodeagent.update.ports.events import UpdateContext, Warned

# How the names of the configs begin that the controller of a pool renders. They are complete.
RENDERED: Final = "rendered-"


def join(base: Base) -> Feature:
    """Follow the Node and report to it. Does nothing if another feature is the back end."""
    cluster = base.backend
    if not isinstance(cluster, Cluster):
        return Feature()
    reports = ClusterReporter(
        cluster.conditions.publish,
        cluster.events.write,
        base.clock,
        random.random,
        progress=cluster.controls_node,
    )
    sinks = [reports.sink]
    beside: list[tuple[str, Callable[[], Awaitable[None]]]] = [
        ("renewal of the lease", cluster.lease.keep),
        ("the view of the lease", partial(base.coordination.poll_holder, random.random)),
        ("reports to the cluster", reports.run),
    ]
    desired = None
    if cluster.controls_node:
        handshake = _follow_node(base, cluster)
        sinks.append(handshake.sink)
        beside.append(("the view of the Node", handshake.run))
        desired = DesiredSource(read=handshake.desired, retry=_retry, complete=_is_rendered)
    guard = ClusterGuard(cluster.client, cluster.name)
    return Feature(use=cluster.use, guard=guard, desired=desired, sinks=sinks, beside=beside)


def _follow_node(base: Base, cluster: Cluster) -> Handshake:
    def warn(fault: AgentError | None) -> None:
        # The end of a fault is visible in the events that follow.
        if fault is not None:
            message = f"the Node cannot be followed: {fault.message}"
            base.reporter.emit(Warned(UpdateContext(base.shown().phase), message, fault.reason))

    return Handshake(
        cluster.client,
        cluster.name,
        base.store,
        changed=lambda _again: base.look_again(),
        requested=base.requested,
        on_error=warn,
    )


def _retry(name: str) -> str:
    return f"{RETRY}={name} on the Node"


def _is_rendered(name: str) -> bool:
    return name.startswith(RENDERED)
