# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the handshake: it reads the desired config from the own Node, and writes its annotations to it.

The Node is read, and then watched by its name (``node_watch``). Where the API server refuses the watch, or while the
named config is not available, it is polled: two requests a minute, with jitter so that the hosts of a fleet spread. A
config is fetched once per name, since controllers never change a config that they have named, and is kept in the store:
without the API server, the last desired config stays. A config that does not exist, or must not be read, refuses the
update with its reason.

Writing is level-triggered: ``report`` stores the annotations, and those that differ on the Node are written until they
are there. So nothing is lost while the API server is down, and a Node that was created again, or an annotation that was
changed, is corrected at the next read.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from nodeagent.core.backoff import delays, jittered
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.coordination.annotations import REASON, RETRY, ControllerRequest, read_request
from nodeagent.core.coordination.kube_objects import KubeObject, Node
from nodeagent.errors import AgentError, InvalidInput, Refused, Retryable, Unreachable, Unreconcilable
from nodeagent.features.cluster.decide.annotations import (
    NodeAnnotations,
    annotations_for,
    differing,
    is_name,
    source_of,
)
from nodeagent.features.cluster.node_watch import NodeWatch, WatchEnd, is_older, version_of
from nodeagent.features.cluster.reasons import ClusterReason
from nodeagent.kube.client import KubeClient
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import NotFound
from nodeagent.kube.watch import WatchedChange
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event

# Configs of the machine-config-operator, and of nodeagent for clusters without it (packaging/kubernetes).
CONFIGS: Final = (
    "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
    "/apis/nodeagent.org/v1/machineconfigs",
)

# Seconds between two reads of a Node that is not watched, and between two attempts after a fault.
EVERY: Final = 30.0
READ_FIRST_PAUSE: Final = 5.0
READ_LONGEST_PAUSE: Final = 300.0

# Seconds between two attempts to write.
WRITE_FIRST_PAUSE: Final = 2.0
WRITE_LONGEST_PAUSE: Final = 120.0

# Seconds between two writes of which the second changes only the reason: a drain changes it with each pod.
REASONS_EVERY: Final = 30.0


class ConfigMemory(Protocol):
    """Durable when the call returns."""

    async def fetched(self) -> ConfigSource | None:
        """Return the config that was kept last."""
        ...

    async def keep_fetched(self, source: ConfigSource | None) -> None: ...


