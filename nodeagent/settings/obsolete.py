"""Keys of nodeagent 0.1 that are no longer settings.

For one release they are accepted and ignored with a warning: a file that was valid must not keep the agent from
starting. ``IGNORED`` names the constant that applies instead, for that warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FROM_ETCD: Final = "it is taken from the options of etcd"
_NO_BENEFIT: Final = "no benefit was measured"

IGNORED: Final[Mapping[str, str]] = {
    "actions.daemon_reload_timeout": "it is always 90 s",
    "cluster.boot_cover": "it is always 1800 s",
    "cluster.lease_duration": "it is always 600 s",
    "fence.baseline": "it is always 10 s",
    "fence.ceiling": "it is always 256 MB/s",
    "fence.cpu_weight": _NO_BENEFIT,
    "fence.deadline": "it is always 1800 s; fence.enabled: never turns the limits off",
    "fence.floor": "it is always 4 MB/s, or 8 before kernel 6.12",
    "fence.may_switch_scheduler": "it is changed on XFS only, and restored after the update is staged",
    "fence.memory_high": _NO_BENEFIT,
    "fence.metrics_ca": _FROM_ETCD,
    "fence.metrics_certificate": _FROM_ETCD,
    "fence.metrics_key": _FROM_ETCD,
    "fence.metrics_url": _FROM_ETCD,
    "fence.per_object_fsync": "rpm-ostreed always syncs each object while the limits apply",
    "fence.probe_directory": "it is always the data directory of etcd",
    "fence.unit": "it is always rpm-ostreed.service",
    "lease.retry": "it is always 15 s",
    "os.busy_wait": "it is always 1800 s",
    "os.no_progress": "it is always 3600 s",
    "reboot.grace": "it is always 600 s",
    "slots.namespace": "it is always nodeagent",
}
# A group of which all keys are obsolete has none in the schema, and its keys would be read as one unknown key.
OBSOLETE_GROUPS: Final = frozenset(key.partition(".")[0] for key in IGNORED)


def warning(key: str) -> str:
    return f"{key} is no longer a setting and is ignored: {IGNORED[key]}"
