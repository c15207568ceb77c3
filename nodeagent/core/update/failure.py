"""What a failed update leads to. The loop breaker: one fallback reboot for an update, never a second."""

from __future__ import annotations

from enum import StrEnum

from nodeagent.core.update.phase import NEXT, Phase
from nodeagent.core.update.record import Record

__all__ = ["Answer", "after_failure"]

CURED_BY_REBOOT = frozenset({Phase.ACTING, Phase.VERIFYING})
"""Phases whose failure can be one of running services. Before them there is nothing yet that a reboot would start."""


class Answer(StrEnum):
    REBOOT = "reboot"
    REVERT = "revert"
    DEGRADE = "degrade"


def after_failure(record: Record, *, curable: bool, planned_reboot: bool, may_reboot: bool, revert: bool) -> Answer:
    """``curable``: a reboot may help, as it does for an action that failed or was late; it does not for a file that
    somebody else keeps changing. ``may_reboot`` and ``revert`` are settings of the host.
    """
    if record.reverting or Phase.REVERTING not in NEXT[record.phase]:
        return Answer.DEGRADE  # the way back failed too, or there is none: only a person can know what is right
    rebooted_already = bool(record.fallback) or record.reboots > 0 or planned_reboot
    if curable and record.phase in CURED_BY_REBOOT and may_reboot and not rebooted_already:
        return Answer.REBOOT
    return Answer.REVERT if revert else Answer.DEGRADE
