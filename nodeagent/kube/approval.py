"""Read the requests for client certificates of agents, and approve one."""

from __future__ import annotations

from nodeagent.core.coordination.certificate_approval import Applicant, is_pending
from nodeagent.core.coordination.client_certificate import SIGNER
from nodeagent.kube.certificate import REQUESTS
from nodeagent.kube.client import KubeClient, Object

__all__ = ["approve", "pending_requests"]


async def pending_requests(client: KubeClient) -> list[Object]:
    """Raises ``KubeFault``."""
    found = await client.items(REQUESTS, fieldSelector=f"spec.signerName={SIGNER}")
    return [request for request in found if is_pending(request)]


async def approve(client: KubeClient, request: Object, applicant: Applicant) -> None:
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
