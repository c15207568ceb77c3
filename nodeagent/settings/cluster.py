# SPDX-License-Identifier: Apache-2.0
"""The settings for hosts in a cluster or a fleet: cluster, drain. Part of ``settings``.

If none of them is set, no Kubernetes code is loaded, and the lease is a local one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeagent.core.coordination.drain_order import SELECTOR

# NUL ends a path for the kernel, and a line break could forge a line of the journal.
PATH = r"^(/[^\x00-\x1f]*)?$"
OptionalPath = Annotated[str, Meta(pattern=PATH, max_length=4096)]
# A label of RFC 1123, as the API server requires it.
Namespace = Annotated[
    str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, description="the name of a namespace")
]
# No user and no query, where passwords and tokens are put: addresses are in messages and in the status.
Url = Annotated[
    str,
    Meta(pattern=r"^(https?://[^\s@?#]+)?$", max_length=2048, description='an address as in https://host/path, or ""'),
]
LabelSelector = Annotated[
    str,
    Meta(
        pattern=SELECTOR,
        max_length=1024,
        description="a label selector, as in app=db or app=db,tier!=test (=, !=, KEY and !KEY; no spaces)",
    ),
]
Unit = Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_.@-]+\.service$", max_length=255)]


class ClusterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The connection to a Kubernetes cluster, and the node lease there. Off unless one of the first two is set.

    ``kubeconfig``: kubeconfig with the address of the API server and the credentials of nodeagent; "" for none.
    Rotated files that it names are read again.

    ``service_account``: directory of a service account (``token``, ``ca.crt``), as an alternative for an agent in a
    pod, where the environment names the API server; "" for none.

    ``source``: source of the desired config. file: ``desired_config`` of this host. cluster: the MachineConfig that the
    Node's annotation ``machineconfiguration.openshift.io/desiredConfig`` names. nodeagent also reports its progress on
    the Node, so that a machine-config-controller can drive it. Use cluster only if no other daemon on the node does
    this.

    ``lease_namespace``: namespace of the node leases. medik8s-leases: the namespace of the medik8s operators.
    """

    kubeconfig: OptionalPath = ""
    service_account: OptionalPath = ""
    source: Literal["file", "cluster"] = "file"
    lease_namespace: Namespace = "medik8s-leases"

    @property
    def configured(self) -> bool:
        return bool(self.kubeconfig or self.service_account)


class DrainSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the node is drained, in a cluster.

    ``by``: what drains the node if ``cluster.source`` is cluster. self: nodeagent. controller: the
    machine-config-controller, at the request of nodeagent. auto: the controller if its annotations are on the Node,
    otherwise nodeagent. If ``cluster.source`` is file, nodeagent drains.

    ``timeout``: seconds from the cordon until the drain has failed, including restarts of the agent. 3600: a disruption
    budget that allows no eviction for an hour needs an operator.

    ``on_deadline``: what to do when ``drain.timeout`` has passed. reboot: reboot despite the remaining pods, because
    one disruption budget must not block a fleet permanently. This requires the lease, and the etcd guard must allow
    it. abort: uncordon, and retry later.

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

    by: Literal["auto", "self", "controller"] = "auto"
    timeout: Annotated[float, Meta(ge=10, le=7 * 86400)] = 3600
    on_deadline: Literal["reboot", "abort"] = "reboot"
    unmanaged: bool = True
    local_data: bool = True
    lead_time: Annotated[float, Meta(ge=0, le=86400)] = 0
    first: tuple[LabelSelector, ...] = ()
    last: tuple[LabelSelector, ...] = ()
