# SPDX-License-Identifier: Apache-2.0
"""Faults and kills of the host in memory.

A test lists the faults that it injects: ``world.faults.append(Fault("stage", error))``. A fuse kills the daemon before
or after the n-th effect.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

# A Python of `make test` and `make versions` takes one effect of three: all of them on each would take minutes. The two
# sides of an effect are neighbours, so an even number would take the same side always.
SHARES = 1 if os.environ.get("NODEAGENT_EVERY_KILL") else 3


class Killed(BaseException):
    """The daemon is killed with SIGKILL. No handler catches it, because it is not an ``Exception``."""


@dataclass
class Fault:
    """One way in which a call, or a step of the host, goes wrong.

    ``at`` is a point that a fake passes: each ``fault`` or ``meet`` in this package names one. ``error`` is raised
    there; without it the point has an effect of its own. ``times`` is the number of hits that are left, None for no
    limit. ``when`` limits the fault to a state of the host.
    """

    at: str
    error: BaseException | None = None
    times: int | None = 1
    when: Callable[[], bool] = lambda: True


@dataclass
class Faults:
    """The part of a ``World`` that fails."""

    faults: list[Fault] = field(default_factory=list)
    # The effect at which the daemon dies; -1 is never.
    fuse: int = -1
    calls: int = 0

    def fault(self, at: str) -> Fault | None:
        """Return the next fault at this point, and count it as used."""
        found = next((one for one in self.faults if one.at == at and one.when()), None)
        if found is not None and found.times is not None:
            found.times -= 1
            if found.times == 0:
                self.faults.remove(found)
        return found

    def meet(self, at: str) -> None:
        """Raise the error of the next fault at this point."""
        found = self.fault(at)
        if found is not None and found.error is not None:
            raise found.error

    def repair(self, at: str = "") -> None:
        """Remove the faults at this point, or all of them."""
        self.faults = [one for one in self.faults if at and one.at != at]

    def tick(self) -> None:
        """Count an effect. Each effect counts before and after, so that the fuse can blow on both sides of it."""
        self.calls += 1
        if self.calls == self.fuse:
            raise Killed


def kill_points(total: int, case: int = 0) -> range:
    """Return the effects, of 1 to ``total``, at which a test kills on this Python. The next case has other ones."""
    return range(1 + (sys.version_info.minor + case) % SHARES, total + 1, SHARES)
