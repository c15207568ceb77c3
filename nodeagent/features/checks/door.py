# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.features.checks.settings import CheckSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.checks.guard import CheckGuard
    from nodeagent.features.checks.programs import HostAdminChecks

    checks = HostAdminChecks(base.settings.of(CheckSettings).timeout, clock=base.clock)
    return Feature(use=lambda settings: checks.use(settings.of(CheckSettings).timeout), guard=CheckGuard(checks))


DOOR: Final = Door(
    title="Checks of the admin",
    page="usage/checks.md",
    settings=(CheckSettings,),
    reasons=CheckReason,
    open=_open,
)
