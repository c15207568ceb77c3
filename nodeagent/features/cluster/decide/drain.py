# SPDX-License-Identifier: Apache-2.0
"""Which pods leave a node before it is disrupted, and what a refused eviction means.

The filters are those of ``kubectl drain`` with the answers that the agent of a node needs. Pods of DaemonSets and
static pods stay, because their controllers would start them again. Finished pods go. For pods that lose data or have no
controller, the policy decides between eviction and a refused drain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final

from nodeagent.core.coordination.kube_objects import ApiStatus, ObjectMeta, OwnerReference, Pod
from nodeagent.features.cluster.decide.drain_order import DrainOrder

MIRROR = "kubernetes.io/config.mirror"
FINISHED = ("Succeeded", "Failed")
# Label of an eviction, not of a pod (packaging/kubernetes/evictions.yaml).
BY_AGENT = "nodeagent.org/by-agent"

# Seconds between two attempts to evict a pod. kubectl uses the first; it is doubled up to a minute, so that a budget
# that stays exhausted for hours costs the API server nothing.
FIRST_PAUSE = 5.0
LAST_PAUSE = 60.0


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """The defaults are the machine-config-operator's.

    ``unmanaged``: evict pods without a controller. ``local_data``: evict pods whose emptyDir volumes are deleted with
    them. ``lead_time``: seconds between the cordon and the first eviction.
    """

    unmanaged: bool = True
    local_data: bool = True
    lead_time: float = 0.0
    order: DrainOrder = field(default_factory=DrainOrder)


class EvictionClass(Enum):
    STAYS = "stays"
    GOES = "goes"
    UNMANAGED = "unmanaged"
    LOCAL_DATA = "local data"


class PodWait(StrEnum):
    """Why a pod is still on the node. The value is the first part of the reason that is shown."""

    REQUESTED = "eviction requested"
    GRACE_PERIOD = "terminating in its grace period"
    FINALIZERS = "terminating, waits for"
    TERMINATING = "terminating"
    CONTROLLER = "the machine-config-controller has not evicted it yet"
    # The order of the drain.
    LEAD_TIME = "evicted after the lead time"
    LATER = "evicted after the pods of an earlier step"
    # The policy protects the pod.
    UNMANAGED = "not managed by a controller"
    LOCAL_DATA = "its emptyDir volumes would be lost"
    # The last eviction was not accepted.
    BUDGET = "a disruption budget"
    PENDING_BUDGET = "a disruption budget that is not up to date yet"
    BUSY = "the API server is busy"
    TWO_BUDGETS = "more than one disruption budget, so that the API server refuses every eviction"
    WEBHOOK = "an admission webhook"
    NAMESPACE = "its namespace is being deleted"
    FORBIDDEN = "the agent is not allowed to evict it"
    OTHER = "the API server could not evict it"
    GONE = "deleted"


@dataclass(frozen=True, slots=True, order=True)
class Remaining:
    """A pod that is still on the node. ``words`` complete the cause: the budget, the webhook, the finalizers."""

    namespace: str
    name: str
    cause: PodWait
    words: str = ""

    @property
    def why(self) -> str:
        if self.cause is PodWait.FINALIZERS:
            return f"{self.cause} {self.words}"
        return f"{self.cause}: {self.words}" if self.words else str(self.cause)


def daemon_set_of(pod: Pod) -> tuple[str, str] | None:
    """Return namespace and name of the DaemonSet that keeps the pod on the node, None for other pods."""
    meta, status = pod["metadata"], pod.get("status") or {}
    controller = _controller(meta)
    # As in kubectl drain: a finished pod goes, whatever controls it.
    if status.get("phase") in FINISHED or controller is None or controller["kind"] != "DaemonSet":
        return None
    return meta["namespace"], controller["name"]


def _controller(meta: ObjectMeta) -> OwnerReference | None:
    # A controller of any kind counts, as for kubectl, although some replace no pod.
    return next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)


def classify(pod: Pod, policy: DrainPolicy, *, orphaned: bool = False) -> EvictionClass:
    """Return the class of a pod for a drain. UNMANAGED and LOCAL_DATA make it refuse to start.

    ``orphaned``: the DaemonSet of the pod no longer exists, so that no controller replaces the pod.
    """
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    finished = status.get("phase") in FINISHED
    controller = _controller(meta)
    # The kubelet runs a mirror pod from a file of the host. Its eviction would have no effect.
    if MIRROR in (meta.get("annotations") or {}):
        return EvictionClass.STAYS
    # The DaemonSet controller would create the pod again at once, cordon or not.
    if daemon_set_of(pod) is not None and not orphaned:
        return EvictionClass.STAYS
    # A pod that has ended, or is being deleted, loses nothing by an eviction.
    if finished or meta.get("deletionTimestamp"):
        return EvictionClass.GOES
    if (controller is None or orphaned) and not policy.unmanaged:
        return EvictionClass.UNMANAGED
    # As kubectl: one in memory counts, and a volume on a path of the host does not.
    if not policy.local_data and any(volume.get("emptyDir") is not None for volume in spec.get("volumes") or ()):
        return EvictionClass.LOCAL_DATA
    return EvictionClass.GOES


def eviction(pod: Pod, *, by_agent: bool = True) -> dict[str, Any]:
    """Return the body of an eviction request. ``by_agent``: with the agent's own credentials."""
    meta = pod["metadata"]
    # The API server compares evictions with this label only, which an agent must set, with all pods of the namespace.
    labels = {"labels": {BY_AGENT: ""}} if by_agent else {}
    # The uid is a precondition: a pod that a StatefulSet created again elsewhere has the same name and must stay.
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], **labels},
        # No gracePeriodSeconds: the pod's own applies. A 0 would kill it at once.
        "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
    }


