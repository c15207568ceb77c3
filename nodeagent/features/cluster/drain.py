# SPDX-License-Identifier: Apache-2.0
"""Cordons this node, evicts its pods, and uncordons it. Implements ``ports.NodeDrainer``.

The cordon carries the operation as an annotation in the same write, so that a cordon of another actor is never undone.
Evictions have the credentials of the kubelet where the host has them (``kubelet_client.py``). All pods of a step are
evicted at once, after the lead time (``decide/drain_order.py``); by default there is one step and no lead time. A
refused eviction is repeated after a pause of its own, and reported with its cause (``decide/drain.py``). The node is
drained when two lists of its pods some seconds apart are empty: the pods are gone, not only accepted for deletion. No
pod is deleted by force.

Repeating a drain after a kill is harmless: the cordon is there, and an evicted pod is terminating.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from nodeagent.core.backoff import jittered
from nodeagent.core.coordination.kube_objects import KubeObject, Node, Pod
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import Refused, Retryable, Terminal, Unreachable
from nodeagent.features.cluster.decide.drain import (
    DrainPolicy,
    EvictionClass,
    PodWait,
    Remaining,
    cause_of,
    classify,
    daemon_set_of,
    eviction,
    pause_after,
    protected_pod,
    remaining_pod,
)
from nodeagent.features.cluster.decide.drain_order import begins_at, is_note_of, lead_left, lead_note, present_step
from nodeagent.features.cluster.reasons import ClusterReason
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.errors import Conflict, KubeFault, NotFound
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Clock

# Annotation of the Node: the operation that cordoned it.
CORDONED_BY: Final = "nodeagent.org/cordoned-by"
# Annotation of the Node: when the evictions begin, and the operation. It announces the drain to other programs.
DRAIN_BEGINS: Final = "nodeagent.org/drain-begins"

# Seconds between two lists of the pods while there are some.
POLL: Final = 3.0
# The same during the lead time, in which nothing is evicted.
LEAD_POLL: Final = 15.0
# Seconds between the two lists that must be empty.
SETTLE: Final = 5.0

# Evictions between two checks of the lease: a node has 110 pods by default, and the API server has other clients.
TOGETHER: Final = 20
# Seconds after which an eviction is slow. So are all of its namespace then, of which one is made at a time.
QUICK: Final = 2.0
# Seconds that an eviction is waited for: an API server gives up after 34. With the agent's own credentials, a policy
# compares it with each pod of its namespace, which takes up to a millisecond for each.
EVICTION_TIMEOUT: Final = 60.0

WRITES: Final = 3
# The first one, and one more after an uncordon.
MOST_CORDONS: Final = 2

# DaemonSets that are read in one drain; a node runs some dozens. The pods of further ones stay.
MOST_DAEMON_SETS: Final = 500


# Requests in flight.
READS_TOGETHER: Final = 10


async def pods_of(client: KubeClient, node: str) -> Sequence[Pod]:
    """Return the pods of a node. Raises what the client raises."""
    return await client.objects("/api/v1/pods", Pod, fieldSelector=f"spec.nodeName={node}")


@dataclass(slots=True)
class _Try:
    """The evictions of one pod. ``due`` is on the steady clock."""

    count: int = 0
    due: float = 0.0
    cause: PodWait | None = None
    words: str = ""


async def _own_credentials() -> None:
    return None


class KubeNode:
    """``check_lease`` is called before each round of evictions and raises if the lease is lost. ``report`` receives the
    remaining pods after each round. ``evictor`` is called once in each drain and returns the client that evicts, which
    the drain closes; None: the agent's own."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        clock: Clock,
        *,
        check_lease: Callable[[str], Awaitable[None]],
        report: Callable[[Sequence[Remaining]], None] = lambda _: None,
        policy: DrainPolicy | None = None,
        evictor: Callable[[], Awaitable[KubeClient | None]] = _own_credentials,
    ) -> None:
        self._client = client
        self._evictor = evictor
        self._node = node
        self._path = f"/api/v1/nodes/{node}"
        self._clock = clock
        self._check_lease = check_lease
        self._report = report
        self.policy = policy or DrainPolicy()

    async def drain(self, operation: str, deadline: float) -> None:
        """Cordon the node, and evict until it is empty. The cordon stays until ``uncordon``.

        Raises ``Refused``: ``DrainTimedOut`` after ``deadline`` seconds, ``DrainRefused`` before the first eviction if
        the policy protects a pod, ``DrainCanceled`` if the node is uncordoned twice, ``NodeUnknown``; and what
        ``check_lease`` raises.
        """
        async with AsyncExitStack() as stack:
            evictor = await self._evictor()
            if evictor is not None:
                await stack.enter_async_context(evictor)
            work = DrainRounds(self._client, self._node, self._clock, self.policy, evictor)
            await self._drain(work, operation, deadline)

    async def _drain(self, work: DrainRounds, operation: str, deadline: float) -> None:
        policy = work.policy
        cordons, wait = 0, 0.0
        try:
            # The deadline counts through outages: the operator who set it wants the node back by then.
            async with asyncio.timeout(deadline):
                while True:
                    try:
                        # The lease is checked before each round. A thief of the lease may rely on the pods that are
                        # still there.
                        await self._check_lease(operation)
                        made, note = await self._cordon(operation, policy.lead_time, may=cordons < MOST_CORDONS)
                        cordons = max(1, cordons + made)
                        wait = self._lead_left(note, operation, policy.lead_time)
                        begins = begins_at(note) if wait > 0 else ""
                        done = await work.round(partial(self._check_lease, operation), begins)
                        self._report(work.remaining)
                    except (Unreachable, Retryable):
                        # The API server is down: the requests wait, the deadline does not.
                        done = False
                    if done:
                        return
                    # Two empty lists are needed, because a controller may create a pod between the cordon and the first
                    # list.
                    pause = min(wait, LEAD_POLL) if wait > 0 else POLL if work.remaining else SETTLE
                    await asyncio.sleep(jittered(pause, random.random()))  # noqa: S311
        except TimeoutError:
            left = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in work.remaining)
            message = f"node {self._node} is not empty after {deadline:g} s: {left or 'pods keep coming back'}"
            raise Refused(message, reason=Reason.DRAIN_TIMED_OUT) from None

    async def uncordon(self, operation: str) -> None:
        """Undo the cordon of this operation, and no other one."""
        for _ in range(WRITES):
            node = await self._client.node(self._node)
            notes = _notes(node)
            ours = notes.get(CORDONED_BY) == operation
            undone: Object = {CORDONED_BY: None} if ours else {}
            if is_note_of(notes.get(DRAIN_BEGINS, ""), operation):
                undone[DRAIN_BEGINS] = None
            if not undone or await self._write(node, undone, {"unschedulable": None} if ours else {}):
                return
        raise self._contended()

    async def advice(self) -> str:
        return ""

    async def _cordon(self, operation: str, lead_time: float, *, may: bool) -> tuple[bool, str]:
        """Return whether a cordon was necessary, and when the evictions begin, as an annotation ("": at once).

        One uncordon may be a mistake or come from another tool; two are a request to stop. A cordon of an earlier
        attempt, or of another actor, which undoes it, stays as it is.
        """
        for _ in range(WRITES):
            node = await self._client.node(self._node)
            cordoned = bool((node.get("spec") or {}).get("unschedulable"))
            note = _notes(node).get(DRAIN_BEGINS, "") if lead_time else ""
            has_lead = not lead_time or self._known_lead(note, operation, lead_time) is not None
            if cordoned and has_lead:
                return False, note
            if not (cordoned or may):
                raise Refused(f"node {self._node} was uncordoned twice", reason=Reason.DRAIN_CANCELED)
            wanted: Object = {} if cordoned else {CORDONED_BY: operation}
            if not has_lead:
                latest = self._client.server_clock.latest(self._clock.monotonic())
                wanted[DRAIN_BEGINS] = note = lead_note(operation, latest, lead_time)
            if await self._write(node, wanted, {} if cordoned else {"unschedulable": True}):
                return not cordoned, note
        raise self._contended()

    def _lead_left(self, note: str, operation: str, lead_time: float) -> float:
        if not note:
            return 0.0
        left = self._known_lead(note, operation, lead_time)
        return lead_time if left is None else left

    def _known_lead(self, note: str, operation: str, lead_time: float) -> float | None:
        clock, now = self._client.server_clock, self._clock.monotonic()
        return lead_left(note, operation, clock.earliest(now), clock.latest(now), lead_time)

    async def _write(self, node: Node, annotations: Object, spec: Object) -> bool:
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": annotations}
        try:
            await self._client.patch(self._path, {"metadata": meta, **({"spec": spec} if spec else {})})
        except Conflict:
            # Kubelets write their Node every few seconds.
            return False
        return True

    def _contended(self) -> Retryable:
        return Retryable(f"node {self._node} changes faster than it can be read", reason=ClusterReason.NODE_CONTENDED)


