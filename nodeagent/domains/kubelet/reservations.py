"""Reservations that a kubelet would find only after it has started: sizes that do not parse, or exceed the host.

The dry run ends before the kubelet reads them (``validateNodeAllocatable`` in ``containerManager.Start`` comes after
``READY=1``). Only what is certain is a problem: the form of the values, and sums that the host cannot have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from nodeagent.core.validate.quantity import parse_quantity
from nodeagent.domains.kubelet.document import KubeletConfig

__all__ = ["CPUS", "MEMINFO", "problems_of"]

MEMINFO: Final = "/proc/meminfo"
CPUS: Final = "/sys/devices/system/cpu/online"
RESERVED: Final = ("systemReserved", "kubeReserved")
THRESHOLDS: Final = ("evictionHard", "evictionSoft", "evictionMinimumReclaim")
MEMORY_SIGNAL: Final = "evictionHard.memory.available"
MAX_CPUS: Final = 8192


def problems_of(config: KubeletConfig) -> Iterator[tuple[str, str]]:
    """Yield key and problem. Without the files of the host, nothing is compared with its capacity."""
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
    reserved = Decimal(len(explicit)) if explicit else _sum(keys, "cpu")
    if cpus:
        if explicit - cpus:
            yield "reservedSystemCPUs", f"names CPUs that this host does not have; it has {len(cpus)}"
        elif reserved > len(cpus):
            yield _largest(keys, "cpu"), f"reserves {_plain(reserved)} CPUs; this host has {len(cpus)}"
    if str(keys.get("cpuManagerPolicy")).lower() == "static" and not reserved:
        yield "cpuManagerPolicy", "static needs reserved CPUs: systemReserved.cpu, kubeReserved.cpu, reservedSystemCPUs"
    if memory:
        kept = _sum(keys, "memory") + _threshold(keys.get(MEMORY_SIGNAL), memory)
        if kept > memory:
            text = f"reserves {_plain(kept)} bytes of memory with the other reservations; this host has {memory}"
            yield _largest(keys, "memory"), text


def _forms(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in keys.items():
        top, _, below = key.partition(".")
        if not below or (top not in RESERVED and top not in THRESHOLDS):
            continue
        text = str(value).strip()
        number = parse_quantity(text.removesuffix("%")) if isinstance(value, str | int | float) else None
        percent = text.endswith("%") and top in THRESHOLDS
        if number is None or (text.endswith("%") and not percent):
            yield key, "is not a quantity" + (" or a percentage" if top in THRESHOLDS else "")
        elif number < 0:
            yield key, "must not be negative"
        elif percent and number > 100:
            yield key, "must not exceed 100%"


def _sum(keys: Mapping[str, Any], resource: str) -> Decimal:
    return sum((_amount(keys, top, resource) for top in RESERVED), Decimal(0))


def _amount(keys: Mapping[str, Any], top: str, resource: str) -> Decimal:
    value = keys.get(f"{top}.{resource}")
    return (parse_quantity(str(value)) or Decimal(0)) if value is not None else Decimal(0)


def _largest(keys: Mapping[str, Any], resource: str) -> str:
    return f"{max(RESERVED, key=lambda top: _amount(keys, top, resource))}.{resource}"


def _threshold(value: Any, memory: int) -> Decimal:
    if value is None:
        return Decimal(0)
    text = str(value).strip()
    number = parse_quantity(text.removesuffix("%")) or Decimal(0)
    return number * memory / 100 if text.endswith("%") else number


def _total_memory(meminfo: str) -> int:
    """Return the bytes of memory, 0 if they are unknown."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemTotal" and len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            return int(words[0]) * 1024
    return 0


def _cpu_set(text: str) -> set[int] | None:
    """Return the CPUs of a list such as ``0-3,8``, None if it is not one."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 8:
            return None
        low, high = int(first), int(last) if dash else int(first)
        if not low <= high < MAX_CPUS:
            return None
        found.update(range(low, high + 1))
    return found


def _text(content: bytes) -> str:
    return content.decode("ascii", "replace")


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
