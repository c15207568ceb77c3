"""Decide what a cancellation of an update does: one pure function, tested as a table.

Before the first write the update ends at once. Afterwards the files are restored, as long as that needs no reboot. The
executor decides the race against a reboot: ``committed`` is set with the last check before the request to logind.
"""

from __future__ import annotations

from enum import StrEnum

from nodeagent.core.update.legs import Abort, Apply, Fallback, Prepare, Rest, Revert
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import Record, interrupted
from nodeagent.core.update.resume import needs_kernel_boot
from nodeagent.errors import Refused
from nodeagent.reasons import Reason


class Cancellation(StrEnum):
    # Nothing was written: the update ends, and gives back what it holds.
    END = "end"
    # The previous files are restored, without a reboot.
    REVERT = "revert"
    # The update is reverted already.
    REVERTING = "reverting"
    # There is no update: the staging of an OS for a plan ends.
    STAGING = "staging"


def cancellation(record: Record, *, committed: bool) -> Cancellation:
    """Return what follows. Raise ``Refused``: ``NoUpdate``, or ``CancelTooLate`` where only a reboot leads back.

    ``committed``: the reboot is requested.
    """
    name = record.to_name
    match record.leg, record.phase:
        case Prepare() | Abort(), _:
            return Cancellation.END
        case Rest(), _ if interrupted(record):
            return Cancellation.END
        case Revert(), phase if phase is not Phase.RELEASING:
            return Cancellation.REVERTING
        case Apply() | Fallback(), phase if phase is not Phase.RELEASING:
            pass
        case Apply() | Fallback(), _:
            raise Refused(f"{name} is applied and verified already", reason=Reason.CANCEL_TOO_LATE)
        case _:
            raise Refused("no update is under way", reason=Reason.NO_UPDATE)
    if committed:
        raise Refused(f"the reboot into {name} is requested already", reason=Reason.CANCEL_TOO_LATE)
    # The services of this boot have read the new files, and the previous ones fit another kernel or deployment.
    if record.written.reboots and needs_kernel_boot(record):
        why = f"this host has rebooted into {name}, and the way back is another reboot"
        raise Refused(why, reason=Reason.CANCEL_TOO_LATE)
    return Cancellation.REVERT
