"""Judge whether the boot loader of this host counts the boots of a new deployment."""

from __future__ import annotations

from typing import Final

from nodeagent.core.boot_count import BootCounting, CountedBy, phrase
from nodeagent.core.selfcheck.result import NotRead, SelfCheck, ok, skipped, unread

BOOT_CHECK: Final = "boot.count"

_REMEDY: Final = "install greenboot, or let the boot loader count in another way, if a bad kernel must be given up"


def boot_check(found: BootCounting | NotRead) -> SelfCheck:
    # A host that does not count is installed correctly, so nothing here fails.
    if isinstance(found, NotRead):
        return unread(BOOT_CHECK, found)
    text = f"the boots of a new OS are {phrase(found)}"
    return skipped(BOOT_CHECK, text, _REMEDY) if found.by is CountedBy.NOTHING else ok(BOOT_CHECK, text)
