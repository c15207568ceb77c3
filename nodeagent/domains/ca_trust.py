"""The trusted certificate authorities of the host."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import NONE, restart
from nodeagent.core.validate import pem

ANCHORS: Final = "/etc/pki/ca-trust/source/anchors"
# The authority of the clients of the kubelet, on OpenShift.
KUBELET_CLIENTS: Final = "/etc/kubernetes/kubelet-ca.crt"
UPDATE_TRUST: Final = restart("coreos-update-ca-trust.service")

DOMAIN: Final = Domain(
    name="ca-trust",
    title="trusted certificate authorities",
    files={
        # The order matters: the runtime reads the store that the first service builds.
        f"{ANCHORS}/openshift-config-user-ca-bundle.crt": (UPDATE_TRUST, restart("crio.service")),
        f"{ANCHORS}/iri-root-ca.crt": (UPDATE_TRUST,),
        # The kubelet watches its clientCAFile.
        KUBELET_CLIENTS: (NONE,),
    },
    contents={f"{ANCHORS}/": pem.check, KUBELET_CLIENTS: pem.check},
    fix=True,
)
