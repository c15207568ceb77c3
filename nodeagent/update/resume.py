"""Decide how to continue from a record after a start, a failure or a cancellation: pure functions, tested as tables.

The machine may have been killed, power-cut or rebooted at any point. The record says what was intended, the facts
say which boot this is; the disk itself is read later, by the executor and by verification.

A soft reboot started every service again, and nothing below: not the kernel, and not what the boot loader chooses. It
is the boot that an update waits for only where services are all that matters: not for the OS and not for a plan with a
reboot, unless a soft one was chosen for it; and in a fallback neither for an entry that only a kernel reads
(``core.plan.reboot_kind``) nor after a soft reboot that did not help.

An update has one fallback reboot at most, or a soft one and then a full one, so there is no reboot loop. A planned soft
reboot is followed by at most one full one.

A cancellation before the first write ends the update at once. Afterwards the files are restored, as long as that needs
no reboot. The executor decides the race against a reboot: ``committed`` is set with the last check before the request
to logind.
"""

from __future__ import annotations

from enum import StrEnum

from nodeagent.core.boot import RebootKind, kernel_boot
from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.reboot_kind import kernel_start
from nodeagent.errors import Refused
from nodeagent.reasons import Reason
from nodeagent.update.legs import Abort, Apply, Fallback, Prepare, Rest, Revert, Unreleased
from nodeagent.update.phase import Phase
from nodeagent.update.record import Record, interrupted

# Requests for a reboot without effect after which the host counts as unable to reboot.
MAX_REBOOT_TRIES = 3


class Decision(StrEnum):
    # Nothing under way.
    IDLE = "idle"
    # Stage again: the files are written, and the staged deployment is lost.
    STAGE = "stage"
    # Nothing was written: drop the update, and read the desired config again.
    START_OVER = "start over"
    # Continue the drain. Its deadline does not change.
    DRAIN = "drain"
    # Continue writing. Every write is idempotent.
    WRITE = "write"
    # Same boot: run the remaining actions.
    ACT = "act"
    # A reboot replaced the actions.
    VERIFY = "verify"
    # A reboot was requested, but this is still the old boot.
    REBOOT_AGAIN = "reboot again"
    REBOOT_FAILED = "reboot failed"
    REVERT = "revert"
    RELEASE = "release"
    DEGRADED = "degraded"


def resume(record: Record, boot_id: str) -> Decision:
    """``boot_id`` is the identity of this boot, see ``core.boot``."""
    rebooted = record.boot_id != boot_id
    # The identity changes with a soft reboot as well, which is not the boot that such an update waits for.
    if kernel_boot(record.boot_id) == kernel_boot(boot_id) and needs_kernel_boot(record):
        rebooted = False
    match record.leg, record.phase:
        case Rest() | Unreleased(), Phase.IDLE | Phase.DEGRADED:
            return Decision.IDLE if record.phase is Phase.IDLE else Decision.DEGRADED
        case Prepare(), Phase.DRAINING if not rebooted:
            return Decision.DRAIN
        case Prepare(), _:
            return Decision.START_OVER
        case Apply(), Phase.STAGING:
            return Decision.STAGE
        case Apply(), Phase.WRITING:
            return Decision.WRITE
        case Apply(), Phase.ACTING:
            # All files were on the disk before this boot, so every service has started with them. Not so the OS: a
            # deployment that we did not unlock is not the one that booted.
            return Decision.VERIFY if rebooted and record.os.target is None else Decision.ACT
        case Fallback(), Phase.DRAINING:
            # A boot is what the node was drained for.
            return Decision.VERIFY if rebooted else Decision.DRAIN
        case Revert(restored=False), Phase.REBOOTING if rebooted:
            return Decision.REVERT
        case _, Phase.REBOOTING if not rebooted:
            return Decision.REBOOT_AGAIN if record.reboot_requests < MAX_REBOOT_TRIES else Decision.REBOOT_FAILED
        case _, Phase.REBOOTING | Phase.VERIFYING:
            return Decision.VERIFY
        case _, Phase.REVERTING:
            return Decision.REVERT
        case _:
            return Decision.RELEASE


def needs_kernel_boot(record: Record) -> bool:
    """Return whether this update needs a boot of the kernel, forward or back."""
    plan = record.plan or {}
    if isinstance(record.leg, Apply) and record.leg.kind is RebootKind.SOFT:
        return False
    if record.os.target is not None or any(action.get("type") == "Reboot" for action in plan.get("actions", ())):
        return True
    if not isinstance(record.leg, Fallback):
        return False
    changes = (Change(str(c.get("domain")), str(c.get("key")), ChangeKind.MODIFIED) for c in plan.get("changes", ()))
    return bool(record.leg.soft_failed) or any(map(kernel_start, changes))


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
        case Apply(boots=0, reboot_instead=""), Phase.ACTING | Phase.VERIFYING if (
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
    if record.written.boots and needs_kernel_boot(record):
        why = f"this host has rebooted into {name}, and the way back is another reboot"
        raise Refused(why, reason=Reason.CANCEL_TOO_LATE)
    return Cancellation.REVERT
