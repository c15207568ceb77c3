# SPDX-License-Identifier: Apache-2.0
"""What is done to a unit of each type when its file leaves, when it is masked, and when its entry requests a restart.

The table is data: the plan, the actions, a page of the documentation and the tests read it. A unit without a file runs
on in systemd, so most types are stopped. A slice, a scope or a target has no process of its own and needs no file, and
systemd would stop every unit in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class UnitStep(StrEnum):
    """One step on a unit, as the documentation has it."""

    STOP = "stop it"
    RESTART = "restart it"
    START = "start it again"
    # The units that it starts on demand. systemd does not start a socket while its service runs.
    STOP_TRIGGERED = "stop the units that it starts, if they run"
    START_TRIGGERED = "start those again"
    DAEMON_RELOAD = "daemon-reload"
    # Nothing but what the entry of the policy requests for other units.
    NONE = "nothing: it stays as it is"
    REPORT = "report it in the history"


@dataclass(frozen=True, slots=True)
class UnitType:
    """The steps of a type, by the change. ``along``: another unit of the plan has taken it down.

    ``order`` sorts the stops, the restarts and the starts of a plan: what starts other units on demand comes first, so
    that it does not start them in between. ``only_at_boot`` is why a new, enabled or disabled unit of the type
    waits for a boot, "" if the recommended policy starts or stops it.
    """

    leaves: tuple[UnitStep, ...] = (UnitStep.STOP,)
    masked: tuple[UnitStep, ...] = (UnitStep.STOP,)
    restart: tuple[UnitStep, ...] = (UnitStep.RESTART,)
    along: tuple[UnitStep, ...] = (UnitStep.START,)
    order: int = 1
    only_at_boot: str = ""


_USED: Final = "programs keep what they have open below it"
_GROUP: Final = UnitType(
    leaves=(UnitStep.NONE,),
    masked=(UnitStep.NONE,),
    restart=(UnitStep.DAEMON_RELOAD,),
    along=(UnitStep.REPORT,),
    only_at_boot="it groups units that run",
)
_HELD: Final = (UnitStep.STOP_TRIGGERED, UnitStep.RESTART, UnitStep.START_TRIGGERED)

TYPES: Final[Mapping[str, UnitType]] = MappingProxyType(
    {
        "service": UnitType(),
        "socket": UnitType(restart=_HELD, order=0),
        "timer": UnitType(order=0),
        "path": UnitType(order=0),
        "mount": UnitType(only_at_boot=_USED),
        # It cannot start on a path that is mounted.
        "automount": UnitType(restart=_HELD, order=0, only_at_boot=_USED),
        "swap": UnitType(only_at_boot="the memory may lack the room for its pages"),
        # A restart of a target is one of the units that are a part of it.
        "target": UnitType(
            (UnitStep.NONE,),
            (UnitStep.NONE,),
            along=(UnitStep.REPORT,),
            only_at_boot="its place in the boot has passed",
        ),
        "slice": _GROUP,
        "scope": _GROUP,
        "device": _GROUP,
    }
)


def type_of(unit: str) -> UnitType:
    return TYPES[unit.rpartition(".")[2]]


def order_of(unit: str) -> tuple[int, str]:
    """Return the key by which units without another order are sorted."""
    unit_type = TYPES.get(unit.rpartition(".")[2])
    return (unit_type.order if unit_type is not None else 1, unit)


def restarts_with_triggered(unit: str) -> bool:
    """Return whether the units that ``unit`` starts on demand must not run while it is restarted."""
    return UnitStep.STOP_TRIGGERED in type_of(unit).restart
