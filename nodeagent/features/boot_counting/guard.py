# SPDX-License-Identifier: Apache-2.0
"""The place of boot counting in the course of an update.

Counting begins right before the reboot into a new OS, and ends when that is verified, or before the boot order changes.
A count belongs to a boot order: GRUB takes the second entry when the tries are used up, whichever it is by then. The
boot loader must reach a deployment that works after a power cut at any step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from nodeagent.errors import AgentError
from nodeagent.features.boot_counting.decide import TRIES, BootCount, BootCounting, CountedBy
from nodeagent.features.boot_counting.greenboot import greenboot_rolled_back, watch_greenboot
from nodeagent.update.ports.events import PhaseEntered, Warned
from nodeagent.update.run import Progress, Run, Update, narrate
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments


class BootCounter(Protocol):
    """The boot loader as it counts the boots of a new deployment, and takes the previous one when they are used up."""

    async def counting(self) -> BootCounting:
        """Return whether the boots of this host are counted, and why not."""
        ...

    async def read(self) -> BootCount:
        """Return what is counted; nothing on a host that cannot, or whose boot loader counts without nodeagent."""
        ...

    async def begin(self, deployment: str, tries: int) -> None:
        """Count the next boots: after ``tries`` of them, the second entry boots.

        Raises ``Terminal`` (``BootCountFailed``) if it cannot be written.
        """
        ...

    async def end(self) -> None:
        """Count no more. Raises as ``begin``."""
        ...

    # systemd-boot keeps the number in the name of the entry's file, so no environment block has it (Automatic Boot
    # Assessment).
    async def tries_left(self, deployment: str) -> int | None:
        """Return how often systemd-boot still tries an entry; None if it is not counted."""
        ...


class BootCountingGuard(Guard):
    """``counter`` counts the boots of a new deployment, so that a kernel that does not start is given up."""

    def __init__(self, counter: BootCounter) -> None:
        self._counter = counter

    def use(self, counter: BootCounter) -> None:
        self._counter = counter

    async def os_plan(self, update: Update) -> Mapping[str, Any]:  # noqa: ARG002
        return {"boot_count": msgspec.to_builtins(await self._counter.counting())}

    async def before_new_os(self, run: Run) -> None:
        """Let the boot loader count the boots of the new OS. A host that cannot do so reboots all the same."""
        try:
            counting = await self._counter.counting()
            if counting.by is CountedBy.NOTHING:
                message = f"the boots of {run.record.os.staged} are not counted: {counting.why}"
                # Not in the trail, where it would be a wait.
                narrate(run.ports, run.record, PhaseEntered, message)
            elif run.record.os.staged:
                await self._counter.begin(run.record.os.staged, TRIES)
        except AgentError as error:
            run.narrate(Warned, f"{error.message}; a boot that fails leads to no other one", error.reason)

    async def before_discard(self) -> None:
        count = await self._counter.read()
        if count.deployment and count.goes_back:
            # The running deployment is the second entry, because the tries are used up, and the next boot would take
            # the entry after it. With one try left, a power cut before the removal leads through the first entry back
            # here, and one after it into the running deployment.
            await self._counter.begin(count.deployment, 1)

    async def end_new_os(self) -> None:
        if await self._counts():
            await self._counter.end()

    async def why_other_boot(self, run: Run, order: Sequence[str], staged: str, booted: str) -> str:
        count = await self._counter.read()
        # A count without a deployment is that of greenboot, which counts the boots of whatever boots first.
        if count.went_back and count.deployment in ("", staged):
            return "GRUB counted its boots down"
        if await self._counter.tries_left(staged) == 0:
            return "systemd-boot used up its tries"
        return await greenboot_rolled_back(run, order, staged, booted)

    async def verify_boot(self, run: Run, progress: Progress) -> None:
        await watch_greenboot(run, progress)

    async def at_rest(self, os: HostDeployments) -> str:
        # The running deployment boots next anyway, so a count could only lead to another one.
        if not await self._counts() or not (await os.list())[0].booted:
            return ""
        await self._counter.end()
        return "the boots of an earlier update are no longer counted"

    async def _counts(self) -> bool:
        # greenboot counts with the same variables of GRUB. A count without a deployment of nodeagent is its own.
        return bool((await self._counter.read()).deployment)
