"""The budget of fallback reboots: how many a host may have in a day, whatever is applied to it.

Time is counted while the agent runs, on the steady clock of each boot, and added up over boots. So neither a wall clock
that is set nor a reboot makes room; time for which the host was off, or the agent had not started yet, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["REBOOTS", "USED_UP", "WINDOW", "Budget"]

REBOOTS = 5
"""Fallback reboots in a window. An admin who tries to find the right config on a host needs a few; a tool that renders
a new bad one every minute gets no more."""

WINDOW = 86400.0
"""Seconds."""

USED_UP = f"not rebooted: there were {REBOOTS} fallback reboots in {WINDOW / 3600:.0f} h of running time"


@dataclass(frozen=True, slots=True)
class Budget:
    """``seen`` is the time for which this host ran, in seconds, as counted in the boot ``boot_id`` when its steady
    clock showed ``at``; ``spent`` holds what it was at each fallback reboot."""

    seen: float = 0.0
    boot_id: str = ""
    at: float = 0.0
    spent: tuple[float, ...] = ()

    @property
    def left(self) -> bool:
        return len(self.spent) < REBOOTS

    def counted(self, boot_id: str, now: float, began: float) -> Budget:
        """As it is ``now``. In another boot, time counts from ``began`` on, when this process started."""
        before = self.at if boot_id == self.boot_id else began
        seen = self.seen + max(0.0, now - before)
        spent = tuple(moment for moment in self.spent if seen - moment < WINDOW)
        return Budget(seen, boot_id, now, spent)

    def spend(self) -> Budget:
        return replace(self, spent=(*self.spent, self.seen)[-REBOOTS:])
