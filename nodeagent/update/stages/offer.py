# SPDX-License-Identifier: Apache-2.0
"""What of a config is applied that is blocked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodeagent.errors import Cause
    from nodeagent.update.next.preflight import Desired, Preflight
    from nodeagent.update.record import Record
    from nodeagent.update.run import Update


class Offer:
    """What of a blocked config is applied: nothing. A feature may offer another config (``Guard.offer``).

    Its update applies what disrupts nothing. Its end is ``Record.partial``: what the host has beside the current
    config, and what waits. ``record.in_effect`` is that config then.
    """

    @property
    def is_on(self) -> bool:
        """Whether the settings let a part of a blocked config be applied."""
        return False

    async def find(
        self,
        load: Callable[[str], Awaitable[Desired]],  # noqa: ARG002 - for features
        preflight: Preflight,  # noqa: ARG002
        record: Record,  # noqa: ARG002
        desired: Desired,  # noqa: ARG002
        cause: Cause,  # noqa: ARG002
        *,
        failed: bool = False,  # noqa: ARG002
    ) -> tuple[Desired, Update] | None:
        """Return the update to a part of ``desired``, and its target; None if there is none.

        ``load`` returns a stored config. ``failed``: the config failed on this host, so that only what may repair the
        host is applied.
        """
        return None
