# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class CertificateReason(ReasonEnum):
    # fmt: off
    PENDING = "CertificatePending", Kind.REFUSED, "nodeagent fleet approve NAME, with the name that the host printed", "The request for a certificate waits for its approval."
    DENIED = "CertificateDenied", Kind.REFUSED, "kubectl delete csr NAME, then nodeagent bootstrap makes the request again", "The request for a certificate was denied."
    UNSOUND = "CertificateUnsound", Kind.REFUSED, "kubectl certificate deny NAME, and find out who has the bootstrap token or the certificate that it came with", "The request for a certificate does not come from the node that it names, or asks for too much."
    FAILED = "CertificateFailed", Kind.FAULT, "kubectl describe csr NAME, and check the signer of the cluster; the old certificate stays in use", "The signer of the cluster could not make the certificate."
    # fmt: on
