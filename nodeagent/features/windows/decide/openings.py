# SPDX-License-Identifier: Apache-2.0
"""When updates may begin: the windows, without the freezes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nodeagent.features.windows.decide.freeze import Frozen
from nodeagent.features.windows.decide.schedule import Opening, Schedule


@dataclass(frozen=True, slots=True)
class Openings:
    """``windows`` None: always open. ``freezes`` are sorted. Arguments must have an offset; results are in UTC."""

    windows: Schedule | None
    freezes: Sequence[Frozen] = ()

    def frozen(self, at: datetime) -> Frozen | None:
        """Return the freeze that covers ``at``, of several the one that ends last; None without one."""
        covering = [freeze for freeze in self.freezes if freeze.begins <= at < freeze.ends]
        return max(covering, key=lambda freeze: freeze.ends, default=None)

    def thaws(self, at: datetime) -> datetime:
        """Return the end of the freeze that covers ``at``, and of those that adjoin it; ``at`` without one."""
        # The end of a freeze belongs to the next one, if that adjoins it.
        while (freeze := self.frozen(at)) is not None:
            at = freeze.ends
        return at

    def after(self, at: datetime) -> Iterator[Opening]:
        """Yield the openings that end after ``at``, in their order; they may have no end."""
        at = at.astimezone(UTC)
        while True:
            at = self.thaws(at)
            opening = self.windows.opening(at) if self.windows is not None else Opening()
            if opening is None:
                return
            if opening.begins is not None and at < opening.begins:
                at = opening.begins
                # A freeze may cover the begin, and all of it.
                if self.frozen(at) is not None:
                    continue
            # A freeze within a window divides it: the part around ``at`` is an opening of its own.
            begins = [time for time in (opening.begins, *(freeze.ends for freeze in self.freezes)) if time is not None]
            ends = [time for time in (opening.ends, *(freeze.begins for freeze in self.freezes)) if time is not None]
            whole = Opening(
                max((time for time in begins if time <= at), default=None),
                min((time for time in ends if time > at), default=None),
            )
            yield whole
            if whole.ends is None:
                return
            at = whole.ends
