"""The agent's side of the handshake: one reader of the own Node, which feeds the desired config, and one writer of our
annotations on it.

The Node is polled (``kube/poll.py``), not watched: two requests a minute. A config is fetched once for each name, since
controllers never change one that they have named, and is kept in the store: without the API server the agent goes on
with what was desired last. What cannot be fetched because the server is away leaves that in force; what does not exist,
or may not be read, is an answer, and refuses the update with its reason.

Writing is level-triggered: ``tell`` notes what there is to say, and whatever is different on the Node is written, again
and again until it is there. So nothing is lost while the API server is away, and a Node that was made anew, or an
annotation that somebody changed, is put right with the next look.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from nodeagent.core.backoff import delays, jittered
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.report.handshake import (
    REASON,
    RETRY,
    ControllerRequest,
    NodeAnnotations,
    annotations_for,
    differing,
    is_name,
    read_request,
    source_of,
)
from nodeagent.core.report.status import Status
from nodeagent.errors import AgentError, InvalidInput, Refused, Retryable, Unreachable, Unreconcilable
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound
from nodeagent.kube.poll import EVERY, follow

__all__ = ["CONFIGS", "ConfigMemory", "Handshake"]

CONFIGS: Final = (
    "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
    "/apis/nodeagent.org/v1/machineconfigs",
)
"""Where configs are: the machine-config-operator's, and ours for clusters without it (packaging/kubernetes)."""

FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 120.0
"""Seconds between two tries to write."""

REASONS_EVERY: Final = 30.0
"""Seconds between two writes of which the second changes the reason only: of a drain it changes with each pod."""


class ConfigMemory(Protocol):
    """Durable when the call returns."""

    async def fetched(self) -> ConfigSource | None:
        """What was kept last."""
        ...

    async def keep_fetched(self, source: ConfigSource | None) -> None: ...


class Handshake:
    """``changed`` is called when ``desired`` gives another answer than before; with True if an operator requests a
    config that failed once more. ``requested`` records that request before its annotation is removed. ``trouble`` is
    told of each new fault, and None when it is over."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        memory: ConfigMemory,
        *,
        changed: Callable[[bool], None],
        requested: Callable[[ConfigSource], Awaitable[None]] | None = None,
        trouble: Callable[[AgentError | None], None] = lambda _: None,
        every: float = EVERY,
    ) -> None:
        self._client = client
        self._path = f"/api/v1/nodes/{node}"
        self._memory = memory
        self._changed = changed
        self._requested = requested
        self._recorded = False  # the request that the Node shows
        self._trouble = trouble
        self._every = every
        self._source: ConfigSource | None = None
        self._fault: AgentError | None = None  # why there is no desired config although one is named
        self._restored = False
        self._asked = ""  # name of the config that this process has fetched
        self._pending = False  # the Node was read, and could not be dealt with yet
        self._ills: dict[str, str] = {}
        self._request: ControllerRequest | None = None
        self._told: NodeAnnotations | None = None
        self._wake = asyncio.Event()
        self._written = 0.0

    async def desired(self) -> ConfigSource | None:
        """What the Node names, as fetched last; None if it names none. Never asks the API server. Raises ``Refused``
        (``ConfigNotFound``, ``KubeForbidden``), ``InvalidInput`` (``ConfigNameInvalid``), ``Unreconcilable``
        (``ImageLayered``)."""
        await self._restore()
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        return self._source

    def tell(self, status: Status) -> None:
        """Returns at once. The same as before costs nothing."""
        now = annotations_for(status)
        if now != self._told:
            self._told = now
            self._wake.set()

    async def run(self) -> None:
        """For ever. Raises only what the store raises."""
        await self._restore()
        sides = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            await asyncio.gather(*sides)
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)

    async def _restore(self) -> None:
        if not self._restored:
            source = await self._memory.fetched()
            if not self._restored:  # two may wait for the disk
                self._restored, self._source = True, source

    def _well(self, what: str, fault: AgentError | None) -> None:
        reason = fault.reason if fault is not None else ""
        if reason != self._ills.get(what, ""):
            self._ills[what] = reason
            self._trouble(fault)

    # Reading.

    async def _read(self) -> None:
        states = follow(
            self._client,
            self._path,
            every=self._every,
            again=lambda: self._pending,
            trouble=lambda fault: self._well("read", fault),
        )
        async for node in states:
            if node is None:  # not registered yet, or made anew: what was desired still is
                self._request = None
                continue
            self._request = request = read_request(node)
            await self._follow(request)
            self._wake.set()

    async def _follow(self, request: ControllerRequest) -> None:
        before = self._source, str(self._fault or "")
        source, fault = self._source, None
        try:
            source = await self._fetch(request)
            self._well("fetch", None)
        except (Unreachable, Retryable) as passing:
            self._pending = True
            self._well("fetch", passing)
            return
        except AgentError as answer:
            fault = answer
        self._fault, self._pending = fault, fault is not None
        if source != self._source:
            await self._memory.keep_fetched(source)
            self._source = source
        retry = self._heard(request)
        if retry and self._source is not None and self._requested is not None:
            await self._requested(self._source)
        self._recorded = retry
        if retry or before != (self._source, str(self._fault or "")):
            self._changed(retry)

    async def _fetch(self, request: ControllerRequest) -> ConfigSource | None:
        name = request.desired
        if not name:
            return None
        if not is_name(name):
            raise InvalidInput("the Node's desiredConfig is no name of a MachineConfig", reason="ConfigNameInvalid")
        if request.image:
            said = f"the Node wants an image of its own beside {name} (desiredImage)"
            raise Unreconcilable(said, reason="ImageLayered")
        if self._source is not None and name == self._source.name == self._asked:
            return self._source
        for configs in CONFIGS:
            try:
                found = await self._client.get(f"{configs}/{name}")
            except NotFound:
                continue
            source = await asyncio.to_thread(source_of, found)  # a megabyte of JSON
            self._asked = source.name
            return source
        raise Refused(f"there is no MachineConfig {name} in the cluster", reason="ConfigNotFound")

    def _heard(self, request: ControllerRequest) -> bool:
        return not self._pending and self._source is not None and request.retry == self._source.name

    # Writing.

    async def _write(self) -> None:
        pauses = delays(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            await self._wake.wait()
            self._wake.clear()
            changes = self._changes()
            early = self._written + REASONS_EVERY - asyncio.get_running_loop().time()
            if changes.keys() == {REASON} and self._written and early > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(early):
                        await self._wake.wait()
                self._wake.set()
                continue
            try:
                if changes:
                    # No resourceVersion: the keys are ours alone, and others write a Node every few seconds.
                    node = await self._client.patch(self._path, {"metadata": {"annotations": changes}})
                    self._request, self._written = read_request(node), asyncio.get_running_loop().time()
            except NotFound:
                continue  # the reader says when there is a Node again
            except AgentError as fault:
                self._well("write", fault)
                await asyncio.sleep(jittered(next(pauses), random.random()))  # noqa: S311 - spreads load, no secret
                self._wake.set()
                continue
            self._well("write", None)
            pauses = delays(FIRST_PAUSE, LONGEST_PAUSE)

    def _changes(self) -> dict[str, str | None]:
        if self._request is None:
            return {}
        told: dict[str, str] = differing(self._told, self._request) if self._told is not None else {}
        return {**told, RETRY: None} if self._recorded and self._heard(self._request) else {**told}
