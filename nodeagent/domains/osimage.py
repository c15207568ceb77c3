"""What belongs to a deployment of the OS: it changes with a reboot only."""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.domain import Domain, RuleEntry
from nodeagent.core.plan.policy import NONE, Verdict

__all__ = ["DOMAIN"]


def extensions_image_rule(_old: MachineConfig, _new: MachineConfig) -> Verdict:
    """Each release of the OS has another one. What is installed changes with the image of the OS, the extensions or
    the kernel type, and those have verdicts of their own."""
    return Verdict((NONE,), "packages come from the repositories of the host, not from this image")


DOMAIN: Final = Domain(
    name="os-image",
    title="the OS deployment",
    fields={
        "baseOSExtensionsContainerImage": RuleEntry(
            extensions_image_rule, "None: it is not read, packages come from the repositories of the host"
        ),
    },
)
