"""The registry on the host that serves the images of the internal release."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import DAEMON_RELOAD, restart

UNIT: Final = "iri-registry.service"

DOMAIN: Final = Domain(
    name="iri-registry",
    title="the registry of the internal release image",
    files={
        "/etc/iri-registry": (restart(UNIT),),
        "/usr/local/bin/load-registry-image.sh": (restart(UNIT),),
    },
    units={UNIT: (DAEMON_RELOAD, restart(UNIT))},
    joined=(UNIT,),
)
