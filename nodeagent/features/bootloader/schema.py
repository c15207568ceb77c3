# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, UnsetType

from nodeagent.contract.keys import Keys, about
from nodeagent.features.bootloader.decide.check import BootloaderState, BootloaderStep
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust


class Bootloader(Keys):
    component: Annotated[str, about("EFI or BIOS")]
    state: Annotated[BootloaderState, about("the installed one against that of the new OS")]
    installed: Annotated[str, about("version; empty if it is not known")]
    available: Annotated[str, about("version of the new OS; empty if it is not known")]
    secure_boot: Annotated[bool | None, about("whether Secure Boot is on; null if it is not known")]
    kernel: Annotated[KernelTrust, about("whether the installed one starts the kernel of the new OS")]
    kernel_after_update: Annotated[KernelTrust, about("whether that of the new OS does")]
    revoked: Annotated[str, about("the component whose generation is revoked; empty if that is not known")]
    unfit: Annotated[str, about("why the firmware would refuse that of the new OS; empty if it would not")]
    why: Annotated[str, about("why the state is unknown; empty if it is known")]
    summary: Annotated[str, about("all of it in one line")]
    then: Annotated[BootloaderStep, about("in a plan: what the update does about it")] | UnsetType = UNSET


STATUS: Final = {
    "bootloader": Annotated[Bootloader | None, about("the bootloader for the staged OS; null if it was not checked")]
}
PLAN: Final = {
    "bootloader": Annotated[
        Bootloader, about("on a host with bootupd, if the OS of the plan is staged: its bootloader")
    ]
}
