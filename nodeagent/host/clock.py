# SPDX-License-Identifier: Apache-2.0
"""The clocks of this host."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Fulfils ``ports.Clock``."""

    def now(self) -> str:
        return (
            datetime.fromtimestamp(time.time_ns() / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )

    def monotonic(self) -> float:
        # CLOCK_BOOTTIME counts through a suspend, as deadlines of operators do; CLOCK_MONOTONIC does not.
        return time.clock_gettime(time.CLOCK_BOOTTIME)
