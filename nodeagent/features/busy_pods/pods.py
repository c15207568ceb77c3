# SPDX-License-Identifier: Apache-2.0
"""The pods of this node that a selector matches and that have not finished, by the API server.

It filters by node, phase and labels, so its answers do not grow with the cluster. A right that the drain needs anyway
suffices: to list pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Required, TypedDict

from nodeagent.core.coordination.kube_objects import NamespacedMeta, PodStatus
from nodeagent.errors import AgentError, Refused
from nodeagent.features.busy_pods.events import BusyPod
from nodeagent.features.busy_pods.reasons import BusyReason
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.kube.errors import ServerFault

if TYPE_CHECKING:
    from nodeagent.kube.client import KubeClient

# Seconds for all requests of one check.
TIMEOUT: Final = 20.0

# A pod that is terminating has not finished: its work may still end well. A finished one may stay for days.
FINISHED: Final = ("Succeeded", "Failed")


class PlacedSpec(TypedDict, total=False):
    nodeName: str | None


class PlacedPod(TypedDict, total=False):
    metadata: Required[NamespacedMeta]
    spec: PlacedSpec | None
    status: PodStatus | None


class KubeBusyPods:
    """``client`` is None for a plan without the daemon, which asks no server."""

    def __init__(
        self, client: KubeClient | None, node: str, settings: BusyPodSettings, timeout: float = TIMEOUT
    ) -> None:
        self._client = client
        self._node = node
        self._timeout = timeout
        self.settings = settings

    async def running(self) -> Sequence[BusyPod]:
        """Return the pods, sorted.

        Raises ``Refused`` (``BusyPodsUnknown``) without a usable answer, and ``KubeForbidden``.
        """
        selectors = self.settings.selectors
        if self._client is None or not selectors:
            return ()
        try:
            async with asyncio.timeout(self._timeout):
                lists = [await self._matching(self._client, selector) for selector in selectors]
        except TimeoutError:
            raise _unknown(f"no answer in {self._timeout:g} s") from None
        except Refused:
            # The message names the right that is missing.
            raise
        except AgentError as fault:
            raise _unknown(fault.message) from fault
        found: dict[str, BusyPod] = {}
        for selector, pods in zip(selectors, lists, strict=True):
            for pod in pods:
                found.setdefault(pod["uid"], BusyPod(pod["namespace"], pod["name"], selector))
        return sorted(found.values())

    async def _matching(self, client: KubeClient, selector: str) -> Sequence[NamespacedMeta]:
        fields = ",".join((f"spec.nodeName={self._node}", *(f"status.phase!={phase}" for phase in FINISHED)))
        pods = await client.objects("/api/v1/pods", PlacedPod, fieldSelector=fields, labelSelector=selector)
        # One that filters by nothing would make every node of the cluster wait for every pod.
        if any((pod.get("spec") or {}).get("nodeName") != self._node for pod in pods):
            raise ServerFault("GET /api/v1/pods: the answer has pods of another node")
        namespaces = self.settings.namespaces
        return [
            pod["metadata"]
            for pod in pods
            if (not namespaces or pod["metadata"]["namespace"] in namespaces)
            and (pod.get("status") or {}).get("phase") not in FINISHED
        ]


def _unknown(cause: str) -> Refused:
    error = Refused(f"it is not known which pods run on this node: {cause}", reason=BusyReason.BUSY_PODS_UNKNOWN)
    error.subject = "pods"
    return error
