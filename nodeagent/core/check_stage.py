# SPDX-License-Identifier: Apache-2.0
"""The moments of an update at which checks of the admin run."""

from __future__ import annotations

from enum import StrEnum


class CheckStage(StrEnum):
    """When a check runs. The values are the names of its directory."""

    BEFORE_DRAIN = "before-drain"
    BEFORE_REBOOT = "before-reboot"
    AFTER_BOOT = "after-boot"
    AFTER_APPLY = "after-apply"
