# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from nodeagent.features.cluster.decide.drain_order import SELECTOR
from nodeagent.settings.cluster import OptionalPath
from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings

LabelSelector = Annotated[
    str,
    Meta(
        pattern=SELECTOR,
        max_length=1024,
        description="a label selector, as in app=db or app=db,tier!=test (=, !=, KEY and !KEY; no spaces)",
    ),
]


class NodeDrainSettings(Part, frozen=True, forbid_unknown_fields=True):
    """How the node is drained, in a cluster.

    ``by``: what drains the node if ``cluster.source`` is cluster. self: nodeagent. controller: the
    machine-config-controller, at the request of nodeagent. auto: the controller if its annotations are on the Node,
    otherwise nodeagent. If ``cluster.source`` is file, nodeagent drains.

    ``kubeconfig``: the kubeconfig of the kubelet, with which nodeagent evicts pods: the API server lets a kubelet evict
    the pods of its own node only. "": /var/lib/kubelet/kubeconfig or /etc/kubernetes/kubelet.conf, if it is one;
    without one, nodeagent's own credentials, which need packaging/kubernetes/evictions.yaml.

    ``unmanaged``: whether to evict pods that no controller creates again on another node. True, as the
    machine-config-operator does. False: the drain is refused while there is such a pod.

    ``local_data``: whether to evict pods that lose the data of their emptyDir volumes. True, as the
    machine-config-operator does. False: the drain is refused while there is such a pod.

    ``lead_time``: seconds between the cordon and the first eviction, for programs that prepare for the drain. They are
    part of ``drain.timeout``; a restart of the agent does not begin them again. 0: evict at once. Only if nodeagent
    drains.

    ``first``: label selectors of pods that are evicted before all others. The others are evicted when these are gone.
    An empty list: none. Only if nodeagent drains.

    ``last``: label selectors of pods that are evicted when all others are gone, for storage that others need. An empty
    list: none. Only if nodeagent drains.
    """

    group = "drain"

    by: Literal["auto", "self", "controller"] = "auto"
    kubeconfig: OptionalPath = ""
    unmanaged: bool = True
    local_data: bool = True
    lead_time: Annotated[float, Meta(ge=0, le=86400)] = 0
    first: tuple[LabelSelector, ...] = ()
    last: tuple[LabelSelector, ...] = ()

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:
        source = settings.cluster.source
        if self.lead_time >= settings.drain.timeout:
            message = "drain.lead_time is part of drain.timeout, so it must be less"
            yield ("drain.lead_time", "drain.timeout"), message
        if source == "cluster" and self.by != "self" and (self.lead_time or self.first or self.last):
            # A machine-config-controller has an order of its own, which would silently replace this one.
            keys = ("drain.lead_time", "drain.first", "drain.last", "drain.by")
            yield keys, "drain.lead_time, drain.first and drain.last need drain.by: self"
        if source == "file" and self.by == "controller":
            message = "drain.by: controller needs cluster.source: cluster; with a file of the host, nodeagent drains"
            yield ("drain.by", "cluster.source"), message
        if both := set(self.first) & set(self.last):
            yield ("drain.first", "drain.last"), f"{min(both)} is in drain.first and in drain.last"
