"""The trusted certificate authorities of the host."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import restart
from nodeagent.core.validate import pem

__all__ = ["DOMAIN"]

ANCHORS: Final = "/etc/pki/ca-trust/source/anchors"
UPDATE_TRUST: Final = restart("coreos-update-ca-trust.service")

DOMAIN: Final = Domain(
    name="ca-trust",
    title="trusted certificate authorities",
    files={
        # The order matters: the runtime reads the store that the first service builds.
        f"{ANCHORS}/openshift-config-user-ca-bundle.crt": (UPDATE_TRUST, restart("crio.service")),
        f"{ANCHORS}/iri-root-ca.crt": (UPDATE_TRUST,),
    },
    contents={f"{ANCHORS}/": pem.check},
    fix=True,
)
