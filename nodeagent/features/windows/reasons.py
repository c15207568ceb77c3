# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class WindowReason(ReasonEnum):
    # fmt: off
    TIME_ZONE_UNKNOWN = "TimeZoneUnknown", Kind.INPUT, "timedatectl list-timezones shows the names; some hosts need the package tzdata", "The time zone of the settings is not on this host."
    SCHEDULED = "Scheduled", Kind.REFUSED, "wait: it begins at that time; nodeagent apply FILE begins it now, nodeagent cancel ends it", "The update was requested for a later time."
    BAD_TIME = "BadTime", Kind.INPUT, "write now, 02:00, 'sat 02:00', 2026-11-24T02:00, 'sat,sun 02:00 60', or a name of windows.open", "The requested time has no valid form."
    WINDOW_CLOSED = "WindowClosed", Kind.REFUSED, "wait for the next window (nodeagent windows lists them), or nodeagent apply FILE --at now", "No window of the settings is open, so the update waits before its first write."
    FROZEN = "Frozen", Kind.REFUSED, "wait for its end (nodeagent windows shows it), or nodeagent apply FILE --at now", "A freeze of the settings covers this day, so the update waits before its first write."
    WINDOW_SPREAD = "WindowSpread", Kind.REFUSED, "wait: it begins at the named time; nodeagent apply FILE --at now begins at once", "The window is open, and this host begins later in it than others."
    WINDOW_TOO_SHORT = "WindowTooShort", Kind.REFUSED, "wait: it begins at the named time; lengthen windows.open, or nodeagent apply FILE --at now", "The update would probably end after its window, so it waits for the start of one."
    # fmt: on
