# SPDX-License-Identifier: Apache-2.0
"""Judge which fields of a MachineConfig that concern the OS this host can serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.machineconfig import OS_KEYS
from nodeagent.core.self_check import NotRead, OsService, SelfCheck, ok, skipped, unread

OS_CHECK: Final = "os.fields"


@dataclass(frozen=True, slots=True)
class OsFacts:
    """``service`` serves the fields, or has the reason. ``fips`` is the mode of the kernel."""

    service: OsService
    fips: bool = False


def os_check(facts: OsFacts | NotRead) -> SelfCheck:
    """A host without an OS to update is installed correctly, so nothing fails there."""
    if isinstance(facts, NotRead):
        return unread(OS_CHECK, facts)
    fields = ", ".join(OS_KEYS)
    fips = f"fips is only compared with the kernel, which has it {'on' if facts.fips else 'off'}"
    if facts.service.why:
        return skipped(
            OS_CHECK, f"configs with {fields} are refused: {facts.service.why}; {fips}", facts.service.remedy
        )
    refused = facts.service.refused
    served = ", ".join(key for key in OS_KEYS if key not in refused)
    others = f"configs with {', '.join(refused)} are refused; " if refused else ""
    program = facts.service.program
    if facts.service.others:
        program += f", or {' or '.join(facts.service.others)} where that has staged an OS before (root can see it),"
    return ok(OS_CHECK, f"{program} serves {served}; {others}{fips}")
