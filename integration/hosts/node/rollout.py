# SPDX-License-Identifier: Apache-2.0
"""Takes changes through a fleet while clients use it, and records what they noticed."""

from __future__ import annotations

import base64
import http.client
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from integration.cluster.api import ApiError
from integration.hosts.errors import CommandFailed, HostGone, HostTimeout
from integration.hosts.node.fleet import LEAST, NODES, Fleet, request
from integration.hosts.node.workloads import PORT

PERIOD: Final = 0.05  # seconds between two requests of a client
WATCH: Final = 0.2  # seconds between two looks at the fleet
# All members share one disk here: one that is slow to answer does not refuse the connection, and answers after it.
SILENCE: Final = 3.0
KEY: Final = base64.b64encode(b"client").decode()
TIMEOUT: Final = 600.0  # seconds for a change to go through the fleet, on a busy machine


@dataclass
class ClientRecord:
    """`failed` are attempts; each was repeated elsewhere until one succeeded. `longest` is in seconds, from the first
    attempt of a request to its answer."""

    requests: int = 0
    failed: int = 0
    longest: float = 0.0


@dataclass
class Observed:
    """The observations during a change of the whole fleet. Times are seconds since its begin."""

    seconds: float = 0.0
    etcd: ClientRecord = field(default_factory=ClientRecord)
    service: ClientRecord = field(default_factory=ClientRecord)
    most_members_away: int = 0
    fewest_pods: int = 99
    most_slots: int = 0
    leaders_stopped: list[str] = field(default_factory=list)
    """Members that led when they stopped to answer."""
    away: list[tuple[str, float, float]] = field(default_factory=list)
    """Node, and when its member of etcd stopped to answer and answered again."""
    reboots: int = 0


class Watch:
    """Two clients and an observer, from entering to leaving."""

    def __init__(self, fleet: Fleet) -> None:
        self.seen = Observed()
        self._fleet = fleet
        self._stop = threading.Event()
        self._begun = time.monotonic()
        self._endpoints: Sequence[str] = fleet.endpoints()
        self._away: dict[str, float] = {}
        self._silent: dict[str, tuple[float, bool]] = {}
        self._leader = ""
        self._faults: list[BaseException] = []
        network = fleet.network
        self._threads = [
            network.thread(partial(self._kept, self._put), "etcd-client"),
            network.thread(partial(self._kept, self._query), "service-client"),
            network.thread(partial(self._kept, self._members), "members"),
            threading.Thread(target=partial(self._kept, self._cluster), name="cluster", daemon=True),
        ]

    def __enter__(self) -> Observed:
        for thread in self._threads:
            thread.start()
        return self.seen

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.seen.seconds = time.monotonic() - self._begun
        if self._faults:
            raise self._faults[0]

    def _kept(self, work: Callable[[], None]) -> None:
        """Keep what ends an observer: a thread that is gone sees no violation."""
        try:
            work()
        except BaseException as error:
            self._faults.append(error)

    def _put(self) -> None:
        members = [self._fleet.network.address(node) for node in NODES]

        def put(attempt: int) -> None:
            value = base64.b64encode(str(self.seen.etcd.requests).encode()).decode()
            request(members[attempt % len(members)], 2379, "/v3/kv/put", {"key": KEY, "value": value})

        self._client(self.seen.etcd, put)

    def _query(self) -> None:
        def query(attempt: int) -> None:
            endpoints = self._endpoints
            if not endpoints:
                raise ConnectionError("the service has no endpoint")
            request(endpoints[(self.seen.service.requests + attempt) % len(endpoints)], PORT, "/")

        self._client(self.seen.service, query)

    def _client(self, record: ClientRecord, work: Callable[[int], None]) -> None:
        """A member that answered is asked again; after a failure the next one is."""
        attempt = 0
        while not self._stop.wait(PERIOD):
            begun = time.monotonic()
            while not self._stop.is_set():
                try:
                    work(attempt)
                except (OSError, http.client.HTTPException, ValueError):
                    record.failed += 1
                    attempt += 1
                    time.sleep(0.01)
                else:
                    break
            record.requests += 1
            record.longest = max(record.longest, time.monotonic() - begun)

    def _members(self) -> None:
        network = self._fleet.network
        while not self._stop.wait(WATCH):
            now = time.monotonic() - self._begun
            leader = ""
            for node in NODES:
                try:
                    request(network.address(node), 2379, "/readyz", timeout=0.5)
                    status: Any = request(network.address(node), 2379, "/v3/maintenance/status", {}, timeout=0.5)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    since, led = self._silent.setdefault(node, (now, self._leader == node))
                    slow = isinstance(error, TimeoutError) and now - since < SILENCE
                    if node not in self._away and not slow:
                        self._away[node] = since
                        self.seen.leaders_stopped += [node] if led else []
                    continue
                self._silent.pop(node, None)
                # A member without a leader leaves the field out.
                if status.get("leader") == status["header"]["member_id"]:
                    leader = node
                if node in self._away:
                    self.seen.away.append((node, round(self._away.pop(node), 1), round(now, 1)))
            self._leader = leader
            self.seen.most_members_away = max(self.seen.most_members_away, len(self._away))

    def _cluster(self) -> None:
        while not self._stop.wait(WATCH):
            with suppress(ApiError, OSError):
                self._endpoints = self._fleet.endpoints()
                self.seen.fewest_pods = min(self.seen.fewest_pods, len(self._endpoints))
                self.seen.most_slots = max(self.seen.most_slots, len(self._fleet.slots()))


def roll(fleet: Fleet, config: str, **changes: Any) -> Observed:
    """Take a change through the fleet, and return what was seen until each node had it."""
    reboots = sum(host.reboots for host in fleet.hosts.values())
    with Watch(fleet) as seen:
        fleet.apply(config, **changes)
        deadline = time.monotonic() + TIMEOUT
        while True:
            with suppress(CommandFailed, HostGone):
                if fleet.done(config):
                    break
            if time.monotonic() > deadline:
                raise HostTimeout(f"{config} is not on all nodes after {TIMEOUT:g} s")
            time.sleep(0.5)
        time.sleep(2)
    seen.reboots = sum(host.reboots for host in fleet.hosts.values()) - reboots
    return seen


def violations(seen: Observed) -> list[str]:
    """The promises that were broken, as text."""
    found = []
    if seen.most_members_away > 1:
        found.append(f"{seen.most_members_away} members of etcd were away at once")
    if seen.fewest_pods < LEAST:
        found.append(f"only {seen.fewest_pods} pods of the service were ready")
    if seen.most_slots > 1:
        found.append(f"{seen.most_slots} nodes were disrupted at once")
    if seen.leaders_stopped:
        found.append(f"a leader was stopped: {', '.join(seen.leaders_stopped)}")
    return found
