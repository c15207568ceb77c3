"""Whether the API server answers with the credentials of the agent, and allows its lease. Nothing is changed there."""

from __future__ import annotations

from typing import Final

from nodeagent.core.selfcheck.reach import ReachFacts, denied
from nodeagent.errors import AgentError
from nodeagent.kube.client import KubeClient
from nodeagent.reasons import hint

# What a lease needs (packaging/kubernetes/nodeagent.yaml).
VERBS: Final = ("get", "create", "patch")
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def reach_api_server(client: KubeClient, node: str) -> ReachFacts:
    """Read the Node: that needs the address, the credentials, the rights and the name."""
    target = f"Node {node}"
    try:
        await client.node(node)
    except AgentError as error:
        return ReachFacts(target, error.message, error.hint or hint(error.reason))
    return ReachFacts(target)


async def reach_lease(client: KubeClient, node: str, namespace: str) -> ReachFacts:
    """Request the decision about each verb. Each authenticated client may, and no lease has to exist."""
    name = f"node-{node}".lower()
    target = f"lease {namespace}/{name}"
    allowed: dict[str, bool] = {}
    for verb in VERBS:
        attributes = {"namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases"}
        # A rule for a single name does not apply to creations.
        attributes |= {} if verb == "create" else {"name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = await client.create(_REVIEWS, review)
        except AgentError as error:
            return ReachFacts(target, error.message, error.hint or hint(error.reason))
        status = answer.get("status")
        allowed[verb] = isinstance(status, dict) and status.get("allowed") is True
    return ReachFacts(target, denied(VERBS, allowed), "give the agent its rights: packaging/kubernetes/nodeagent.yaml")
