"""The knobs of the I/O fence: what an update of the OS may do to a disk that etcd is on. Part of ``settings``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from nodeagent.settings_cluster import OptionalPath, Url

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
    """How staging an update of the OS is kept from hurting etcd on the same disk.

    ``enabled``: auto: on hosts with a member of etcd whose data is on the disk of the OS. always: on all hosts, with a
    probe of the disk in etcd's place. never: what is staged writes as fast as it can. auto: elsewhere nobody is known
    who would suffer, and it takes time.

    ``unit``: whose writes are limited. rpm-ostreed.service: it does all of the work itself.

    ``baseline``: seconds for which the idle disk is measured before anything is staged; 0 for not at all. 10: a hundred
    fsyncs, so that a p99 can be told. What is known from the last quarter of an hour is not measured again.

    ``floor``: MB/s that may always be written. 4: far less, and others wait for the journal behind work that is half
    done. Before kernel 6.12 it is never below 8: there a journal can be held up by throttled data. Where
    writes are counted, it is 200 of them a second at least (150 on ext4), which are 6.5 (4.9) in the smallest pieces.

    ``ceiling``: MB/s above which there is no cap. 256: what is faster needs no help.

    ``deadline``: seconds after which nothing is limited any more, so that an update always ends. 1800: half an hour of
    staging is much for anybody.

    ``may_switch_scheduler``: whether the disk's scheduler may be switched between none and mq-deadline meanwhile. With
    it priorities count, which on slow disks with XFS helps a little where the file system writes data of its own, most
    of all after a staging; on ext4 it does not. False: it concerns everybody on that disk, and stops it for a moment.

    ``per_object_fsync``: whether rpm-ostreed syncs each object that it writes (core.per-object-fsync of the
    repository), instead of a whole layer at once, for which everybody on the disk waits. For that it is started again
    before an update, with a copy of the repository's configuration mounted over it; the file itself stays as it is.
    True: on a slow disk it took more off etcd than any cap did.

    ``memory_high``: MiB of memory above which the unit is made to wait for its own writes (MemoryHigh=); 0: as it is.
    0: it was not seen to help; less than 256 slows rpm-ostreed itself down.

    ``cpu_weight``: CPUWeight= of the unit, 1 to 10000; 0: as it is. 0: an image is unpacked by one or two processors.

    ``probe_directory``: where our own fsyncs are made, on the file system of etcd's data; "" for the directory of that.

    ``metrics_url``: the page of etcd's metrics; "" for what its options say (--listen-metrics-urls, or the client
    URL).

    ``metrics_ca``: PEM file of the authority that signed the certificate of that page; "" for etcd's own.

    ``metrics_certificate``: PEM file of the client certificate for it; "" for etcd's own certificate.

    ``metrics_key``: PEM file with the key of that; "" for etcd's own.
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
