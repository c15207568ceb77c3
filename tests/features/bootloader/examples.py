# SPDX-License-Identifier: Apache-2.0
"""What the bootloader adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.bootloader.decide.check import BootloaderCheck, BootloaderState
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust
from nodeagent.features.bootloader.events import BootloaderChecked

CHECK: Final = BootloaderCheck("EFI", BootloaderState.OLDER, "shim-15.8-3", "shim-16.1-3", kernel=KernelTrust.REFUSED)
EVENTS: Final = (BootloaderChecked(CHECK),)
