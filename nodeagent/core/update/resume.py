"""What to do with a record found at start: one pure function, tested as a table.

The machine may have been killed, power-cut or rebooted at any point. The record says what was intended, the facts
say which boot this is; the disk itself is asked later, by the executor and by verification.

A soft reboot started every service again, and nothing below: not the kernel, and not what the boot loader chooses. It
is the boot that an update waits for only where services are all that matters.
"""

from __future__ import annotations

from enum import StrEnum

from nodeagent.core.boot import kernel_boot
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import Record

__all__ = ["MAX_REBOOT_TRIES", "Decision", "resume"]

MAX_REBOOT_TRIES = 3
"""How often a reboot that did not come is asked for again before we say that this host cannot reboot."""


class Decision(StrEnum):
    IDLE = "idle"  # nothing under way
    STAGE = "stage"  # again: the files are written, and what was staged is lost
    START_OVER = "start over"  # nothing was written: forget the update, look at the desired config again
    DRAIN = "drain"  # go on; the deadline is that of the beginning
    WRITE = "write"  # go on writing; every write is idempotent
    ACT = "act"  # same boot: do the actions that are not done
    VERIFY = "verify"  # a reboot did whatever the actions would have done
    REBOOT_AGAIN = "reboot again"  # we asked, but this is still the old boot
    REBOOT_FAILED = "reboot failed"
    REVERT = "revert"
    RELEASE = "release"
    DEGRADED = "degraded"


def resume(record: Record, boot_id: str) -> Decision:
    """``boot_id`` is the identity of this boot, see ``core.boot``."""
    rebooted = record.boot_id != boot_id
    if kernel_boot(record.boot_id) == kernel_boot(boot_id) and _of_the_kernel(record):
        rebooted = False
    match record.phase:
        case Phase.IDLE:
            return Decision.IDLE
        case Phase.STAGING if record.acted:
            return Decision.STAGE
        case Phase.DRAINING if not rebooted:
            return Decision.DRAIN
        case Phase.DRAINING if record.acted:
            return Decision.VERIFY  # a boot is what it was drained for
        case Phase.STAGING | Phase.LEASING | Phase.DRAINING:
            return Decision.START_OVER
        case Phase.WRITING:
            return Decision.WRITE
        case Phase.ACTING:
            # All files were on the disk before this boot, so every service has started with them. Not so the OS: a
            # deployment that we did not unlock is not the one that booted.
            return Decision.VERIFY if rebooted and record.os_target is None else Decision.ACT
        case Phase.VERIFYING:
            return Decision.VERIFY
        case Phase.REBOOTING if rebooted and record.reverting and not record.restored:
            return Decision.REVERT
        case Phase.REBOOTING if rebooted:
            return Decision.VERIFY
        case Phase.REBOOTING:
            return Decision.REBOOT_AGAIN if record.tries < MAX_REBOOT_TRIES else Decision.REBOOT_FAILED
        case Phase.REVERTING:
            return Decision.REVERT
        case Phase.RELEASING:
            return Decision.RELEASE
        case Phase.DEGRADED:
            return Decision.DEGRADED


def _of_the_kernel(record: Record) -> bool:
    """Whether this update needs a boot of the kernel, forward or back."""
    actions = (record.plan or {}).get("actions", ())
    return record.os_target is not None or any(action.get("type") == "Reboot" for action in actions)