def _notes(node: Node) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}


class DrainRounds:
    """The evictions of one drain. ``remaining`` are the pods after the last ``round``. ``evictor`` has the credentials
    of the kubelet; None: ``client`` evicts."""

    def __init__(
        self, client: KubeClient, node: str, clock: Clock, policy: DrainPolicy, evictor: KubeClient | None = None
    ) -> None:
        self.remaining: Sequence[Remaining] = ()
        self.policy = policy
        self._client = client
        self._evictor = evictor
        self._node = node
        self._clock = clock
        # By the uid of the pod: a new pod of the same name starts again.
        self._tries: dict[str, _Try] = {}
        # By namespace: whether the last eviction there was slow.
        self._slow: dict[str, bool] = {}
        self._started = False
        self._empty_since: float | None = None
        # Whether a DaemonSet exists, by namespace and name. Each is read once.
        self._daemon_sets: dict[tuple[str, str], bool] = {}
        self._reads = asyncio.Semaphore(READS_TOGETHER)

    async def round(self, check_lease: Callable[[], Awaitable[None]], begins: str = "") -> bool:
        """List the pods once and evict those that are due. Return True if this list and the previous one are empty.

        ``begins`` is the end of the lead time, before which nothing is evicted and the node is not drained; "" after
        it. ``check_lease`` is called between two groups of evictions; what it raises ends the round.
        """
        pods = await pods_of(self._client, self._node)
        orphans = await self._orphans(pods)
        classes = [(pod, classify(pod, self.policy, orphaned=pod["metadata"]["uid"] in orphans)) for pod in pods]
        going = [pod for pod, pod_class in classes if pod_class is not EvictionClass.STAYS]
        evicted = (EvictionClass.STAYS, EvictionClass.GOES)
        protected = {pod["metadata"]["uid"]: pod_class for pod, pod_class in classes if pod_class not in evicted}
        later = self._later(going, begins)

        def remaining() -> Sequence[Remaining]:
            uids = ((pod, pod["metadata"]["uid"]) for pod in going)
            return sorted(self._remaining(pod, protected.get(uid), later.get(uid)) for pod, uid in uids)

        self.remaining = remaining()
        # The policy decides before the first eviction only. A pod that it protects later is reported and left alone.
        if protected and not self._started:
            left = [protected_pod(pod, pod_class) for pod, pod_class in classes if pod["metadata"]["uid"] in protected]
            names = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in sorted(left))
            raise Refused(f"the policy protects pods of this node: {names}", reason=Reason.DRAIN_REFUSED)
        self._started = not begins
        # Tries of pods that are gone are dropped. A new pod with the same name has another uid.
        alive = {pod["metadata"]["uid"] for pod in going}
        self._tries = {uid: tries for uid, tries in self._tries.items() if uid in alive}
        if begins:
            self._empty_since = None
            return False
        now = self._clock.monotonic()
        if not going:
            first, self._empty_since = self._empty_since, now if self._empty_since is None else self._empty_since
            return first is not None and now - first >= SETTLE
        self._empty_since = None
        free = [pod for pod in going if pod["metadata"]["uid"] not in protected.keys() | later.keys()]
        due = [pod for pod in free if not pod["metadata"].get("deletionTimestamp") and self._of(pod).due <= now]
        first = True
        while due:
            # A round may take long, so the first check is not enough.
            if not first:
                await check_lease()
            group, first = self._group(due), False
            due = [pod for pod in due if pod not in group]
            await asyncio.gather(*(self._evict(pod) for pod in group))
        self.remaining = remaining()
        return False

    def _later(self, going: Sequence[Pod], begins: str) -> Mapping[str, tuple[PodWait, str]]:
        """Return the pods whose turn has not come, by uid, with what they wait for."""
        if begins:
            return {pod["metadata"]["uid"]: (PodWait.LEAD_TIME, f"from {begins} on") for pod in going}
        order = self.policy.order
        step = present_step(order, going)
        now = sorted(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in going if order.step(pod) == step
        )
        return {pod["metadata"]["uid"]: (PodWait.LATER, enumerated(now)) for pod in going if order.step(pod) > step}

    def _group(self, due: Sequence[Pod]) -> Sequence[Pod]:
        """Return the pods to evict next: one of each namespace whose pace is not known, and one of all slow ones.

        A policy or a webhook may take long for an eviction. Together such evictions take so long that each is given up.
        """
        group: list[Pod] = []
        once: set[str] = set()
        for pod in due:
            namespace = pod["metadata"]["namespace"]
            slow = self._slow.get(namespace)
            key = "" if slow else namespace
            if slow is False or key not in once:
                group.append(pod)
                once.add(key)
        return group[:TOGETHER]

    def _of(self, pod: Pod) -> _Try:
        return self._tries.setdefault(pod["metadata"]["uid"], _Try())

    async def _evict(self, pod: Pod) -> None:
        meta, tries = pod["metadata"], self._of(pod)
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        tries.count += 1
        began = self._clock.monotonic()
        try:
            body = eviction(pod, by_agent=self._evictor is None)
            client = self._evictor or self._client
            await client.create(path, body, throttled=1, timeout=EVICTION_TIMEOUT)
        except (Unreachable, Retryable, Refused, Terminal) as fault:
            if isinstance(fault, KubeFault):
                tries.cause, tries.words = cause_of(fault.status, fault.detail)
                pause = pause_after(tries.count, fault.retry_after)
            elif self._evictor is not None and fault.reason == Reason.KUBECONFIG_INVALID:
                # The kubelet replaces its files when it renews its certificate.
                tries.cause, tries.words = PodWait.OTHER, fault.message
                pause = pause_after(tries.count, None)
            else:
                raise
        else:
            # An accepted eviction may have no effect, so it is repeated later.
            tries.cause, tries.words = None, ""
            pause = pause_after(tries.count, None)
        now = self._clock.monotonic()
        self._slow[meta["namespace"]] = now - began > QUICK
        tries.due = now + jittered(pause, random.random())  # noqa: S311

    def _remaining(self, pod: Pod, protected: EvictionClass | None, later: tuple[PodWait, str] | None) -> Remaining:
        if protected is not None:
            return protected_pod(pod, protected)
        tries = self._of(pod)
        return remaining_pod(pod, *(later or (tries.cause, tries.words)))

    async def _orphans(self, pods: Sequence[Pod]) -> frozenset[str]:
        """Return the uids of pods whose DaemonSet was deleted: they are evicted as by ``kubectl drain --force``."""
        owners = {pod["metadata"]["uid"]: owner for pod in pods if (owner := daemon_set_of(pod)) is not None}
        daemon_sets = self._daemon_sets
        unknown = sorted(set(owners.values()) - daemon_sets.keys())[: MOST_DAEMON_SETS - len(daemon_sets)]
        await asyncio.gather(*(self._read(*owner) for owner in unknown))
        return frozenset(uid for uid, owner in owners.items() if not daemon_sets.get(owner, True))

    async def _read(self, namespace: str, name: str) -> None:
        async with self._reads:
            try:
                await self._client.read(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}", KubeObject)
            except NotFound:
                self._daemon_sets[namespace, name] = False
            else:
                self._daemon_sets[namespace, name] = True
