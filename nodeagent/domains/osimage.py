"""The fields of an OS deployment, which change with a reboot only."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.change import Change
from nodeagent.core.plan.domain import ByContent, Domain
from nodeagent.core.plan.policy import NONE, Verdict
from nodeagent.core.plan.sides import Sides


class OsImageDomain(Domain):
    """The image of the extensions changes with each release of the OS.

    It is read when packages are layered: with another image of the OS, other extensions or another kernel type, which
    have their own entries.
    """

    def actions(self, _change: Change, _sides: Sides) -> Verdict:
        return Verdict((NONE,), "its packages are used by the next change of the OS, the extensions or the kernel type")


DOMAIN: Final = OsImageDomain(
    name="os-image",
    title="the OS deployment",
    fields={
        "baseOSExtensionsContainerImage": ByContent(
            "None: it is read with the next change of the OS, the extensions or the kernel type"
        ),
    },
)