class Handshake:
    """``changed`` is called when ``desired`` returns another config; with True if an operator requests a config that
    failed. ``requested`` records that request before its annotation is removed. ``on_error`` receives each new fault,
    and None when it is over."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        memory: ConfigMemory,
        *,
        changed: Callable[[bool], None],
        requested: Callable[[ConfigSource], Awaitable[None]] | None = None,
        on_error: Callable[[AgentError | None], None] = lambda _: None,
        every: float = EVERY,
        watch: NodeWatch | None = None,
    ) -> None:
        self._client = client
        self._watch = watch or NodeWatch(client, node)
        self._path = f"/api/v1/nodes/{node}"
        self._memory = memory
        self._changed = changed
        self._requested = requested
        # The request that the Node shows.
        self._recorded = False
        self._on_error = on_error
        self._every = every
        self._source: ConfigSource | None = None
        # Why the named config is not available.
        self._fault: AgentError | None = None
        self._restored = False
        # Name of the config that this process fetched.
        self._fetched = ""
        self._configs: tuple[str, ...] = CONFIGS
        # The Node was read, and its config was not fetched yet.
        self._pending = False
        self._faults: dict[str, str] = {}
        self._request: ControllerRequest | None = None
        # The request that was followed last, and the version of the Node that had it.
        self._followed: ControllerRequest | None = None
        self._version = ""
        # The newest resourceVersion of the Node that was seen.
        self._newest = ""
        self._wanted: NodeAnnotations | None = None
        self._wake = asyncio.Event()
        self._written = 0.0

    async def desired(self) -> ConfigSource | None:
        """Return the config that the Node names, as it was fetched last; None if the Node names none. Sends no request.

        Raises ``Refused`` (``ConfigNotFound``, ``KubeForbidden``), ``InvalidInput`` (``ConfigNameInvalid``),
        ``Unreconcilable`` (``ImageLayered``).
        """
        await self._restore()
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        return self._source

    def sink(self, event: Event, status: Status) -> None:  # noqa: ARG002 - the status has all
        # At the start of the daemon, the annotations of the Node may still be those of the previous process.
        self.report(status)

    def report(self, status: Status) -> None:
        """Write the annotations of ``status`` in the background, if the Node has others."""
        self._wanted = annotations_for(status)
        self._wake.set()

    async def run(self) -> None:
        """Read and write without end. Raises only what the store raises."""
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
            # Another call may have waited for the disk.
            if not self._restored:
                self._restored, self._source = True, source

    def _note_fault(self, what: str, fault: AgentError | None) -> None:
        reason = fault.reason if fault is not None else ""
        if reason != self._faults.get(what, ""):
            self._faults[what] = reason
            self._on_error(fault)

    # Reading.

    async def _read(self) -> None:
        pauses = delays(READ_FIRST_PAUSE, READ_LONGEST_PAUSE)
        while True:
            node: Node | None = None
            try:
                with suppress(NotFound):
                    node = await self._client.read(self._path, Node)
            except AgentError as fault:
                self._note_fault("read", fault)
                await asyncio.sleep(jittered(next(pauses), random.random()))  # noqa: S311
                continue
            again = self._faults.get("read", "") != ""
            self._note_fault("read", None)
            pauses = delays(READ_FIRST_PAUSE, READ_LONGEST_PAUSE)
            end = WatchEnd.POLL
            if node is None:
                # Not registered yet, or created again: the desired config stays.
                self._request, self._version = None, ""
            else:
                position = self._newest = node["metadata"]["resourceVersion"]
                if (version := version_of(node["metadata"])) != self._version or self._pending:
                    self._version = version
                    self._request = request = _request_of(node)
                    await self._follow(request)
                    self._wake.set()
                if not self._pending and not again:
                    end = await self._watch.follow(position, self._take)
            # The agents of a fleet that lost the API server at one moment spread over a whole interval at once.
            if again or end is WatchEnd.SPREAD:
                await asyncio.sleep(self._every * random.uniform(0.2, 1.2))  # noqa: S311
            elif end is WatchEnd.POLL:
                await asyncio.sleep(jittered(self._every, random.random()))  # noqa: S311

    async def _take(self, change: WatchedChange) -> bool:
        """Follow a change of the Node. Return whether the watch suffices: a config that is not there is fetched again
        without a change of the Node."""
        # A cache may be behind the last read, and an answer to a write arrives before the events of earlier writes.
        if change.item is None or is_older(change.position, self._newest):
            return True
        self._newest = change.position
        if change.deleted:
            self._request, self._version = None, ""
            return True
        version, request = version_of(change.item["metadata"]), _request_of(change.item)
        recreated = version.partition("/")[0] != self._version.partition("/")[0]
        self._version = version
        # The kubelet writes the Node more often than all others.
        if recreated or request != self._request:
            self._request = request
            self._wake.set()
        if recreated or request != self._followed:
            if request.desired != self._fetched and not request.controlled:
                # An admin may have given it to all nodes at once. A controller chooses a few.
                await asyncio.sleep(self._every * random.random())  # noqa: S311 - spreads load, no secret
            await self._follow(request)
            self._wake.set()
        return not self._pending

    async def _follow(self, request: ControllerRequest) -> None:
        self._followed = request
        before = self._source, str(self._fault or "")
        source, fault = self._source, None
        try:
            source = await self._fetch(request)
            self._note_fault("fetch", None)
        except (Unreachable, Retryable) as passing:
            self._pending = True
            self._note_fault("fetch", passing)
            return
        except AgentError as answer:
            fault = answer
        self._fault, self._pending = fault, fault is not None
        if source != self._source:
            await self._memory.keep_fetched(source)
            self._source = source
        retry = self._retries(request)
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
            raise InvalidInput(
                "the Node's desiredConfig is not a name of a MachineConfig", reason=ClusterReason.CONFIG_NAME_INVALID
            )
        if request.image:
            message = f"the Node requests an image of its own beside {name} (desiredImage)"
            raise Unreconcilable(message, reason=ClusterReason.IMAGE_LAYERED)
        if self._source is not None and name == self._source.name == self._fetched:
            return self._source
        # All nodes of a cluster may fetch it within half a minute. Only the cache of an API server may not have it yet.
        for query in ({"resourceVersion": "0"}, {}):
            for configs in self._configs:
                try:
                    config = await self._client.get(f"{configs}/{name}", **query)
                except NotFound:
                    continue
                decoded(KubeObject, config, f"GET {configs}/{name}")
                # A megabyte of JSON.
                source = await asyncio.to_thread(source_of, config)
                self._fetched = source.name
                # The next one is in the same group.
                self._configs = (configs, *(other for other in CONFIGS if other != configs))
                return source
        raise Refused(f"there is no MachineConfig {name} in the cluster", reason=ClusterReason.CONFIG_NOT_FOUND)

    def _retries(self, request: ControllerRequest) -> bool:
        return not self._pending and self._source is not None and request.retry == self._source.name

    # Writing.

    async def _write(self) -> None:
        pauses = delays(WRITE_FIRST_PAUSE, WRITE_LONGEST_PAUSE)
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
                    # No resourceVersion: only nodeagent writes these keys, and others write a Node every few seconds.
                    answer = await self._client.patch(self._path, {"metadata": {"annotations": changes}})
                    node = decoded(Node, answer, f"PATCH {self._path}")
                    self._request, self._written = _request_of(node), asyncio.get_running_loop().time()
                    self._newest = node["metadata"]["resourceVersion"]
            except NotFound:
                # The reader wakes this task when the Node exists again.
                continue
            except AgentError as fault:
                self._note_fault("write", fault)
                await asyncio.sleep(jittered(next(pauses), random.random()))  # noqa: S311 - spreads load, no secret
                self._wake.set()
                continue
            self._note_fault("write", None)
            pauses = delays(WRITE_FIRST_PAUSE, WRITE_LONGEST_PAUSE)

    def _changes(self) -> dict[str, str | None]:
        if self._request is None:
            return {}
        wanted: dict[str, str] = differing(self._wanted, self._request) if self._wanted is not None else {}
        return {**wanted, RETRY: None} if self._recorded and self._retries(self._request) else {**wanted}


def _request_of(node: Node | KubeObject) -> ControllerRequest:
    # A watch brings the metadata only, so that the cordon would differ from that of a read.
    return read_request({"metadata": node["metadata"]})
