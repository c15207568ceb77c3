# SPDX-License-Identifier: Apache-2.0
"""Client certificates of agents: request one and check that the API server accepts it, or approve those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from nodeagent.core.coordination.kube_objects import CertificateRequest, Review
from nodeagent.errors import Refused, Terminal
from nodeagent.features.certificates.decide.approval import Applicant, is_pending
from nodeagent.features.certificates.decide.client_certificate import (
    SIGNER,
    check_identity,
    issued,
    request_name,
    request_object,
)
from nodeagent.features.certificates.reasons import CertificateReason
from nodeagent.kube.client import KubeClient
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import AlreadyExists, NoAnswer, NotFound, ServerFault, Throttled, Unauthorized

REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
VERSION: Final = "authentication.k8s.io/v1"
# Seconds between two polls: an operator waits for the effect of an approval.
POLL: Final = 5.0
PASSING: Final = (NoAnswer, ServerFault, Throttled)


async def obtain(
    client: KubeClient, node: str, request: bytes, *, wait: float, waiting: Callable[[str], None]
) -> bytes:
    """Return the certificate in PEM. ``waiting`` receives the name of the object once it waits for approval.

    The object is created if the cluster has none; the cluster removes it a day later. Faults of the API server are
    retried for ``wait`` seconds. Raises what ``issued`` raises, ``Refused`` (``CertificatePending``), ``KubeFault``.
    """
    name = request_name(node, request)
    loop = asyncio.get_running_loop()
    end = loop.time() + wait
    reported = False
    while True:
        # Read before the request: the last attempt begins after the time is over, so that even wait=0 asks once.
        late = loop.time() >= end
        try:
            certificate = issued(name, await _read_or_create(client, name, request))
        except PASSING:
            if late:
                raise
        else:
            if certificate is not None:
                return certificate
            if late:
                raise Refused(
                    f"the request {name} was not approved within {wait:g} s",
                    reason=CertificateReason.PENDING,
                )
            if not reported:
                reported = True
                waiting(name)
        await asyncio.sleep(min(POLL, max(0.0, end - loop.time())))


async def verify(client: KubeClient, node: str, *, wait: float) -> None:
    """Check that the API server takes the client for the agent of ``node``. Retries as ``obtain``.

    Raises ``Terminal`` (``CertificateFailed``), ``KubeFault``.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + wait
    while True:
        try:
            answer = await client.create(REVIEWS, {"apiVersion": VERSION, "kind": "SelfSubjectReview"})
            review = decoded(Review, answer, f"POST {REVIEWS}")
        except PASSING:
            if loop.time() >= end:
                raise
            await asyncio.sleep(min(POLL, max(0.0, end - loop.time())))
        except Unauthorized as fault:
            raise Terminal(
                f"the API server does not accept the new certificate: {fault.message}",
                reason=CertificateReason.FAILED,
            ) from None
        else:
            return check_identity(node, review)


async def _read_or_create(client: KubeClient, name: str, request: bytes) -> CertificateRequest:
    try:
        return await client.read(f"{REQUESTS}/{name}", CertificateRequest)
    except NotFound:
        pass
    try:
        return decoded(
            CertificateRequest, await client.create(REQUESTS, request_object(name, request)), f"POST {REQUESTS}"
        )
    except AlreadyExists:
        # An earlier creation without an answer was carried out.
        return await client.read(f"{REQUESTS}/{name}", CertificateRequest)


async def pending_requests(client: KubeClient) -> list[CertificateRequest]:
    """Return the requests that are neither approved nor denied. Raises ``KubeFault``."""
    requests = await client.objects(REQUESTS, CertificateRequest, fieldSelector=f"spec.signerName={SIGNER}")
    return [request for request in requests if is_pending(request)]


async def approve(client: KubeClient, request: CertificateRequest, applicant: Applicant) -> None:
    """Approve the object as it was read. Raises ``Conflict`` if it has changed since, ``KubeFault``.

    A repetition after an uncertain answer does no harm: the object that was read is approved, or there is a conflict.
    """
    about = request["metadata"]
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "NodeagentRenewal" if applicant.renewal else "NodeagentJoin",
        "message": f"checked by nodeagent fleet approve: the agent of node {applicant.node}",
    }
    # The name alone could be that of another object by now.
    same = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
    await client.patch(
        f"{REQUESTS}/{about['name']}/approval", {"metadata": same, "status": {"conditions": [condition]}}
    )
