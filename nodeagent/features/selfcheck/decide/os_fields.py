# SPDX-License-Identifier: Apache-2.0
"""Judge which fields of a MachineConfig that concern the OS this host can serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.partial_text import OS_KEYS
from nodeagent.core.self_check import NotRead, SelfCheck, ok, skipped, unread

OS_CHECK: Final = "os.fields"


@dataclass(frozen=True, slots=True)
class OsFacts:
    """``why`` no field is served, "" if rpm-ostree serves them; ``remedy`` is the way out. ``fips`` is the mode of the
    kernel."""

    why: str = ""
    remedy: str = ""
    fips: bool = False


def os_check(facts: OsFacts | NotRead) -> SelfCheck:
    """A host without an OS to update is installed correctly, so nothing fails there."""
    if isinstance(facts, NotRead):
        return unread(OS_CHECK, facts)
    fields = ", ".join(OS_KEYS)
    fips = f"fips is only compared with the kernel, which has it {'on' if facts.fips else 'off'}"
    if facts.why:
        return skipped(OS_CHECK, f"configs with {fields} are refused: {facts.why}; {fips}", facts.remedy)
    return ok(OS_CHECK, f"rpm-ostree serves {fields}; {fips}")
