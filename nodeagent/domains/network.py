"""Network configuration of nmstate, which its service applies at boot."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import NONE

DOMAIN: Final = Domain(
    name="network",
    title="nmstate network configuration",
    files={"/etc/nmstate/openshift": (NONE,)},
)
