"""A drain that somebody else makes: the machine-config-controller cordons, evicts and uncordons, and we ask and wait.

Implements ``ports.NodeDrainer``. The request is an annotation of the Node and so is the answer, so a restart in the
middle finds both and waits on. If no controller has ever written to the Node, or the settings say so, nodeagent drains
the node itself (``EitherDrain``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from nodeagent.core.backoff import jittered
from nodeagent.core.coordination.drain import DrainPolicy, EvictionClass, Remaining, awaited_pod, classify
from nodeagent.core.report.handshake import DRAIN, ControllerRequest, drain_request, read_request, uncordon_request
from nodeagent.core.update.ports import NodeDrainer
from nodeagent.errors import AgentError, Refused, Retryable, Unreachable
from nodeagent.kube.client import KubeClient
from nodeagent.kube.drain import pods_of
from nodeagent.kube.errors import NotFound

__all__ = ["ControllerDrain", "EitherDrain"]

LOOK: Final = 10.0  # seconds between two looks, as the machine-config-daemon has it: a drain takes minutes
REPORT: Final = 60.0  # seconds between two lists of the pods that are left
ADVICE: Final = 10.0  # seconds for a look that serves people only
UNCORDON: Final = 240.0  # seconds for an uncordon, which is one write of the controller; below the phase's deadline


class ControllerDrain:
    """``still_ours`` is asked before each look and raises if the lease is not ours any more. ``tell`` gets the pods
    that are left, once a minute: the controller itself names them in its log only."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        still_ours: Callable[[str], Awaitable[None]],
        tell: Callable[[Sequence[Remaining]], None] = lambda _: None,
        policy: Callable[[], DrainPolicy] = DrainPolicy,
    ) -> None:
        self._client = client
        self._node = node
        self._path = f"/api/v1/nodes/{node}"
        self.still_ours = still_ours
        self._tell = tell
        self._policy = policy

    async def drain(self, operation: str, deadline: float) -> None:
        """Raises ``Refused``: ``DrainTimedOut`` after ``deadline`` seconds, ``NodeUnknown``, or what ``still_ours``
        raises. The only node of a control plane is not drained, as by the machine-config-daemon."""
        config, reported = "", float("-inf")

        async def wish(request: ControllerRequest) -> str | None:
            nonlocal config
            await self.still_ours(operation)
            # One that is desired meanwhile is the next update's: this drain is for the one that it began with.
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
                with suppress(AgentError):  # of use to people only
                    self._tell(await self._left())

        await self._until_answered(wish, deadline, "the drain of")

    async def uncordon(self, operation: str) -> None:  # noqa: ARG002 - whose drain it was is in the annotation
        """Does nothing where no drain was asked for."""

        async def wish(request: ControllerRequest) -> str | None:
            return uncordon_request(request)

        await self._until_answered(wish, UNCORDON, "the uncordoning of")

    async def advice(self) -> str:
        """The controller gives no config to a cordoned node, and counts it as unavailable."""
        try:
            async with asyncio.timeout(ADVICE):
                request = await self.request()
        except (AgentError, TimeoutError):
            return ""
        if not request.cordoned or not request.drain.startswith("drain-"):
            return ""
        return f"the controller gives a cordoned node no other config: kubectl uncordon {self._node} when it may go on"

    async def _left(self) -> Sequence[Remaining]:
        pods = await pods_of(self._client, self._node)
        return sorted(awaited_pod(pod) for pod in pods if classify(pod, self._policy()) is not EvictionClass.STAYS)

    async def request(self) -> ControllerRequest:
        try:
            return read_request(await self._client.get(self._path))
        except NotFound:
            raise Refused(f"there is no Node {self._node} in the cluster", reason="NodeUnknown") from None

    async def _until_answered(
        self, wish: Callable[[ControllerRequest], Awaitable[str | None]], deadline: float, what: str
    ) -> None:
        try:
            async with asyncio.timeout(deadline):
                while True:
                    with suppress(Unreachable, Retryable):  # the API server is away: the wish waits, not the deadline
                        request = await self.request()
                        value = await wish(request)
                        if value is None:
                            return
                        if value != request.drain:
                            await self._client.patch(self._path, {"metadata": {"annotations": {DRAIN: value}}})
                    await asyncio.sleep(jittered(LOOK, random.random()))  # noqa: S311 - spreads load, no secret
        except TimeoutError:
            said = f"the machine-config-controller did not answer {what} node {self._node} in {deadline:g} s"
            raise Refused(said, reason="DrainTimedOut") from None


class EitherDrain:
    """``controller`` None: whoever is there. It may be changed, and counts from the next drain on."""

    def __init__(self, own: NodeDrainer, theirs: ControllerDrain, *, controller: bool | None = None) -> None:
        self.controller = controller
        self._own = own
        self._theirs = theirs

    async def drain(self, operation: str, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        controller = self.controller
        while controller is None:
            with suppress(Unreachable, Retryable):
                await self._theirs.still_ours(operation)
                controller = (await self._theirs.request()).controlled
                break
            if loop.time() > end:
                raise Refused(f"the API server did not answer in {deadline:g} s", reason="DrainTimedOut")
            await asyncio.sleep(jittered(LOOK, random.random()))  # noqa: S311
        await (self._theirs if controller else self._own).drain(operation, max(0.0, end - loop.time()))

    async def uncordon(self, operation: str) -> None:
        """Each undoes what is its own only, so both may be asked: the setting may have changed in between."""
        await self._own.uncordon(operation)
        await self._theirs.uncordon(operation)

    async def advice(self) -> str:
        return await self._theirs.advice()
