# SPDX-License-Identifier: Apache-2.0
"""Decide how to continue from a record after a start, a failure or a cancellation: pure functions, tested as tables.

The machine may have been killed, power-cut or rebooted at any point. The record says what was intended, the facts
say which boot this is; the disk itself is read later, by the executor and by verification.

A soft reboot started every service again, and nothing below: not the kernel, and not what the boot loader chooses. It
is the boot that an update waits for only where services are all that matters: not for the OS and not for a plan with a
reboot, unless a soft one was chosen for it; and in a fallback neither for an entry that only a kernel reads
(``core.plan.kernel_start``) nor after a soft reboot that did not help.

An update has one fallback reboot at most, or a soft one and then a full one, so there is no reboot loop. A planned soft
reboot is followed by at most one full one.

A cancellation before the first write ends the update at once. Afterwards the files are restored, as long as that needs
no reboot. The executor decides the race against a reboot: ``committed`` is set with the last check before the request
to logind.
"""

from __future__ import annotations

from nodeagent.core.boot import RebootKind, kernel_boot
from nodeagent.core.plan.change import Change, ChangeKind
from nodeagent.core.plan.kernel_start import kernel_start
from nodeagent.errors import Refused
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.course import COURSE, Cancellation, Failure, Restart
from nodeagent.update.record import Record, interrupted
from nodeagent.update.states import Apply, Fallback, Phase, Revert

# Requests for a reboot without effect after which the host counts as unable to reboot.
MAX_REBOOT_TRIES = 3


def resume(record: Record, boot_id: str) -> Restart:
    """Return how a start of the agent continues. ``boot_id`` is the identity of this boot, see ``core.boot``."""
    row = COURSE[record.state]
    rebooted = record.boot_id != boot_id
    # The identity changes with a soft reboot as well, which is not the boot that such an update waits for.
    if kernel_boot(record.boot_id) == kernel_boot(boot_id) and needs_kernel_boot(record):
        rebooted = False
    if not rebooted:
        return row.restart
    match record.leg, record.phase:
        case Apply(), Phase.ACTING if record.os.target is not None:
            # All files were on the disk before this boot, so every service has started with them. Not so the OS: a
            # deployment that the agent did not unlock is not the one that booted.
            return row.restart
        case Revert(restored=False), Phase.REBOOTING:
            return Restart.REVERT
        case _:
            return row.boot


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


def after_failure(record: Record, *, curable: bool, planned_reboot: bool, may_reboot: bool, revert: bool) -> Failure:
    """Return what answers the failure of an update.

    ``curable``: a reboot may help, as it does for an action that failed or was late; it does not for a file that
    another program keeps changing. ``may_reboot`` and ``revert`` are settings of the host.
    """
    answer = COURSE[record.state].failure
    if answer is None:
        return Failure.DEGRADE
    if answer is Failure.REBOOT and curable and may_reboot and _reboot_is_left(record, planned=planned_reboot):
        return answer
    if answer in (Failure.REBOOT, Failure.REVERT):
        return Failure.REVERT if revert else Failure.DEGRADE
    return answer


def _reboot_is_left(record: Record, *, planned: bool) -> bool:
    match record.leg:
        case Apply(boots=0, reboot_instead="") if not planned:
            return True
        case Apply(kind=RebootKind.SOFT, soft_failed="") | Fallback(kind=RebootKind.SOFT, soft_failed=""):
            # The services started again, and not the kernel: the full reboot is still to come.
            return record.phase is Phase.VERIFYING
        case _:
            return False


def cancellation(record: Record, *, committed: bool) -> Cancellation:
    """Return what follows. Raise ``Refused``: ``NoUpdate``, or ``CancelTooLate`` where only a reboot leads back.

    ``committed``: the reboot is requested.
    """
    name, effect = record.to_name, COURSE[record.state].cancel
    if interrupted(record):
        return Cancellation.END
    if effect is Reason.CANCEL_TOO_LATE:
        raise Refused(f"{name} is applied and verified already", reason=effect)
    if isinstance(effect, AnyReason):
        raise Refused("no update is under way", reason=effect)
    if effect is not Cancellation.REVERT:
        return effect
    if committed:
        raise Refused(f"the reboot into {name} is requested already", reason=Reason.CANCEL_TOO_LATE)
    # The services of this boot have read the new files, and the previous ones fit another kernel or deployment.
    if record.written.boots and needs_kernel_boot(record):
        message = f"this host has rebooted into {name}, and the way back is another reboot"
        raise Refused(message, reason=Reason.CANCEL_TOO_LATE)
    return effect
