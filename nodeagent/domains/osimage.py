"""What belongs to a deployment of the OS: it changes with a reboot only."""

from __future__ import annotations

from typing import Final

from nodeagent.core.domain import Domain, RuleEntry
from nodeagent.core.machineconfig import MachineConfig
from nodeagent.core.policy import NONE, UNLISTED, Verdict

__all__ = ["DOMAIN"]


def extensions_image_rule(old: MachineConfig, new: MachineConfig) -> Verdict:
    """The image is a place to install packages from. Who has nothing installed from it does not notice a new one."""
    for config in (old, new):
        if config.extensions or config.kernel_type != "default":
            return Verdict(UNLISTED, "packages from this image are part of the deployment")
    return Verdict((NONE,), "nothing is installed from this image")


DOMAIN: Final = Domain(
    name="os-image",
    title="the OS deployment",
    fields={
        "baseOSExtensionsContainerImage": RuleEntry(
            extensions_image_rule,
            "None while there are neither extensions nor another kernel; otherwise Drain and Reboot",
        ),
    },
)
