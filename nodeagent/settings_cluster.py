"""The knobs of what a host shares with others: a cluster, slots, windows, etcd. Part of ``settings``.

Without any of them set nothing of Kubernetes is loaded, and the lease is a local one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

__all__ = ["ClusterSettings", "DrainSettings", "EtcdSettings", "SlotSettings", "WindowSettings"]

PATH = r"^(/[^\x00-\x1f]*)?$"
DAY = "(mon|tue|wed|thu|fri|sat|sun)"
OptionalPath = Annotated[str, Meta(pattern=PATH, max_length=4096)]
Namespace = Annotated[
    str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63, description="the name of a namespace")
]
Pool = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?)?$",
        description='a pool\'s name (lower case letters, digits, -; 40 at most) or ""',
    ),
]
Group = Annotated[
    str, Meta(pattern=r"^[a-zA-Z0-9.-]+$", max_length=128, description="a group: letters, digits, . and -")
]
Url = Annotated[
    str,
    Meta(pattern=r"^(https?://[^\s@?#]+)?$", max_length=2048, description='an address as in https://host/path, or ""'),
]
WindowText = Annotated[
    str,
    Meta(
        pattern=rf"^({DAY}(,{DAY})* )?([01]\d|2[0-3]):[0-5]\d [1-9]\d{{0,3}}$",
        description='"DAYS HH:MM MINUTES", as in "sat,sun 02:00 120"; without days for every day',
    ),
]
ZoneName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_+/-]+$", max_length=128, description="a time zone as in Europe/Prague")
]
Nodes = Annotated[int, Meta(ge=1, le=10000, description="a whole number of nodes")]
NodesOrNone = Annotated[int, Meta(ge=0, le=10000, description="a whole number of nodes")]


class ClusterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The connection to a Kubernetes cluster, and the node lease there. Off unless one of the first two is set.

    ``kubeconfig``: the file with the address of the API server and our credentials there; "" for none. Rotated files
    that it names are read again.

    ``service_account``: the directory of a service account (``token``, ``ca.crt``) instead, for an agent in a pod,
    whose environment names the API server; "" for none.

    ``source``: where the desired config comes from. file: ``desired_config`` of this host. cluster: the MachineConfig
    that the Node's annotation ``machineconfiguration.openshift.io/desiredConfig`` names; how far this host is with it
    is told there as well, so that a machine-config-controller can drive it. Only where no other daemon does that.

    ``lease_namespace``: where the node leases are. medik8s-leases: its operators look there.

    ``lease_duration``: seconds that the node lease lasts without being renewed. 600: how long an API server may be
    away in the middle of an update, and an agent that died keeps others from acting on its node. It is renewed four
    times in that.

    ``boot_cover``: seconds that the lease is written for before a reboot: until the node is ready again, or others
    fence a node that is only slow to come up. 1800: self-tests of large servers take a quarter of an hour.
    """

    kubeconfig: OptionalPath = ""
    service_account: OptionalPath = ""
    source: Literal["file", "cluster"] = "file"
    lease_namespace: Namespace = "medik8s-leases"
    lease_duration: Annotated[float, Meta(ge=120, le=3600)] = 600
    boot_cover: Annotated[float, Meta(ge=60, le=7200)] = 1800

    @property
    def configured(self) -> bool:
        return bool(self.kubeconfig or self.service_account)


class DrainSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How the node is emptied, in a cluster.

    ``by``: who empties it where ``cluster.source`` is cluster. self: nodeagent. controller: the
    machine-config-controller, which is asked to. auto: the controller where it has left its annotations on the Node.
    Everywhere else it is nodeagent.

    ``timeout``: seconds from the cordon until the drain has failed, also over restarts of the agent. 3600: a budget
    that allows nothing for an hour needs a person.

    ``on_deadline``: what then. reboot: go on with a reboot in spite of the pods that are left, because one budget must
    not hold back a fleet for ever; only with the lease, and not while the guard of etcd says no. abort: uncordon, and
    try again later.

    ``unmanaged``: whether pods that no controller makes again elsewhere are evicted. True, as the
    machine-config-operator does; false refuses the drain while there is one.

    ``local_data``: whether pods are evicted whose emptyDir volumes are lost with them. True, as above.
    """

    by: Literal["auto", "self", "controller"] = "auto"
    timeout: Annotated[float, Meta(ge=10, le=7 * 86400)] = 3600
    on_deadline: Literal["reboot", "abort"] = "reboot"
    unmanaged: bool = True
    local_data: bool = True


class SlotSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes go at once. By leases of the cluster (``pool``), or by a FleetLock server where there is none.

    ``pool``: whose slots this node takes; "" for none. All nodes of a pool must have the same numbers here.

    ``namespace``: where the leases of the slots are. nodeagent: what packaging/kubernetes makes.

    ``max_unavailable``: how many nodes of the pool may be updated at once. 1, as a MachineConfigPool has it.

    ``max_staging``: how many may pull an image at once; 0 for any number. 0: many registries stand a fleet.

    ``fleetlock``: the address of a FleetLock server, as of Zincati's; "" for none.

    ``fleetlock_group``: our group there. default: the protocol's own.

    ``fleetlock_ca``: a PEM file with the server's authority; "" for the host's authorities.
    """

    pool: Pool = ""
    namespace: Namespace = "nodeagent"
    max_unavailable: Nodes = 1
    max_staging: NodesOrNone = 0
    fleetlock: Url = ""
    fleetlock_group: Group = "default"
    fleetlock_ca: OptionalPath = ""


class WindowSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When an update may begin. Staging is not bound by it, and a window that closes interrupts nothing.

    ``open``: weekly windows, each as "DAYS HH:MM MINUTES" ("sat,sun 02:00 120"; without days: every day). None: always.

    ``zone``: the time zone of those times; localtime is the host's own. UTC: the same on every host.
    """

    open: tuple[WindowText, ...] = ()
    zone: ZoneName = "UTC"


class EtcdSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``single_member``: whether a host with the only member of its etcd cluster may be drained and rebooted. False:
    its API server is away meanwhile, which somebody has to have wanted."""

    single_member: bool = False
