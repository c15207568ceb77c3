# SPDX-License-Identifier: Apache-2.0
"""The choice between a full reboot and a soft one, which starts the services again and no kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.reboot_kind import ChosenKind
from nodeagent.errors import NoSoftReboot
from nodeagent.kinds import AnyReason

if TYPE_CHECKING:
    from nodeagent.core.plan.change import Plan
    from nodeagent.update.run import Ports, Run, Update


class RebootChoice:
    """The choice of the base: each reboot is a full one. A feature may offer another (``Guard.reboots``).

    Whatever is chosen, an update has one soft reboot at most, and a full one follows where that does not help.
    """

    def allows_soft(self, *, planned: bool) -> bool:  # noqa: ARG002 - for features
        """Return whether the settings allow a soft reboot: a planned one, or a fallback. They may change on the way."""
        return False

    async def for_fallback(self, ports: Ports, plan: Plan) -> ChosenKind:  # noqa: ARG002
        """Return the kind of a fallback reboot on this host. It raises no error: a doubt leads to a full one."""
        return ChosenKind(RebootKind.FULL)

    async def for_planned(self, ports: Ports, update: Update, staged: str) -> ChosenKind:  # noqa: ARG002
        """Return the kind of the planned reboot. ``staged`` is the id of the deployment, "" before it exists.

        Raises ``ServiceUnavailable``; any other error is an obstacle.
        """
        return ChosenKind(RebootKind.FULL)

    async def check(self, run: Run) -> None:
        """Check again right before a soft reboot is requested.

        Raises ``NoSoftReboot``, ``ServiceUnavailable``, and ``Refused`` (``StagedLost``).
        """

    def reason(self, error: NoSoftReboot) -> AnyReason:
        """Return the reason of an obstacle, which an adapter of the base may have found."""
        return error.reason
