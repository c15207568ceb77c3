"""The boots of a new deployment that the boot loader counts, so that a kernel that does not start is given up.

Counting begins right before the reboot into the new deployment, and ends when the update is verified, or before the
boot order changes. A count belongs to a boot order: GRUB takes the second entry when the tries are used up, whichever
it is by then. The boot loader must reach a deployment that works after a power cut at any step.
"""

from __future__ import annotations

from nodeagent.core.boot_count import TRIES, BootCounting
from nodeagent.core.update.ports.system import BootCounter


class CountedBoots:
    """``counter`` None: a host whose boot loader is not known. Nothing is counted there."""

    def __init__(self, counter: BootCounter | None) -> None:
        self._counter = counter

    async def counting(self) -> BootCounting:
        """Return whether the boots of a new deployment are counted, and why not."""
        if self._counter is None:
            return BootCounting(why="the boot loader is not known")
        return await self._counter.counting()

    async def begin(self, deployment: str) -> None:
        """Count the boots of ``deployment`` from the next one on. Raises ``Terminal`` (``BootCountFailed``)."""
        if self._counter is not None:
            await self._counter.begin(deployment, TRIES)

    async def end(self) -> None:
        """Count no more, if nodeagent began it. Raises ``Terminal`` (``BootCountFailed``)."""
        # greenboot counts with the same variables of GRUB. A count without a deployment of nodeagent is its own.
        if self._counter is not None and await self.began():
            await self._counter.end()

    async def before_discard(self) -> None:
        """Prepare the removal of the first entry while the second one runs, because the tries are used up.

        The next boot would take the entry after the running one. With one try left, a power cut before the removal
        leads through the first entry back here, and one after it into the running deployment.
        """
        if self._counter is None:
            return
        count = await self._counter.read()
        if count.deployment and count.goes_back:
            await self._counter.begin(count.deployment, 1)

    async def began(self) -> bool:
        """Return whether nodeagent began to count, and did not end it."""
        return self._counter is not None and bool((await self._counter.read()).deployment)

    async def gave_up(self, deployment: str) -> str:
        """Return why the boot loader gave up ``deployment``, "" if it did not."""
        if self._counter is None:
            return ""
        count = await self._counter.read()
        # A count without a deployment is that of greenboot, which counts the boots of whatever boots first.
        if count.went_back and count.deployment in ("", deployment):
            return "GRUB counted its boots down"
        if await self._counter.tries_left(deployment) == 0:
            return "systemd-boot used up its tries"
        return ""
