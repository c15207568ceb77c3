# SPDX-License-Identifier: Apache-2.0
"""The place of the fence in the course of an update: around each staging."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from nodeagent.features.fence.decide.view import FenceEvent
from nodeagent.features.fence.events import FenceChanged
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.system import StagingUnit
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard


class Fence(Protocol):
    """The limits on disk I/O while a deployment is staged."""

    def around(self, emit: Callable[[FenceEvent], None], unit: StagingUnit) -> AbstractAsyncContextManager[None]:
        """Apply the limits to ``unit`` inside the context and remove them afterwards.

        Raises no errors of its own: without a fence the block runs too.
        """
        ...


class FenceGuard(Guard):
    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def around_staging(self, run: Run, unit: StagingUnit) -> AbstractAsyncContextManager[None]:
        def report(event: FenceEvent) -> None:
            # The latency of etcd is measured by the fence, and kept for the history entry of the update.
            if event.etcd_disk:
                run.update.change_os(etcd_disk=event.etcd_disk)
            if event.bad:
                run.narrate(Warned, event.message, event.reason)
            else:
                run.narrate(FenceChanged, event.view, event.message, event.reason, event.routine)

        return self._fence.around(report, unit)
