# SPDX-License-Identifier: Apache-2.0
"""The event of the bootloader and its view, and the bootloader in the status and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.core.syslog import INFO
from nodeagent.features.bootloader.decide.check import BootloaderCheck, check_to_dict, phrase
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust
from nodeagent.report.event_view import EventView
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.part_view import PartView
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event

BOOTLOADER = Family(
    "nodeagent_bootloader_info",
    "The installed bootloader against that of the OS: same, older, newer or unknown. Absent without bootupd.",
    ("component", "state", "installed", "available"),
)
BOOTLOADER_REFUSES = Family(
    "nodeagent_bootloader_refuses_kernel",
    "1 if the installed bootloader refuses the kernel of the next OS with Secure Boot. Absent without bootupd.",
)


@dataclass(frozen=True, slots=True)
class BootloaderChecked(Event):
    """The installed bootloader was compared with that of the deployment that boots next, or of the booted one."""

    check: BootloaderCheck


def _samples(status: Status) -> Iterator[Sample]:
    if (check := status.part(BootloaderCheck)) is not None:
        yield BOOTLOADER.at(1, check.component, check.state, check.installed, check.available)
        yield BOOTLOADER_REFUSES.at(check.kernel is KernelTrust.REFUSED)


# It is emitted when the comparison has another result than the last one, so each entry is news.
VIEWS: Final = (
    EventView(
        event=BootloaderChecked,
        id="c4f1b5f7b7ad4d1f9c1b2a4b0c6d7e52",
        priority=INFO,
        sentence=lambda event, _: phrase(event.check),
        fold=lambda status, event: status.with_part(event.check),
    ),
)

PARTS: Final = (
    PartView(
        part=BootloaderCheck,
        key="bootloader",
        to_json=lambda check, _: check_to_dict(check),
        families=(BOOTLOADER, BOOTLOADER_REFUSES),
        samples=_samples,
    ),
)
