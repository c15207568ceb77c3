"""Which pods leave a node before it is disrupted, and what an eviction that was refused means.

The filters are those of ``kubectl drain`` with the answers that a node's own agent needs: pods of DaemonSets and static
pods stay, because their controllers would put them back; finished pods go; what would lose data for good or has nobody
to make it again goes or is a refusal, as the policy says. Words are made for the person who asks at night why a
node does not empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

__all__ = [
    "Cause",
    "DrainPolicy",
    "Fate",
    "Remaining",
    "cause_of",
    "daemon_set_of",
    "eviction",
    "fate_of",
    "is_blocked",
    "pause_after",
    "way_out",
    "why_awaited",
    "why_here",
]

Object = Mapping[str, Any]

MIRROR = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
ASKED = "asked to go"
AWAITED = "the machine-config-controller has not evicted it yet"
GRACE = "terminating; its grace period"
FIRST_PAUSE = 5.0
LAST_PAUSE = 60.0
"""Seconds between two tries to evict a pod: kubectl's, doubled up to a minute, so that a budget that stays exhausted
for hours costs the API server nothing."""


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """The defaults are the machine-config-operator's. ``unmanaged``: evict pods that no controller makes again.
    ``local_data``: evict pods whose emptyDir volumes go with them."""

    unmanaged: bool = True
    local_data: bool = True


@dataclass(frozen=True, slots=True, order=True)
class Remaining:
    """A pod that is still there, and why."""

    namespace: str
    name: str
    why: str


class Fate(Enum):
    STAYS = "stays"
    GOES = "goes"
    UNMANAGED = "no controller makes it again elsewhere"
    LOCAL_DATA = "its emptyDir volumes would be lost"


def daemon_set_of(pod: Object) -> tuple[str, str] | None:
    """Namespace and name of the DaemonSet for which the pod would stay; None if there is none."""
    meta, status = pod.get("metadata") or {}, pod.get("status") or {}
    controller = _controller(meta)
    if status.get("phase") in FINISHED or controller is None or controller.get("kind") != "DaemonSet":
        return None
    return str(meta.get("namespace", "")), str(controller.get("name", ""))


def _controller(meta: Object) -> Object | None:
    return next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)


def fate_of(pod: Object, policy: DrainPolicy, *, orphaned: bool = False) -> Fate:
    """What is neither STAYS nor GOES is a reason to refuse the drain. ``orphaned``: the DaemonSet of the pod does not
    exist any more, so that nothing makes the pod again, here or elsewhere."""
    meta, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    finished = status.get("phase") in FINISHED
    controller = _controller(meta)
    if MIRROR in (meta.get("annotations") or {}):
        return Fate.STAYS
    if daemon_set_of(pod) is not None and not orphaned:
        return Fate.STAYS
    if finished or meta.get("deletionTimestamp"):
        return Fate.GOES
    if (controller is None or orphaned) and not policy.unmanaged:
        return Fate.UNMANAGED
    if not policy.local_data and any("emptyDir" in volume for volume in spec.get("volumes") or ()):
        return Fate.LOCAL_DATA
    return Fate.GOES


def eviction(pod: Object) -> dict[str, Any]:
    """With the uid: a pod of a StatefulSet that was made again elsewhere has the same name and must stay."""
    meta = pod["metadata"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }


class Cause(StrEnum):
    """Why an eviction was not accepted."""

    GONE = "it is gone"
    BUDGET = "a disruption budget"
    PENDING_BUDGET = "a disruption budget that is not up to date yet"
    BUSY = "the API server is busy"
    TWO_BUDGETS = "more than one disruption budget: nobody can evict it until a person removes one"
    WEBHOOK = "an admission webhook"
    NAMESPACE = "its namespace is being deleted"
    FORBIDDEN = "the agent may not evict it"
    OTHER = "the API server could not do it"


def cause_of(status: int, detail: Object) -> tuple[Cause, str]:
    """From the HTTP status (0: no answer) and the ``Status`` object that came with it: the cause, and the server's
    words where they say more (which budget, which webhook)."""
    message = detail.get("message") or ""
    causes = [c for c in (detail.get("details") or {}).get("causes") or () if isinstance(c, Mapping)]
    reasons = {c.get("reason"): c.get("message") or "" for c in causes}
    match status:
        case 404 | 409:
            return Cause.GONE, ""
        case 429 if "DisruptionBudget" in reasons:
            words = reasons["DisruptionBudget"]
            return (Cause.PENDING_BUDGET if "still being processed" in words else Cause.BUDGET), words
        case _ if "admission webhook" in message:
            return Cause.WEBHOOK, message
        case 429:
            return Cause.BUSY, ""
        case 403 if "NamespaceTerminating" in reasons:
            return Cause.NAMESPACE, ""
        case 403:
            return Cause.FORBIDDEN, message
        case 500 if "more than one PodDisruptionBudget" in message:
            return Cause.TWO_BUDGETS, ""
        case _:
            return Cause.OTHER, message


def pause_after(tries: int, retry_after: float | None) -> float:
    """Seconds until the next try of the same pod, after so many that failed."""
    usual: float = min(FIRST_PAUSE * 2 ** min(tries - 1, 10), LAST_PAUSE)
    return max(usual, retry_after or 0.0)


def why_awaited(pod: Object) -> str:
    """Of a pod that a machine-config-controller is to evict: only its log has the reason that the API server gave."""
    return why_here(pod, None, "") if (pod.get("metadata") or {}).get("deletionTimestamp") else AWAITED


def why_here(pod: Object, cause: Cause | None, words: str) -> str:
    """``cause`` is that of the last eviction that failed, None if none did."""
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    deleted = meta.get("deletionTimestamp")
    if deleted:
        finalizers: Sequence[str] = meta.get("finalizers") or ()
        if finalizers:
            return f"terminating; waits for {', '.join(finalizers)}"
        grace = meta.get("deletionGracePeriodSeconds")
        return f"{GRACE} of {grace} s ends {deleted}" if grace is not None else "terminating"
    if cause is not None and cause is not Cause.GONE:
        return f"{cause}: {words}" if words else str(cause)
    if (spec.get("terminationGracePeriodSeconds") or 0) > 0:
        return f"{ASKED}; has a grace period of {spec['terminationGracePeriodSeconds']} s"
    return ASKED


def way_out(pod: Remaining) -> str:
    """What a person can do about a pod that stays; "" for one that goes by itself. Nothing of it is done by us."""
    if not is_blocked(pod):
        return ""
    for start, words in _WAYS_OUT:
        if pod.why.startswith(start):
            return words.format(pod=pod)
    return f"kubectl describe pod -n {pod.namespace} {pod.name}"


def is_blocked(pod: Remaining) -> bool:
    """Whether something keeps it here; otherwise it is on its way."""
    return not pod.why.startswith((ASKED, GRACE))


_WAYS_OUT = (
    (Cause.TWO_BUDGETS.value, "delete one of the budgets: kubectl get pdb -n {pod.namespace}"),
    (Cause.PENDING_BUDGET.value, "wait; if it stays so, is the controller manager of the cluster well?"),
    (
        Cause.BUDGET.value,
        "give it one replica more, or make the ones elsewhere ready: kubectl get pdb,pods -n {pod.namespace}",
    ),
    (Cause.WEBHOOK.value, "ask who runs the webhook; it often means that a controller is moving the pod"),
    (Cause.NAMESPACE.value, "wait for the namespace: kubectl describe namespace {pod.namespace}"),
    (Cause.FORBIDDEN.value, "kubectl apply -f packaging/kubernetes/nodeagent.yaml, which has the rights of the agent"),
    (
        AWAITED,
        "kubectl get pdb -n {pod.namespace}; kubectl logs -n openshift-machine-config-operator"
        " deployment/machine-config-controller",
    ),
    ("terminating; waits for", "ask the controller that owns the finalizer; it is gone when that is"),
    ("terminating", "journalctl -u kubelet -u crio on this node: an unmount or the runtime may hang"),
)
"""By how the reason begins."""
