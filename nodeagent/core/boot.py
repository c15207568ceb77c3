# SPDX-License-Identifier: Apache-2.0
"""Which boot this is. A soft reboot starts the userspace again under the same kernel, whose boot id stays.

The identity is one text, so that whatever is kept by boot can hold it: the kernel's boot id alone as long as there was
no soft reboot, as in every store of before, and with the number of soft reboots behind a plus sign after one.
"""

from __future__ import annotations

from enum import StrEnum


class RebootKind(StrEnum):
    FULL = "full"
    SOFT = "soft"


def identity(boot_id: str, soft_reboots: int) -> str:
    """``boot_id`` is the kernel's."""
    # A boot id is a UUID, which has no plus sign.
    return f"{boot_id}+{soft_reboots}" if soft_reboots else boot_id


def kernel_boot(identity: str) -> str:
    """The kernel's boot id."""
    return identity.partition("+")[0]


def soft_reboots(identity: str) -> int:
    """How often the userspace was started again in that boot of the kernel."""
    count = identity.partition("+")[2]
    return int(count) if count.isdecimal() else 0
