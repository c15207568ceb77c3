# SPDX-License-Identifier: Apache-2.0
"""The settings of the agent: names, types, bounds and defaults.

The configuration of the node is the MachineConfig; settings control how it is applied. ``load`` reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct

from nodeagent.settings.cluster import (
    ClusterSettings,
    DrainSettings,
    OptionalPath,
)
from nodeagent.settings.part import Part, parts

P = TypeVar("P", bound=Part)


# A relative path would depend on the working directory of the daemon and of each command.
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00-\x1f]*$", max_length=4096)]
# RFC 1123: the name becomes part of the name of a Lease object.
NodeName = Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]


class Actions(Struct, frozen=True, forbid_unknown_fields=True):
    """Time limits for the actions on units after the files are written. All in seconds.

    ``timeout``: longest time for one reload or restart. After that the action has failed, and the fallback is a reboot.
    120: longer than systemd's own 90 s for a start, so that systemd reports its timeout first.

    ``settle``: how long a restarted unit must stay up before it counts as good. 10: a service that cannot read its new
    config fails in the first seconds; a longer time only slows down each restart.
    """

    # One action may take as long as the whole phase Acting, see ``update.course``.
    timeout: Annotated[float, Meta(ge=1, le=3600)] = 120
    # Some programs report READY=1 and exit a moment later: a kubelet does so whose reservations exceed the capacity of
    # the host. So the end of the job proves nothing.
    settle: Annotated[float, Meta(ge=0, le=300)] = 10


class RebootSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how this host is rebooted.

    ``allow``: whether nodeagent may reboot this host. False: every plan with a reboot is refused, and a failed action
    leads to ``Degraded`` or to a revert without a reboot. True is the default because the author of a config that needs
    a reboot wants that reboot.

    ``inhibitor_wait``: seconds to wait for ``block`` inhibitors of other programs. 3600: a package transaction or a
    backup ends within an hour.

    ``inhibitor_override``: what to do when ``reboot.inhibitor_wait`` has passed. True: reboot anyway, because a
    forgotten inhibitor must not block the security updates of a fleet permanently. False: ``Degraded``.

    ``warn_users``: seconds between the message to logged-in users and the reboot; skipped if no user is logged in. 60:
    time to save a file.
    """

    allow: bool = True
    # A week at most: a larger number was meant in another unit.
    inhibitor_wait: Annotated[float, Meta(ge=0, le=7 * 86400)] = 3600
    inhibitor_override: bool = True
    warn_users: Annotated[float, Meta(ge=0, le=3600)] = 60


class Verify(Struct, frozen=True, forbid_unknown_fields=True):
    """``timeout``: seconds that units may take to become healthy before the new config counts as bad. 300: a kubelet
    needs two to three minutes after a boot."""

    # At most the deadline of the phase Verifying, see ``update.course``.
    timeout: Annotated[float, Meta(ge=1, le=900)] = 300


class OsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``free_space``: MiB that must be free in /sysroot before a staging. 2048: about the size of the new layers of an
    RHCOS image that shares most of its layers; libostree reserves another 3 % of the disk."""

    free_space: Annotated[int, Meta(ge=0, le=1024 * 1024)] = 2048


class MetricsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """``file``: file for the metrics, which the textfile collector of node_exporter reads if it has the directory of
    the file; "" for no metrics. The default is in memory: each event costs one write to it."""

    file: OptionalPath = "/run/nodeagent/metrics.prom"


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """``level``: the lowest priority of messages in the journal. info: about ten lines for each update."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, checked. The defaults here and those of the shipped 10-defaults.yaml are the same.

    ``node_name``: name of this node in the cluster and as a lease holder. "": the host name, which kubelet uses too.

    ``desired_config``: the MachineConfig to apply if it does not come from a cluster, or a directory of MachineConfigs
    that are merged. Watched; a file may be missing.

    ``policy``: a ``MachineConfiguration`` whose node disruption policy replaces built-in entries; "" for none. The file
    at the default path may be missing; a file at any other path must exist. Drop-ins beside it, for the default path
    /etc/nodeagent/policy.d/*.yaml, are merged over it.

    ``recommended_policy``: whether the entries of /usr/lib/nodeagent/policy-recommended.yaml apply as well: fewer
    reboots for changes of chronyd, sshd, journald and others. Entries of ``policy`` with the same path replace them.
    False is the default because the built-in policy is that of the machine-config-operator, as in a cluster.

    ``state_dir``: directory of the store. It must be on a disk that survives reboots; otherwise an update is not
    resumed after a crash.

    ``on_failure``: what to do if the new config is still bad after the one fallback reboot. revert: the host returns to
    the previous config and keeps serving. degraded: the host stays as it is until an operator acts.

    ``on_drift``: what to do about managed files and units that another program changed. They are always reported when
    it happens. report: an update starts anyway, overwrites those that it changes itself, and leaves the others as they
    are. refuse: no update starts, because the host may depend on these changes. repair: an update overwrites all of
    them, and those that need no reload, restart or reboot are put back at once. Changes below directories that users
    other than root can write to never stop an update.

    ``strict_units``: whether a config is rejected that enables a unit, or has a drop-in for one, that exists neither on
    the host nor in the config. False: that is a warning, and the entry has no effect until the unit exists. False is
    the default because operators render the same entries for nodes with different units.
    """

    node_name: NodeName = ""
    desired_config: AbsolutePath = "/etc/nodeagent/machineconfig.yaml"
    policy: OptionalPath = "/etc/nodeagent/policy.yaml"
    recommended_policy: bool = False
    # All deployments of an image-based OS share /var, so the store outlives an update and its rollback.
    state_dir: AbsolutePath = "/var/lib/nodeagent"
    on_failure: Literal["revert", "degraded"] = "revert"
    on_drift: Literal["report", "refuse", "repair"] = "report"
    strict_units: bool = False
    # A frozen struct can be shared by all instances as their default.
    actions: Actions = Actions()
    reboot: RebootSettings = RebootSettings()
    verify: Verify = Verify()
    os: OsSettings = OsSettings()
    metrics: MetricsSettings = MetricsSettings()
    log: Log = Log()
    cluster: ClusterSettings = ClusterSettings()
    drain: DrainSettings = DrainSettings()
    # Those of the installed features. ``of`` reads one of them.
    parts: tuple[Part, ...] = ()

    def of(self, kind: type[P]) -> P:
        """Return the settings of a feature."""
        return next((part for part in self.parts if isinstance(part, kind)), None) or kind()


def keys() -> Mapping[str, Any]:
    """Return the type of each setting, by its dotted key: those of the base, then those of each feature."""
    types: dict[str, Any] = {}
    for name, kind in get_type_hints(Settings, include_extras=True).items():
        if isinstance(kind, type) and issubclass(kind, Struct):
            types |= {f"{name}.{key}": leaf for key, leaf in get_type_hints(kind, include_extras=True).items()}
        elif name != "parts":
            types[name] = kind
    for part in parts():
        types |= part_keys(part)
    return types


@cache
def part_keys(part: type[Part]) -> Mapping[str, Any]:
    """Return the type of each setting of a feature, by its dotted key."""
    types = get_type_hints(part, include_extras=True)
    return {f"{part.group}.{name}".lstrip("."): types[name] for name in part.__struct_fields__}


def groups() -> Collection[str]:
    return {key.split(".")[0] for key in keys() if "." in key}


def flatten(settings: Settings) -> dict[str, Any]:
    """Return the value of each setting, by its dotted key, in the order of ``keys``."""
    tree = msgspec.to_builtins(settings)
    values: dict[str, Any] = {}
    for key in keys():
        group, _, name = key.rpartition(".")
        within = tree.get(group, {}) if group else tree
        if name in within:
            values[key] = within[name]
    for kind in parts():
        part = settings.of(kind)
        values |= dict(zip(part_keys(kind), msgspec.structs.astuple(part), strict=True))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
