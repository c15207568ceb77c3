"""The settings of the I/O fence, which limits the disk I/O of an OS update for etcd. Part of ``settings``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeagent.settings.cluster import OptionalPath, Url

__all__ = ["FenceSettings"]

UnitName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9:_.\\@-]+\.(service|slice)$", max_length=255, description="the name of a service or slice"
    ),
]
Rate = Annotated[int, Meta(ge=1, le=100000, description="a whole number of MB/s")]
Weight = Annotated[int, Meta(ge=0, le=10000, description="a whole number of shares")]


class FenceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How etcd is protected from the disk I/O while an update of the OS is staged on the same disk.

    ``enabled``: when writes are limited. auto: on hosts with a member of etcd whose data is on the disk of the OS.
    always: on all hosts; without etcd, a probe measures the disk. never: a staging writes without limits. auto is the
    default because other hosts have no known workload that suffers, and limits slow the update.

    ``unit``: the unit whose writes are limited. rpm-ostreed.service: it does all of the work.

    ``baseline``: seconds for which the idle disk is measured before a staging; 0 for no measurement. 10: this gives a
    hundred fsyncs, enough for a p99. A measurement of the last quarter of an hour is used again.

    ``floor``: lowest cap in MB/s. 4: with much less, other writers wait for the journal behind half-done work. Before
    kernel 6.12 the cap is at least 8, because throttled data can block a journal there. Where the number of writes is
    limited, the limit is at least 200 per second (150 on ext4), which is 6.5 MB/s (4.9) in the smallest pieces.

    ``ceiling``: highest cap in MB/s; above it there is no cap. 256: a faster disk needs no cap.

    ``deadline``: seconds after which the limits are removed, so that an update always ends. 1800: a staging should not
    need more than half an hour.

    ``may_switch_scheduler``: whether the disk's scheduler may be switched between none and mq-deadline during a
    staging, so that I/O priorities take effect. On slow disks with XFS this helps a little with the writes of the file
    system itself, mostly after a staging; on ext4 it does not help. False: the switch affects all users of that disk,
    and stops its I/O for a moment.

    ``per_object_fsync``: whether rpm-ostreed syncs each object that it writes (core.per-object-fsync of the
    repository). Otherwise it syncs a whole layer at once, and all users of the disk wait for that. For this setting
    rpm-ostreed is restarted before an update, with a copy of the repository's configuration mounted over the original;
    the original file stays unchanged. True: on a slow disk this relieved etcd more than any cap.

    ``memory_high``: MemoryHigh= of the unit in MiB. Above it the unit waits for its own writes. 0: unchanged. 0 is the
    default because no benefit was measured; less than 256 slows down rpm-ostreed itself.

    ``cpu_weight``: CPUWeight= of the unit, 1 to 10000; 0: unchanged. 0 is the default because one or two processors
    unpack an image.

    ``probe_directory``: directory for nodeagent's own fsyncs, on the file system of etcd's data; "" for the directory
    of etcd's data.

    ``metrics_url``: URL of etcd's metrics; "" to take it from etcd's options (--listen-metrics-urls, or the client
    URL).

    ``metrics_ca``: PEM file with the certificate authority for that URL; "" for that of etcd.

    ``metrics_certificate``: PEM file with the client certificate for that URL; "" for that of etcd.

    ``metrics_key``: PEM file with the key of the client certificate; "" for that of etcd.
    """

    enabled: Literal["auto", "always", "never"] = "auto"
    unit: UnitName = "rpm-ostreed.service"
    baseline: Annotated[float, Meta(ge=0, le=300)] = 10
    floor: Rate = 4
    ceiling: Rate = 256
    deadline: Annotated[float, Meta(ge=60, le=86400)] = 1800
    may_switch_scheduler: bool = False
    per_object_fsync: bool = True
    memory_high: Annotated[int, Meta(ge=0, le=1048576)] = 0
    cpu_weight: Weight = 0
    probe_directory: OptionalPath = ""
    metrics_url: Url = ""
    metrics_ca: OptionalPath = ""
    metrics_certificate: OptionalPath = ""
    metrics_key: OptionalPath = ""
