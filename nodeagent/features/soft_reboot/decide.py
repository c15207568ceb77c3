# SPDX-License-Identifier: Apache-2.0
"""Decide whether the changes of an update allow a soft reboot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.core.boot import RebootKind
from nodeagent.core.plan.change import ActionType, Change, PlannedChange, PolicySource
from nodeagent.core.plan.kernel_start import kernel_start
from nodeagent.core.plan.reboot_kind import ChosenKind
from nodeagent.features.soft_reboot.reasons import SoftRebootReason

# Domains that another deployment brings: its trees decide.
_DEPLOYED: Final = frozenset({"osImageURL", "extensions"})


def fallback_kind(changes: Iterable[Change], *, soft: bool) -> ChosenKind:
    """Return the kind of a fallback reboot of an update with these changes; ``soft`` as the setting has it.

    Whether the host is able to make a soft reboot is checked later (``systemd.check_soft_reboot``).
    """
    if not soft:
        return ChosenKind(RebootKind.FULL, "reboot.soft is never")
    return _kind_for({change.id: cause for change in changes if (cause := kernel_start(change))})


def planned_kind(changes: Iterable[PlannedChange], *, soft: bool, deploys: bool) -> ChosenKind:
    """Return the kind of the planned reboot of an update, as far as its plan decides it.

    ``soft`` as the setting has it. ``deploys``: the update makes a new deployment, which is checked later
    (``Deployments.check_soft_reboot``).
    """
    if not soft:
        return ChosenKind(RebootKind.FULL, "reboot.soft is not auto")
    if not deploys:
        return ChosenKind(RebootKind.FULL, "only an update of the OS is entered by a soft reboot")
    return _kind_for({planned.change.id: cause for planned in changes if (cause := _needs_kernel(planned))})


def _needs_kernel(planned: PlannedChange) -> str:
    if planned.change.domain in _DEPLOYED:
        return ""
    if cause := kernel_start(planned.change):
        return cause
    # The built-in default for an unknown file is a reboot, which starts all that may read it. An entry of the admin
    # may have another cause, which is not known here.
    reboots = any(action.type is ActionType.REBOOT for action in planned.actions)
    return "the policy of the admin requires a reboot" if reboots and planned.policy is PolicySource.USER else ""


def _kind_for(causes: Mapping[str, str]) -> ChosenKind:
    """``causes`` are the changes that need the start of a kernel, each with the cause."""
    if not causes:
        return ChosenKind(RebootKind.SOFT)
    first, more = min(causes), len(causes) - 1
    others = f" and {more} more" if more else ""
    words = f"only the start of a kernel applies {first}{others} ({causes[first]})"
    return ChosenKind(RebootKind.FULL, words, SoftRebootReason.KERNEL_START_NEEDED, tuple(sorted(causes)))
