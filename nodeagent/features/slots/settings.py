# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings

# The name becomes part of the names of Leases, see ``decide.pool``.
Pool = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?)?$",
        description='a pool\'s name (lower case letters, digits, -; 40 at most) or ""',
    ),
]
PoolName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9A-Z]([-a-z0-9A-Z_.]*[a-z0-9A-Z])?$",
        max_length=253,
        description="a pool's name, as in nodeagent fleet status",
    ),
]
LabelKey = Annotated[
    str,
    Meta(
        pattern=r"^(([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$",
        description='the key of a label, such as topology.kubernetes.io/zone, or ""',
    ),
]
# Twice the 5,000 nodes for which Kubernetes is built.
Nodes = Annotated[int, Meta(ge=1, le=10000, description="a whole number of nodes")]
NodesOrShare = Annotated[
    Nodes | Annotated[str, Meta(pattern=r"^([1-9][0-9]?|100)%$")],
    Meta(description="a whole number of nodes from 1 to 10000, or a percentage from 1% to 100%"),
]
NodesOrNone = Annotated[int, Meta(ge=0, le=10000, description="a whole number of nodes")]


class SlotSettings(Part, frozen=True, forbid_unknown_fields=True):
    """How many nodes of a cluster are updated at once, by leases of the cluster.

    ``pool``: the pool whose slots this node takes; "" for none. All nodes of a pool must have the same numbers here.

    ``max_unavailable``: how many nodes of the pool may be updated at once: a number, or a percentage of the nodes of
    the pool that ``nodeagent fleet status`` shows, as in 10%, rounded down to at least one. 1: the default of a
    MachineConfigPool.

    ``max_staging``: how many nodes of the pool may pull an image at once; 0 for any number. 0: many registries can
    serve a whole fleet.

    ``pause``: seconds after a node of the pool has released its slot, in which no other node takes one: time to see
    whether the node works. 0: none. All nodes of a pool must have the same number here.

    ``zone``: the key of a label of Nodes. Only nodes that have the same value are updated at once, so that an update
    takes no two zones down; nodes without the label are a zone of their own. "": zones do not matter. All nodes of a
    pool must have the same key here.

    ``order``: pools of the cluster in the order in which they are updated, as in [control-plane, worker]. A node takes
    no slot before all nodes of the pools before its own are updated; a pool that is not listed comes after all of them.
    The names are those of ``nodeagent fleet status``. An empty list: no order.

    ``halt_degraded``: how many other degraded nodes of its pool, as in ``nodeagent fleet status``, keep a node from
    taking a slot, so that a bad config stops spreading. 0: any number.
    """

    group = "slots"
    needs_restart = True

    pool: Pool = ""
    max_unavailable: NodesOrShare = 1
    max_staging: NodesOrNone = 0
    pause: Annotated[float, Meta(ge=0, le=7 * 86400)] = 0
    zone: LabelKey = ""
    order: tuple[PoolName, ...] = ()
    halt_degraded: NodesOrNone = 0

    @property
    def percent(self) -> int:
        """Return the percentage of the pool that may be updated at once; 0 for a number of nodes."""
        return int(self.max_unavailable[:-1]) if isinstance(self.max_unavailable, str) else 0

    @property
    def count(self) -> int:
        """Return the number of slots; 1 for a percentage, until the nodes are counted."""
        return 1 if isinstance(self.max_unavailable, str) else self.max_unavailable

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:
        cluster, slots = settings.cluster, self
        if slots.pool and not cluster.configured:
            yield ("slots.pool",), "slots.pool needs a cluster (cluster.kubeconfig)"
        if slots.pause and not slots.pool:
            yield ("slots.pause",), "slots.pause needs slots.pool: without a pool no node waits for another"
        if slots.zone and not slots.pool:
            yield ("slots.zone",), "slots.zone needs slots.pool: without a pool no node waits for another"
        if slots.max_staging and not slots.pool:
            yield ("slots.max_staging",), "slots.max_staging needs slots.pool: without a pool no stagings are counted"
        if slots.max_unavailable != 1 and not slots.pool:
            message = "slots.max_unavailable needs slots.pool: without a pool no nodes are counted"
            yield ("slots.max_unavailable",), message
        if slots.order or slots.halt_degraded:
            if not (slots.pool and cluster.source == "cluster"):
                keys = ("slots.order", "slots.halt_degraded", "slots.pool", "cluster.source")
                # Otherwise the agents do not report on their Nodes what they run.
                yield keys, "slots.order and slots.halt_degraded need slots.pool and cluster.source: cluster"
            if slots.halt_degraded and not slots.pause:
                message = "slots.halt_degraded needs slots.pause: a node may report after it released its slot"
                yield ("slots.halt_degraded", "slots.pause"), message
