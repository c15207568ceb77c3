"""Whether a CertificateSigningRequest may be approved: it is that of an agent, for its own node, and nothing more."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.coordination.certificate_request import requested_node
from nodeagent.core.coordination.client_certificate import GROUP, SIGNER, USAGES, request_name, user_of
from nodeagent.errors import Refused
from nodeagent.reasons import Reason

# The group of the bootstrap tokens in packaging/kubernetes/bootstrap.yaml.
BOOTSTRAP_GROUP: Final = "system:bootstrappers:nodeagent"


@dataclass(frozen=True, slots=True)
class Applicant:
    """``renewal``: the request came with the certificate of the same node, so it gives no new rights."""

    node: str
    renewal: bool


def is_pending(request: Mapping[str, Any]) -> bool:
    """Return whether the object is a request of an agent by its name and signer, without a decision."""
    spec, status = _map(request.get("spec")), _map(request.get("status"))
    ours = _name(request).startswith("nodeagent-") and spec.get("signerName") == SIGNER
    return ours and not status.get("conditions") and not status.get("certificate")


def applicant_of(request: Mapping[str, Any]) -> Applicant:
    """Check the object. Raises ``Refused`` (``CertificateUnsound``) with what is wrong."""
    name, spec = _name(request), _map(request.get("spec"))
    try:
        try:
            pem = base64.b64decode(str(spec.get("request")), validate=True)
        except ValueError:
            raise ValueError("it has no request") from None
        node = requested_node(pem)
        if name != request_name(node, pem):
            raise ValueError(f"its name is not the one of this request of {node}")
        usages = spec.get("usages")
        if spec.get("signerName") != SIGNER or not isinstance(usages, list) or sorted(usages) != sorted(USAGES):
            raise ValueError(f"it is not for the signer {SIGNER} with the usages {', '.join(USAGES)}")
        # An agent leaves the life of its certificate to the cluster.
        if spec.get("expirationSeconds") is not None:
            raise ValueError("it sets the life of the certificate")
        return Applicant(node, _renews(node, spec))
    except ValueError as error:
        raise Refused(f"the request {name} cannot be approved: {error}", reason=Reason.CERTIFICATE_UNSOUND) from None


def _renews(node: str, spec: Mapping[str, Any]) -> bool:
    """Raises ``ValueError``. The API server writes user and groups of the client into the object."""
    user, groups = spec.get("username"), spec.get("groups")
    groups = groups if isinstance(groups, list) else []
    if GROUP in groups and user == user_of(node):
        return True
    # The agent of another node must not get a certificate for this one, even if it is in the group of the bootstrap,
    # too.
    if BOOTSTRAP_GROUP not in groups or GROUP in groups:
        raise ValueError(f"it came from {user}, which is neither {user_of(node)} nor in the group {BOOTSTRAP_GROUP}")
    return False


def _name(request: Mapping[str, Any]) -> str:
    return str(_map(request.get("metadata")).get("name"))


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
