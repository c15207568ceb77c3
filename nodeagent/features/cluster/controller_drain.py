# SPDX-License-Identifier: Apache-2.0
"""Requests a drain from the machine-config-controller, which cordons, evicts and uncordons. See ``ports.NodeDrainer``.

The request is an annotation of the Node and so is the answer, so a restart in the middle finds both and waits on. If no
controller has ever written to the Node, or the settings say so, nodeagent drains the node itself (``EitherDrain``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from nodeagent.core.backoff import jittered
from nodeagent.core.coordination.annotations import DRAIN, ControllerRequest, read_request
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable
from nodeagent.features.cluster.decide.annotations import drain_request, uncordon_request
from nodeagent.features.cluster.decide.drain import (
    DrainPolicy,
    EvictionClass,
    PodWait,
    Remaining,
    classify,
    remaining_pod,
)
from nodeagent.features.cluster.drain import pods_of
from nodeagent.kube.client import KubeClient
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import NodeDrainer

# Seconds between two reads of the Node, as in the machine-config-daemon: a drain takes minutes.
POLL: Final = 10.0
# Seconds between two lists of the remaining pods.
REPORT: Final = 60.0
# Seconds for a request that only improves a message.
ADVICE: Final = 10.0
# Seconds for an uncordon, one write of the controller; below the deadline of the phase.
UNCORDON: Final = 240.0


class ControllerDrain:
    """``check_lease`` is called before each read and raises if the lease is lost. ``report`` receives the remaining
    pods once a minute: the controller names them in its log only."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        check_lease: Callable[[str], Awaitable[None]],
        report: Callable[[Sequence[Remaining]], None] = lambda _: None,
        policy: Callable[[], DrainPolicy] = DrainPolicy,
    ) -> None:
        self._client = client
        self._node = node
        self._path = f"/api/v1/nodes/{node}"
        self.check_lease = check_lease
        self._report = report
        self._policy = policy

    async def drain(self, operation: str, deadline: float) -> None:
        """Wait until the controller has drained the node. The only node of a control plane is not drained.

        Raises ``Refused``: ``DrainTimedOut`` after ``deadline`` seconds, ``NodeUnknown``; and what ``check_lease``
        raises.
        """
        config, reported = "", float("-inf")

        async def wanted(request: ControllerRequest) -> str | None:
            nonlocal config
            await self.check_lease(operation)
            # A config that is desired later belongs to the next update.
            config = config or request.desired or operation
            value = None if request.single else drain_request(request, config)
            if value is not None:
                await report()
            return value

        async def report() -> None:
            nonlocal reported
            now = asyncio.get_running_loop().time()
            if now >= reported + REPORT:
                reported = now
                # Only for the status.
                with suppress(AgentError):
                    self._report(await self._remaining())

        await self._until_answered(wanted, deadline, "the drain of")

    async def uncordon(self, operation: str) -> None:  # noqa: ARG002 - the annotation has the drain
        """Wait until the controller has uncordoned the node. Does nothing if no drain was requested."""

        async def wanted(request: ControllerRequest) -> str | None:
            return uncordon_request(request)

        await self._until_answered(wanted, UNCORDON, "the uncordoning of")

    async def advice(self) -> str:
        """Return the command for an admin: the controller gives no config to a cordoned node."""
        try:
            async with asyncio.timeout(ADVICE):
                request = await self.request()
        except (AgentError, TimeoutError):
            return ""
        if not request.cordoned or not request.drain.startswith("drain-"):
            return ""
        return f"the controller gives a cordoned node no other config: run kubectl uncordon {self._node} to continue"

    async def _remaining(self) -> Sequence[Remaining]:
        pods = await pods_of(self._client, self._node)
        going = (pod for pod in pods if classify(pod, self._policy()) is not EvictionClass.STAYS)
        # Only the log of the controller has the API server's reason.
        return sorted(remaining_pod(pod, PodWait.CONTROLLER) for pod in going)

    async def request(self) -> ControllerRequest:
        return read_request(await self._client.node(self._node))

    async def _until_answered(
        self, wanted: Callable[[ControllerRequest], Awaitable[str | None]], deadline: float, what: str
    ) -> None:
        try:
            async with asyncio.timeout(deadline):
                while True:
                    # While the API server is down, the request waits, but not the deadline.
                    with suppress(Unreachable, Retryable):
                        request = await self.request()
                        value = await wanted(request)
                        if value is None:
                            return
                        if value != request.drain:
                            await self._client.patch(self._path, {"metadata": {"annotations": {DRAIN: value}}})
                    await asyncio.sleep(jittered(POLL, random.random()))  # noqa: S311 - spreads load, no secret
        except TimeoutError:
            message = f"the machine-config-controller did not answer {what} node {self._node} in {deadline:g} s"
            raise Refused(message, reason=Reason.DRAIN_TIMED_OUT) from None


class EitherDrain:
    """Drains with the controller if ``controller`` is true, or None and the controller has written to the Node.

    ``controller`` may be changed, and counts from the next drain on.
    """

    def __init__(self, own: NodeDrainer, by_controller: ControllerDrain, *, controller: bool | None = None) -> None:
        self.controller = controller
        self._own = own
        self._by_controller = by_controller

    async def drain(self, operation: str, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        controller = self.controller
        while controller is None:
            with suppress(Unreachable, Retryable):
                await self._by_controller.check_lease(operation)
                controller = (await self._by_controller.request()).controlled
                break
            if loop.time() > end:
                raise Refused(f"the API server did not answer in {deadline:g} s", reason=Reason.DRAIN_TIMED_OUT)
            await asyncio.sleep(jittered(POLL, random.random()))  # noqa: S311
        await (self._by_controller if controller else self._own).drain(operation, max(0.0, end - loop.time()))

    async def uncordon(self, operation: str) -> None:
        """Each drainer undoes only its own cordon, so both are called: the setting may have changed since the drain."""
        await self._own.uncordon(operation)
        await self._by_controller.uncordon(operation)

    async def advice(self) -> str:
        return await self._by_controller.advice()
