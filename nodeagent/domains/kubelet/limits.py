# SPDX-License-Identifier: Apache-2.0
"""Limits of the host that a kubelet finds only after it has started: reservations, cgroups, settings of the kernel.

The dry run ends before the kubelet reads them (``validateNodeAllocatable`` in ``containerManager.Start``,
``enforceNodeAllocatableCgroups`` and ``setupKernelTunables`` in pkg/kubelet/cm come after ``READY=1``). Only what is
certain is a problem: the form of the values, sums that the host cannot have, and what it lacks.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.plan.layers import parse_toml
from nodeagent.core.validate.quantity import parse_quantity
from nodeagent.domains.kubelet.document import KubeletConfig
from nodeagent.domains.sysctl import DIRECTORIES, parse, read_all

MEMINFO: Final = "/proc/meminfo"
CPUS: Final = "/sys/devices/system/cpu/online"
NODES: Final = "/sys/devices/system/node/online"
RESERVED: Final = ("systemReserved", "kubeReserved")
RECLAIM: Final = "evictionMinimumReclaim"
THRESHOLDS: Final = ("evictionHard", "evictionSoft", RECLAIM)
MEMORY_SIGNAL: Final = "evictionHard.memory.available"
# Resources of the Node from which hard thresholds of these signals are kept back, too.
SIGNALS: Final = {"memory": MEMORY_SIGNAL, "ephemeral-storage": "evictionHard.nodefs.available"}
# The names that kubelets up to 1.36 know (parseResourceList in cmd/kubelet/app, pkg/kubelet/eviction/api).
KNOWN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pid")
KNOWN_SIGNALS: Final = (
    *("memory.available", "allocatableMemory.available", "pid.available"),
    *(f"{fs}.{what}" for fs in ("nodefs", "imagefs", "containerfs") for what in ("available", "inodesFree")),
)
# With this flag hard thresholds are not kept back.
IGNORES_EVICTION: Final = "--experimental-allocatable-ignore-eviction"
# The default of evictionHard.memory.available.
DEFAULT_MEMORY_THRESHOLD: Final = Decimal(100 * 1024 * 1024)
# The kubelet takes these for no threshold at all (parseThresholdStatement in pkg/kubelet/eviction).
NO_THRESHOLD: Final = ("0%", "100%")
PERCENTAGE: Final = re.compile(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})%")
# The largest number for which Linux can be built on x86-64 (CONFIG_NR_CPUS).
MAX_CPUS: Final = 8192
CGROUPS: Final = "/sys/fs/cgroup"
# Only the unified hierarchy has it.
ROOT_CONTROLLERS: Final = f"{CGROUPS}/cgroup.controllers"
SYSCTL_FILE: Final = "/etc/sysctl.conf"
SWAPS: Final = "/proc/swaps"
CONTAINERD: Final = "/etc/containerd/config.toml"
# With protectKernelDefaults a kubelet accepts no other values.
KERNEL: Final[Mapping[str, str]] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def paths_of(config: KubeletConfig) -> Collection[str]:
    """Return the files of the host that the checks of ``config`` need."""
    paths = {MEMINFO, CPUS, NODES, SWAPS, ROOT_CONTROLLERS, *(_controllers(group) for _, _, group in _enforced(config))}
    if config.keys.get("protectKernelDefaults") is True:
        paths |= {f"/proc/sys/{name}" for name in KERNEL} | {f"{path}/" for path in DIRECTORIES} | {SYSCTL_FILE}
    if "containerd" in str(config.keys.get("containerRuntimeEndpoint")):
        paths.add(CONTAINERD)
    return paths


def problems_of(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Yield key and problem. What the host does not show is no problem."""
    yield from _reservations(config)
    yield from _host_problems(config)


