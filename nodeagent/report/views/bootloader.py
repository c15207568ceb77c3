# SPDX-License-Identifier: Apache-2.0
"""The view of the event of the bootloader."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.plan.bootloader import phrase
from nodeagent.core.syslog import INFO
from nodeagent.report.event_view import EventView
from nodeagent.update.ports.events import BootloaderChecked

VIEWS = (
    EventView(
        event=BootloaderChecked,
        id="c4f1b5f7b7ad4d1f9c1b2a4b0c6d7e52",
        priority=INFO,
        sentence=lambda event, _: phrase(event.check),
        fold=lambda status, event: replace(status, bootloader=event.check),
    ),
)
