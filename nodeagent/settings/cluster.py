# SPDX-License-Identifier: Apache-2.0
"""The settings for hosts in a cluster or a fleet: cluster, drain. Part of ``settings``.

If none of them is set, no Kubernetes code is loaded, and the lease is a local one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

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
    """What limits a drain of the node.

    ``timeout``: seconds from the cordon until the drain has failed, including restarts of the agent. 3600: a disruption
    budget that allows no eviction for an hour needs an operator.

    ``on_deadline``: what to do when ``drain.timeout`` has passed. reboot: reboot despite the remaining pods, because
    one disruption budget must not block a fleet permanently. This requires the lease, and the etcd guard must allow
    it. abort: uncordon, and retry later.
    """

    timeout: Annotated[float, Meta(ge=10, le=7 * 86400)] = 3600
    on_deadline: Literal["reboot", "abort"] = "reboot"