def doubts_of(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Yield key and warning, for what a reboot, another runtime or a newer kubelet may make right."""
    yield from _host_doubts(config)
    yield from _unknown_names(config)


def _reservations(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Without the files of the host, nothing is compared with its capacity."""
    keys = config.keys
    bad = dict(_forms(keys))
    yield from bad.items()
    if bad:
        return
    cpus = _cpu_set(_text(config.files.get(CPUS, b"")))
    memory = _total_memory(_text(config.files.get(MEMINFO, b"")))
    wanted = keys.get("reservedSystemCPUs")
    explicit = _cpu_set(str(wanted)) if wanted not in (None, "") else set()
    if explicit is None:
        yield "reservedSystemCPUs", "is not a list of CPUs"
        return
    # A list of CPUs overrides the amounts of systemReserved and kubeReserved.
    reserved = Decimal(len(explicit)) if explicit else _sum(keys, "cpu")
    if cpus:
        if explicit - cpus:
            yield "reservedSystemCPUs", f"names CPUs that this host does not have; it has {len(cpus)}"
        elif reserved > len(cpus):
            yield _largest(keys, "cpu"), f"reserves {_plain(reserved)} CPUs; this host has {len(cpus)}"
    if str(keys.get("cpuManagerPolicy")).lower() == "static" and not reserved:
        yield "cpuManagerPolicy", "static needs reserved CPUs: systemReserved.cpu, kubeReserved.cpu, reservedSystemCPUs"
    if memory:
        reserve = _sum(keys, "memory") + (_threshold(keys.get(MEMORY_SIGNAL), memory) or 0)
        if reserve > memory:
            text = f"reserves {_plain(reserve)} bytes of memory with the other reservations; this host has {memory}"
            yield _largest(keys, "memory"), text
    if str(keys.get("memoryManagerPolicy")) == "Static":
        yield from _memory_manager(config)


def _unknown_names(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Yield key and warning for resources and signals that a newer kubelet may know. Others do not start with them."""
    for tops, names, what in ((RESERVED, KNOWN_RESOURCES, "resource"), (THRESHOLDS, KNOWN_SIGNALS, "eviction signal")):
        for key in config.keys:
            top, _, name = key.partition(".")
            if top in tops and name and name not in names:
                yield key, f"is no {what} that is known: a kubelet that does not know it does not start"


def _memory_manager(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """The static policy takes exactly what the other keys reserve, distributed over the NUMA nodes."""
    keys, name = config.keys, "reservedMemory"
    given = keys.get(name) or []
    nodes = _cpu_set(_text(config.files.get(NODES, b"")))
    totals: dict[str, Decimal] = {}
    if not isinstance(given, list):
        # The form of a flag.
        return
    for entry in given:
        limits = entry.get("limits") if isinstance(entry, dict) else None
        if not isinstance(limits, dict):
            # The kubelet refuses the form in its dry run.
            return
        if nodes and entry.get("numaNode", 0) not in nodes:
            yield name, f"names the NUMA node {entry.get('numaNode')}, which this host does not have"
            return
        for resource, value in limits.items():
            totals[resource] = totals.get(resource, Decimal(0)) + (parse_quantity(str(value)) or Decimal(0))
    for resource in sorted({"memory", *totals}):
        wanted, total = kept_back(config, resource), totals.get(resource, Decimal(0))
        if wanted is not None and wanted != total:
            yield (
                name,
                f"has {_plain(total)} of {resource}; the static policy needs what is kept back, {_plain(wanted)}",
            )
        elif resource == "memory" and not total:
            yield name, "has no memory; the static policy needs some, and systemReserved or kubeReserved as much"


def kept_back(config: KubeletConfig, resource: str) -> Decimal | None:
    """Return the amount of a resource that no pod can have. None if it depends on a capacity that is not known."""
    keys = config.keys
    cpus = _cpu_set(str(keys.get("reservedSystemCPUs") or "")) if resource == "cpu" else None
    amount = Decimal(len(cpus)) if cpus else _sum(keys, resource)
    if (signal := SIGNALS.get(resource)) is None or IGNORES_EVICTION in keys:
        return amount
    if (threshold := keys.get(signal)) is None:
        # One threshold replaces the defaults of all others, unless they are merged.
        if any(key.startswith("evictionHard") for key in keys):
            return None if str(keys.get("mergeDefaultEvictionSettings")).lower() == "true" else amount
        return amount + DEFAULT_MEMORY_THRESHOLD if resource == "memory" else None
    memory = _total_memory(_text(config.files.get(MEMINFO, b""))) if resource == "memory" else 0
    number = _threshold(threshold, memory)
    return None if number is None else amount + number


def _forms(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in keys.items():
        top, _, below = key.partition(".")
        if not below or (top not in RESERVED and top not in THRESHOLDS):
            continue
        text = str(value).strip()
        percent = top in THRESHOLDS and PERCENTAGE.fullmatch(text) is not None
        number = parse_quantity(text.removesuffix("%") if percent else text)
        if number is None or not isinstance(value, str | int | float):
            yield key, "is not a quantity" + (" or a percentage" if top in THRESHOLDS else "")
        elif number < 0:
            yield key, "must not be negative"
        elif top == RECLAIM:
            if percent and not number:
                yield key, "must be more than 0%"
        elif percent and number > 100:
            yield key, "must not exceed 100%"
        elif not percent and top in THRESHOLDS and not number:
            yield key, "must be more than 0"
        elif top == "evictionSoft" and f"evictionSoftGracePeriod.{below}" not in keys and text not in NO_THRESHOLD:
            yield key, "needs a grace period in evictionSoftGracePeriod"


def _sum(keys: Mapping[str, Any], resource: str) -> Decimal:
    return sum((_amount(keys, top, resource) for top in RESERVED), Decimal(0))


def _amount(keys: Mapping[str, Any], top: str, resource: str) -> Decimal:
    value = keys.get(f"{top}.{resource}")
    return (parse_quantity(str(value)) or Decimal(0)) if value is not None else Decimal(0)


def _largest(keys: Mapping[str, Any], resource: str) -> str:
    return f"{max(RESERVED, key=lambda top: _amount(keys, top, resource))}.{resource}"


def _threshold(value: Any, capacity: int) -> Decimal | None:
    """Return the amount of a threshold. None for a percentage of an unknown capacity."""
    text = "" if value is None else str(value).strip()
    if not text or text in NO_THRESHOLD:
        return Decimal(0)
    if not text.endswith("%"):
        return parse_quantity(text)
    # As in the kubelet: a percentage has single precision, and fractions of a byte are dropped.
    return Decimal(int(capacity * _single(_single(float(text[:-1])) / 100))) if capacity else None


def _single(number: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def _total_memory(meminfo: str) -> int:
    """Return the bytes of memory, 0 if they are unknown."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemTotal" and len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            return int(words[0]) * 1024
    return 0


def _cpu_set(text: str) -> set[int] | None:
    """Return the CPUs of a list such as ``0-3,8``; None for another text."""
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = (word.strip() for word in part.partition("-"))
        # int() takes long for a long text, and no range of CPUs needs more than eight digits.
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 8:
            return None
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < MAX_CPUS:
            return None
        cpus.update(range(low, high + 1))
    return cpus


def _text(content: bytes) -> str:
    return content.decode("ascii", "replace")


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _host_problems(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    for key, reserved, group in _enforced(config):
        if not any(name.startswith(f"{reserved}.") for name in config.keys):
            yield "enforceNodeAllocatable", f"enforces {reserved}, which reserves nothing"
        # Without the unified hierarchy the cgroups have other paths, so nothing is known.
        elif ROOT_CONTROLLERS in config.files and _controllers(group) not in config.files and not _made(config, group):
            yield key, f"names a cgroup that this host does not have: {group}"
    if config.keys.get("protectKernelDefaults") is True:
        # A value that sysctl.d sets is right after a boot, and may only be changed at the moment.
        set_at_boot = {**read_all(config.files).values, **parse(config.files.get(SYSCTL_FILE, b"")).values}
        for name, wanted in KERNEL.items():
            value = config.files.get(f"/proc/sys/{name}", wanted.encode()).decode("ascii", "replace").strip()
            if value != wanted and set_at_boot.get(name) != wanted:
                text = (
                    f"needs {name.replace('/', '.')} = {wanted}; this host has {value}, and no file of sysctl.d sets it"
                )
                yield "protectKernelDefaults", text


def _host_doubts(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    # failSwapOn is true and cgroupDriver is cgroupfs unless they are set. The first line of /proc/swaps is a title.
    swaps = config.files.get(SWAPS, b"").splitlines()[1:]
    if swaps and config.keys.get("failSwapOn", True) is True:
        used = swaps[0].split()[0].decode(errors="replace")
        yield "failSwapOn", f"is true and this host has swap ({used}): the kubelet does not start with it"
    by_runtime = _systemd_cgroup(config.files.get(CONTAINERD))
    driver = config.keys.get("cgroupDriver", "cgroupfs")
    if by_runtime is not None and driver in ("cgroupfs", "systemd") and by_runtime != (driver == "systemd"):
        other = "true" if by_runtime else "false"
        yield (
            "cgroupDriver",
            f"is {driver} and SystemdCgroup of containerd is {other}: before 2.0 no pod starts with both",
        )


def _enforced(config: KubeletConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the key that names a cgroup, the reservation, and the cgroup."""
    wanted = config.keys.get("enforceNodeAllocatable")
    # The names with this ending enforce fewer resources in the same cgroup.
    names = [str(name).removesuffix("-compressible") for name in wanted] if isinstance(wanted, list) else []
    for name, reserved in (("system-reserved", "systemReserved"), ("kube-reserved", "kubeReserved")):
        group = config.keys.get(f"{reserved}Cgroup")
        # A name with dashes below another slice has another path with the driver of systemd.
        if name in names and isinstance(group, str) and group.strip("/") and "-" not in group:
            yield f"{reserved}Cgroup", reserved, f"/{group.strip('/')}"


def _made(config: KubeletConfig, group: str) -> bool:
    """Whether a unit below /etc may make the cgroup: a slice, or a service that names one."""
    name = group.rpartition("/")[2]
    units = (path for path in config.files if path.startswith(f"{UNIT_DIR}/"))
    # Slice= of any unit makes the slice too, so its name in a text is enough.
    return any(path.endswith(f"/{name}") or name.encode() in config.files[path] for path in units)


def _controllers(group: str) -> str:
    return f"{CGROUPS}{group}/cgroup.controllers"


def _systemd_cgroup(content: bytes | None) -> bool | None:
    """Return SystemdCgroup of the handler runc in a configuration of containerd 1, None without the key."""
    data = parse_toml(content)[0] if content is not None else None
    # Version 3 is that of containerd 2, which reports its driver to the kubelet: its own key is ignored then.
    table: object = data if data is not None and data.get("version") in (1, 2) else None
    for name in ("plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes", "runc", "options"):
        table = table.get(name) if isinstance(table, dict) else None
    value = table.get("SystemdCgroup", False) if isinstance(table, dict) else None
    return value if isinstance(value, bool) else None
