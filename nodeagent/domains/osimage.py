"""The fields of an OS deployment, which change with a reboot only."""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.domain import Domain, RuleEntry
from nodeagent.core.plan.policy import NONE, Verdict

__all__ = ["DOMAIN"]


def extensions_image_rule(_old: MachineConfig, _new: MachineConfig) -> Verdict:
    """Request no action: each release of the OS changes this image.

    Installed packages change with the image of the OS, the extensions or the kernel type, which have their own entries.
    """
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