def cause_of(status: int, detail: ApiStatus) -> tuple[PodWait, str]:
    """Return the cause of a failed eviction, and the server's message where it names the budget or the webhook.

    ``status`` is the HTTP status (0: no answer), ``detail`` what came with it.
    """
    message = detail.get("message") or ""
    causes = (detail.get("details") or {}).get("causes") or ()
    reasons = {cause.get("reason"): cause.get("message") or "" for cause in causes}
    match status:
        # The pod is gone, or another one has its name by now (409, the precondition on the uid).
        case 404 | 409:
            return PodWait.GONE, ""
        case 429 if "DisruptionBudget" in reasons:
            words = reasons["DisruptionBudget"]
            return (PodWait.PENDING_BUDGET if "still being processed" in words else PodWait.BUDGET), words
        # The text decides, because a webhook chooses the status of its refusal itself.
        case _ if "admission webhook" in message:
            return PodWait.WEBHOOK, message
        # API Priority and Fairness answers with the same status as a disruption budget.
        case 429:
            return PodWait.BUSY, ""
        case 403 if "NamespaceTerminating" in reasons:
            return PodWait.NAMESPACE, ""
        case 403:
            return PodWait.FORBIDDEN, message
        case 500 if "more than one PodDisruptionBudget" in message:
            return PodWait.TWO_BUDGETS, ""
        case _:
            return PodWait.OTHER, message


def pause_after(tries: int, retry_after: float | None) -> float:
    """Return the seconds until the next attempt to evict a pod, after ``tries`` failures."""
    # The API server names a time only while the status of a budget is out of date, not while a budget is used up.
    usual: float = min(FIRST_PAUSE * 2 ** min(tries - 1, 10), LAST_PAUSE)
    # A proxy before it may name any time, also one after the end of the drain.
    return min(max(usual, retry_after or 0.0), LAST_PAUSE)


def remaining_pod(pod: Pod, failure: PodWait | None, words: str = "") -> Remaining:
    """Return a pod that is to be evicted. ``failure`` is the cause of its last failed eviction, None without one."""
    return _remaining(pod, *_blocking_reason(pod, failure, words))


def protected_pod(pod: Pod, eviction_class: EvictionClass) -> Remaining:
    """Return a pod that the policy protects."""
    return _remaining(pod, PodWait.UNMANAGED if eviction_class is EvictionClass.UNMANAGED else PodWait.LOCAL_DATA, "")


def _remaining(pod: Pod, cause: PodWait, words: str) -> Remaining:
    meta = pod["metadata"]
    return Remaining(meta["namespace"], meta["name"], cause, words)


def _blocking_reason(pod: Pod, failure: PodWait | None, words: str) -> tuple[PodWait, str]:
    """Return why a pod is still on the node. A pod that is terminating does not depend on the failed eviction."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    if deleted := meta.get("deletionTimestamp"):
        if finalizers := meta.get("finalizers"):
            return PodWait.FINALIZERS, ", ".join(finalizers)
        grace = meta.get("deletionGracePeriodSeconds")
        return (PodWait.TERMINATING, "") if grace is None else (PodWait.GRACE_PERIOD, f"{grace} s, until {deleted}")
    if failure is not None and failure is not PodWait.GONE:
        return failure, words
    seconds = spec.get("terminationGracePeriodSeconds") or 0
    return PodWait.REQUESTED, f"grace period of {seconds} s" if seconds > 0 else ""


def is_blocked(pod: Remaining) -> bool:
    """Return whether something keeps the pod on the node; otherwise it is terminating, or its turn comes later."""
    return pod.cause not in (
        PodWait.REQUESTED,
        PodWait.GRACE_PERIOD,
        PodWait.LEAD_TIME,
        PodWait.LATER,
    )


def remedy(pod: Remaining) -> str:
    """Return the remedy of an admin for a blocked pod, "" for a terminating pod."""
    if not is_blocked(pod):
        return ""
    return _REMEDIES.get(pod.cause, "kubectl describe pod -n {pod.namespace} {pod.name}").format(pod=pod)


_REMEDIES: Final[Mapping[PodWait, str]] = {
    PodWait.TWO_BUDGETS: "delete one of the budgets: kubectl get pdb -n {pod.namespace}",
    PodWait.PENDING_BUDGET: "wait; if it does not change, check the controller manager of the cluster",
    PodWait.BUDGET: ("add a replica, or make the other replicas ready: kubectl get pdb,pods -n {pod.namespace}"),
    PodWait.WEBHOOK: "check the service behind the webhook; often a controller is moving the pod",
    PodWait.NAMESPACE: "wait for the namespace: kubectl describe namespace {pod.namespace}",
    PodWait.FORBIDDEN: (
        "set drain.kubeconfig to the kubeconfig of the kubelet, or kubectl apply -f packaging/kubernetes/evictions.yaml"
    ),
    PodWait.CONTROLLER: (
        "kubectl get pdb -n {pod.namespace}; kubectl logs -n openshift-machine-config-operator"
        " deployment/machine-config-controller"
    ),
    PodWait.FINALIZERS: "check the controller that owns the finalizer; the pod is deleted when it removes it",
    PodWait.TERMINATING: "journalctl -u kubelet -u crio on this node: an unmount or the runtime may hang",
}
