# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from functools import partial
from typing import Final

from nodeagent.door import Base, Door, Feature
from nodeagent.features.soft_reboot.reasons import SoftRebootReason
from nodeagent.features.soft_reboot.settings import SoftRebootSettings


def _open(base: Base) -> Feature:
    from nodeagent.features.soft_reboot.choice import SoftRebootGuard, SoftReboots
    from nodeagent.features.soft_reboot.systemd import check_soft_reboot

    # Whether libostree can do it is asked of the back end of the deployments.
    reboots = SoftReboots(partial(check_soft_reboot, base.bus), base.settings.of(SoftRebootSettings))
    return Feature(
        use=lambda settings: reboots.use(settings.of(SoftRebootSettings)),
        guard=SoftRebootGuard(reboots),
    )


DOOR: Final = Door(
    title="Soft reboots",
    page="explanation/soft-reboots.md",
    settings=(SoftRebootSettings,),
    reasons=SoftRebootReason,
    open=_open,
)
