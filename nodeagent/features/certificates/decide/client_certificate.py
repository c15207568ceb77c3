# SPDX-License-Identifier: Apache-2.0
"""The client certificate of an agent: its request to the cluster, the answer, and the time of its renewal.

The user and the group of the certificate are what packaging/kubernetes/nodeagent.yaml ties to one Node.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.coordination.kube_objects import CertificateRequest, Review
from nodeagent.errors import Refused, Terminal
from nodeagent.features.certificates.reasons import CertificateReason

GROUP: Final = "nodeagent"
# The only signer of Kubernetes for clients that are no kubelets. No controller approves its requests.
SIGNER: Final = "kubernetes.io/kube-apiserver-client"
# Without key encipherment, which only RSA keys need.
USAGES: Final = ("digital signature", "client auth")
# A certificate is renewed in the last third of its life: a cluster without an approver for weeks does not lose nodes.
RENEW_AT: Final = 2 / 3
# Bytes; a chain of ten certificates.
MAX_CERTIFICATE: Final = 64 * 1024
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n?")


@dataclass(frozen=True, slots=True)
class Validity:
    """The life of a certificate, in seconds since 1970."""

    begin: float
    end: float

    def ended(self, now: float) -> bool:
        return now >= self.end

    @property
    def renewal(self) -> float:
        return self.begin + (self.end - self.begin) * RENEW_AT


def user_of(node: str) -> str:
    return f"nodeagent:{node}"


def subject_of(node: str) -> str:
    """Return the subject of the request in the form of RFC 2253. The name of a node has no character to escape."""
    return f"CN={user_of(node)},O={GROUP}"


def request_name(node: str, request: bytes) -> str:
    """Return the name of the object: the same for the same request, so that a repetition creates no second one."""
    # 253 characters are allowed for the whole, and the part before a hyphen ends with a letter or a digit.
    return f"nodeagent-{node[:200].rstrip('.-')}-{hashlib.sha256(request).hexdigest()[:16]}"


def request_object(name: str, request: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": base64.b64encode(request).decode(), "signerName": SIGNER, "usages": list(USAGES)},
    }


def issued(name: str, answer: CertificateRequest) -> bytes | None:
    """Return the certificate in PEM, None while the request waits for approval or for the signer.

    Raises ``Refused`` (``CertificateDenied``), ``Terminal`` (``CertificateFailed``).
    """
    status = answer.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] not in ("Denied", "Failed"):
            continue
        cause = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
        about = f"the request {name} {'was denied' if condition['type'] == 'Denied' else 'could not be signed'}"
        message = f"{about}: {cause}" if cause else about
        if condition["type"] == "Denied":
            raise Refused(message, reason=CertificateReason.DENIED)
        raise Terminal(message, reason=CertificateReason.FAILED)
    text = status.get("certificate")
    if not text:
        return None
    try:
        # base64 takes a third more than what it encodes.
        decoded = base64.b64decode(text[: 2 * MAX_CERTIFICATE], validate=True).decode("ascii")
    except ValueError:
        decoded = ""
    # A signer may put comments between the certificates of a chain.
    certificates = _CERTIFICATE.findall(decoded)
    chain = "".join(text if text.endswith("\n") else text + "\n" for text in certificates)
    if not chain or len(chain) > MAX_CERTIFICATE:
        raise Terminal(f"the request {name} has no certificate in PEM", reason=CertificateReason.FAILED)
    return chain.encode()


def check_identity(node: str, review: Review) -> None:
    """Check that the API server takes the client for the agent of this node. ``review`` is a SelfSubjectReview.

    Raises ``Terminal`` (``CertificateFailed``).
    """
    info = (review.get("status") or {}).get("userInfo") or {}
    user, groups = info.get("username"), info.get("groups") or ()
    if user != user_of(node) or GROUP not in groups:
        raise Terminal(
            f"the certificate is that of {user!r}, not of {user_of(node)} in the group {GROUP}",
            reason=CertificateReason.FAILED,
        )
