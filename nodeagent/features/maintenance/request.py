# SPDX-License-Identifier: Apache-2.0
"""The request of a call on the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nodeagent.errors import InvalidInput
from nodeagent.features.maintenance.decide import MaintenanceRequest
from nodeagent.reasons import Reason

_OPTIONS: Final[Mapping[str, type]] = {"requester": str, "seconds": int, "drain": bool, "power_off": bool, "wait": bool}


def request_of(reason: str, options: Mapping[str, Any]) -> MaintenanceRequest:
    """Return the request of a call. Raises ``InvalidInput`` (``BadOption``)."""
    # A client that requests a step before the power-off must not get a success from a daemon that does not know it.
    for name, value in options.items():
        # isinstance would accept a bool for seconds, because a bool is an int.
        if type(value) is not _OPTIONS.get(name):
            raise InvalidInput(f"the option {name} is unknown, or of the wrong type", reason=Reason.BAD_OPTION)
    return MaintenanceRequest(reason, **options)


def further_actions(values: Sequence[Any]) -> Sequence[str]:
    """Return the actions of polkit that a call needs beside "maintenance". Raises as ``request_of``."""
    # Two actions, because an admin may let operators hold the lease without the right to power the host off.
    return ("power-off",) if request_of(*values).power_off else ()
