"""Judge which fields of a MachineConfig that concern the OS this host can serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.partial_text import OS_KEYS
from nodeagent.core.selfcheck.result import NotRead, SelfCheck, ok, skipped, unread

OS_CHECK: Final = "os.fields"


@dataclass(frozen=True, slots=True)
class OsFacts:
    """``why`` no field is served, "" if rpm-ostree serves them; ``remedy`` is the way out. ``fips`` is the mode of the
    kernel."""

    why: str = ""
    remedy: str = ""
    fips: bool = False


def os_check(found: OsFacts | NotRead) -> SelfCheck:
    """A host without an OS to update is installed correctly, so nothing fails there."""
    if isinstance(found, NotRead):
        return unread(OS_CHECK, found)
    fields = ", ".join(OS_KEYS)
    fips = f"fips is only compared with the kernel, which has it {'on' if found.fips else 'off'}"
    if found.why:
        return skipped(OS_CHECK, f"configs with {fields} are refused: {found.why}; {fips}", found.remedy)
    return ok(OS_CHECK, f"rpm-ostree serves {fields}; {fips}")
