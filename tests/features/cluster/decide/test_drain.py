# SPDX-License-Identifier: Apache-2.0
"""Which pods go, what a refusal means, and the words for those that are still there."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.features.cluster.decide.drain import (
    DrainPolicy,
    EvictionClass,
    PodWait,
    cause_of,
    classify,
    daemon_set_of,
    eviction,
    is_blocked,
    pause_after,
    protected_pod,
    remaining_pod,
    remedy,
)

STRICT = DrainPolicy(unmanaged=False, local_data=False)


def pod(
    *,
    kind: str = "ReplicaSet",
    phase: str = "Running",
    volumes: list[dict[str, Any]] | None = None,
    spec: dict[str, Any] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    owners = [{"kind": kind, "name": "o", "controller": True}] if kind else []
    return {
        "metadata": {"namespace": "ns", "name": "p", "uid": "u", "ownerReferences": owners, **meta},
        "spec": {"volumes": volumes or [], **(spec or {})},
        "status": {"phase": phase},
    }


MIRROR = {"kubernetes.io/config.mirror": "x"}
SCRATCH = [{"name": "v", "emptyDir": {}}]
MEMORY = [{"name": "v", "emptyDir": {"medium": "Memory"}}]
DISK = [{"name": "v", "hostPath": {"path": "/data"}}]


@pytest.mark.parametrize(
    ("what", "usual", "strict"),
    [
        (pod(), EvictionClass.GOES, EvictionClass.GOES),
        (pod(kind="DaemonSet"), EvictionClass.STAYS, EvictionClass.STAYS),
        (pod(kind="DaemonSet", phase="Failed"), EvictionClass.GOES, EvictionClass.GOES),
        (pod(annotations=MIRROR, kind="Node"), EvictionClass.STAYS, EvictionClass.STAYS),
        (pod(annotations=MIRROR, kind="", volumes=SCRATCH), EvictionClass.STAYS, EvictionClass.STAYS),
        (pod(kind=""), EvictionClass.GOES, EvictionClass.UNMANAGED),
        (pod(kind="", phase="Succeeded"), EvictionClass.GOES, EvictionClass.GOES),
        (pod(ownerReferences=[{"kind": "Thing", "controller": False}]), EvictionClass.GOES, EvictionClass.UNMANAGED),
        (pod(kind="Anything"), EvictionClass.GOES, EvictionClass.GOES),
        (pod(volumes=SCRATCH), EvictionClass.GOES, EvictionClass.LOCAL_DATA),
        (pod(volumes=MEMORY), EvictionClass.GOES, EvictionClass.LOCAL_DATA),
        (pod(volumes=DISK), EvictionClass.GOES, EvictionClass.GOES),
        (pod(volumes=SCRATCH, phase="Failed"), EvictionClass.GOES, EvictionClass.GOES),
        (pod(volumes=SCRATCH, deletionTimestamp="2026-01-01T00:00:00Z"), EvictionClass.GOES, EvictionClass.GOES),
        ({"metadata": {"name": "bare"}}, EvictionClass.GOES, EvictionClass.UNMANAGED),
    ],
)
def test_the_eviction_class_of_a_pod(what: dict[str, Any], usual: EvictionClass, strict: EvictionClass) -> None:
    assert classify(what, DrainPolicy()) is usual
    assert classify(what, STRICT) is strict


@pytest.mark.finding("peers: kubectl drain", "A pod whose DaemonSet does not exist any more is evicted.")
@pytest.mark.parametrize(
    ("what", "usual", "strict"),
    [
        (pod(kind="DaemonSet"), EvictionClass.GOES, EvictionClass.UNMANAGED),
        (pod(kind="DaemonSet", phase="Failed"), EvictionClass.GOES, EvictionClass.GOES),
        (pod(kind="DaemonSet", annotations=MIRROR), EvictionClass.STAYS, EvictionClass.STAYS),
        (pod(kind="DaemonSet", deletionTimestamp="2026-01-01T00:00:00Z"), EvictionClass.GOES, EvictionClass.GOES),
    ],
)
def test_the_eviction_class_of_a_pod_whose_daemon_set_is_gone(
    what: dict[str, Any], usual: EvictionClass, strict: EvictionClass
) -> None:
    assert classify(what, DrainPolicy(), orphaned=True) is usual
    assert classify(what, STRICT, orphaned=True) is strict


def test_the_daemon_set_of_a_pod() -> None:
    assert daemon_set_of(pod(kind="DaemonSet")) == ("ns", "o")
    assert daemon_set_of(pod(kind="DaemonSet", phase="Succeeded")) is None
    assert daemon_set_of(pod()) is None


def test_a_pod_that_a_controller_is_to_evict_has_a_remedy() -> None:
    waiting = remaining_pod(pod(), PodWait.CONTROLLER)
    assert (waiting.cause, is_blocked(waiting)) == (PodWait.CONTROLLER, True)
    assert "kubectl get pdb -n ns" in remedy(waiting)
    leaving = pod(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30)
    terminating = remaining_pod(leaving, PodWait.CONTROLLER)
    assert (terminating.cause, is_blocked(terminating)) == (PodWait.GRACE_PERIOD, False)


def test_an_eviction_is_of_that_pod_only_and_forces_nothing() -> None:
    assert eviction(pod())["deleteOptions"] == {"preconditions": {"uid": "u"}}


def causes(reason: str, words: str = "") -> dict[str, Any]:
    return {"message": "no", "details": {"causes": [{"reason": reason, "message": words}]}}


NEEDS = "The disruption budget web needs 2 healthy pods and has 2 currently"


@pytest.mark.parametrize(
    ("status", "detail", "cause", "words"),
    [
        (404, {}, PodWait.GONE, ""),
        (409, {"message": "the UID in the precondition does not match"}, PodWait.GONE, ""),
        (429, causes("DisruptionBudget", NEEDS), PodWait.BUDGET, NEEDS),
        (
            429,
            causes("DisruptionBudget", "The disruption budget web is still being processed by the server."),
            PodWait.PENDING_BUDGET,
            "The disruption budget web is still being processed by the server.",
        ),
        (429, {"message": "too many requests"}, PodWait.BUSY, ""),
        (
            500,
            {"message": "This pod has more than one PodDisruptionBudget, which the eviction subresource ..."},
            PodWait.TWO_BUDGETS,
            "",
        ),
        (
            500,
            {"message": 'admission webhook "d.x" denied it'},
            PodWait.WEBHOOK,
            'admission webhook "d.x" denied it',
        ),
        (
            429,
            {"message": 'admission webhook "d.x" denied it'},
            PodWait.WEBHOOK,
            'admission webhook "d.x" denied it',
        ),
        (403, causes("NamespaceTerminating"), PodWait.NAMESPACE, ""),
        (403, {"message": "cannot create pods/eviction"}, PodWait.FORBIDDEN, "cannot create pods/eviction"),
        (503, {"message": "etcd is away"}, PodWait.OTHER, "etcd is away"),
        (0, {}, PodWait.OTHER, ""),
        (429, {"message": None, "details": {"causes": None}}, PodWait.BUSY, ""),
    ],
)
def test_cause(status: int, detail: dict[str, Any], cause: PodWait, words: str) -> None:
    assert cause_of(status, detail) == (cause, words)


@pytest.mark.finding(
    "daemon: no bug ends it",
    "However long an API server asks to wait with an eviction, it is tried again after a minute.",
)
def test_pauses_grow_to_a_minute_and_no_further() -> None:
    assert [pause_after(n, None) for n in (1, 2, 3, 4, 5, 1000)] == [5, 10, 20, 40, 60, 60]
    assert pause_after(1, 10.0) == 10
    assert pause_after(9, 10.0) == 60
    assert [pause_after(1, wait) for wait in (86_400.0, float("inf"))] == [60, 60]


@pytest.mark.parametrize(
    ("what", "failure", "words", "cause", "why"),
    [
        (pod(), None, "", PodWait.REQUESTED, "eviction requested"),
        (
            pod(spec={"terminationGracePeriodSeconds": 600}),
            None,
            "",
            PodWait.REQUESTED,
            "eviction requested: grace period of 600 s",
        ),
        (pod(), PodWait.BUDGET, NEEDS, PodWait.BUDGET, f"a disruption budget: {NEEDS}"),
        (pod(), PodWait.BUSY, "", PodWait.BUSY, "the API server is busy"),
        (pod(), PodWait.GONE, "", PodWait.REQUESTED, "eviction requested"),
        (pod(deletionTimestamp="T"), PodWait.BUDGET, NEEDS, PodWait.TERMINATING, "terminating"),
        (
            pod(deletionTimestamp="2026-01-01T00:10:00Z", deletionGracePeriodSeconds=600),
            None,
            "",
            PodWait.GRACE_PERIOD,
            "terminating in its grace period: 600 s, until 2026-01-01T00:10:00Z",
        ),
        (
            pod(deletionTimestamp="T", finalizers=["a/b", "c/d"]),
            None,
            "",
            PodWait.FINALIZERS,
            "terminating, waits for a/b, c/d",
        ),
    ],
)
def test_the_reason_of_a_remaining_pod(
    what: dict[str, Any], failure: PodWait | None, words: str, cause: PodWait, why: str
) -> None:
    left = remaining_pod(what, failure, words)
    assert (left.cause, left.why) == (cause, why)


def test_the_reason_of_a_protected_pod() -> None:
    assert protected_pod(pod(), EvictionClass.UNMANAGED).cause == PodWait.UNMANAGED
    assert protected_pod(pod(), EvictionClass.LOCAL_DATA).cause == PodWait.LOCAL_DATA


@pytest.mark.parametrize(
    ("what", "cause", "words"),
    [
        (pod(), None, ""),
        (pod(spec={"terminationGracePeriodSeconds": 600}), None, ""),
        (pod(deletionTimestamp="T", deletionGracePeriodSeconds=600), None, ""),
        (pod(), PodWait.BUDGET, "kubectl get pdb,pods -n ns"),
        (pod(), PodWait.TWO_BUDGETS, "delete one of the budgets"),
        (pod(), PodWait.PENDING_BUDGET, "controller manager"),
        (pod(), PodWait.WEBHOOK, "behind the webhook"),
        (pod(), PodWait.FORBIDDEN, "packaging/kubernetes"),
        (pod(), PodWait.NAMESPACE, "describe namespace ns"),
        (pod(), PodWait.BUSY, "kubectl describe pod -n ns p"),
        (pod(deletionTimestamp="T", finalizers=["a/b"]), None, "owns the finalizer"),
        (pod(deletionTimestamp="T"), None, "journalctl -u kubelet"),
    ],
)
def test_a_blocked_pod_has_a_remedy_and_a_terminating_pod_needs_none(
    what: dict[str, Any], cause: PodWait | None, words: str
) -> None:
    left = remaining_pod(what, cause, "words of the server")
    assert is_blocked(left) == bool(words)
    assert words in remedy(left)
    assert bool(remedy(left)) == bool(words)
