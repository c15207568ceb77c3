"""Decide what follows a failed update.

An update has one fallback reboot at most, or a soft one and then a full one, so there is no reboot loop. A planned soft
reboot is followed by at most one full one.
"""

from __future__ import annotations

from enum import StrEnum

from nodeagent.core.boot import RebootKind
from nodeagent.core.update.legs import Apply, Fallback
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import Record


class FailureResponse(StrEnum):
    REBOOT = "reboot"
    REVERT = "revert"
    DEGRADE = "degrade"


def after_failure(
    record: Record, *, curable: bool, planned_reboot: bool, may_reboot: bool, revert: bool
) -> FailureResponse:
    """Decide what follows the failure of an update.

    ``curable``: a reboot may help, as it does for an action that failed or was late; it does not for a file that
    another program keeps changing. ``may_reboot`` and ``revert`` are settings of the host.
    """
    otherwise = FailureResponse.REVERT if revert else FailureResponse.DEGRADE
    match record.leg, record.phase:
        case Apply(reboots=0, reboot_instead=""), Phase.ACTING | Phase.VERIFYING if (
            curable and may_reboot and not planned_reboot
        ):
            # Before these phases there is nothing yet that a reboot would start.
            return FailureResponse.REBOOT
        case Apply(kind=RebootKind.SOFT, soft_failed="") | Fallback(
            kind=RebootKind.SOFT, soft_failed=""
        ), Phase.VERIFYING if curable and may_reboot:
            # The services started again, and not the kernel: the full reboot is still to come.
            return FailureResponse.REBOOT
        case Apply() | Fallback(), phase if phase is not Phase.RELEASING:
            return otherwise
        case _:
            # A revert that fails too, or that does not exist: only an operator can know what is right.
            return FailureResponse.DEGRADE
