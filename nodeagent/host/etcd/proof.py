# SPDX-License-Identifier: Apache-2.0
"""Whether the member of etcd on this host works, by its own answers: after its static pod was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from nodeagent.core.etcd.quorum import member_trouble
from nodeagent.errors import Unreachable
from nodeagent.host.etcd.client import TIMEOUT, EtcdAccess, EtcdClient, endpoints_of, open_client
from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.options import Endpoints
from nodeagent.host.etcd.snapshot import save_snapshot
from nodeagent.host.etcd.survey import survey_cluster
from nodeagent.reasons import Reason

T = TypeVar("T")


class MemberProof:
    """``snapshot`` is the file for the keyspace. ``timeout`` of one request, in seconds. Paths below ``root`` are those
    of the host."""

    def __init__(self, snapshot: Path, *, timeout: float | None = None, root: Path = Path("/")) -> None:
        self._snapshot = snapshot
        self._timeout = timeout
        self._root = root

    async def identity(self) -> str:
        """Return the id of the member, "" if it does not answer."""
        with suppress(Unreachable):
            client, where, _ = await self._open()
            return (await _first(where, client.state))[0]
        return ""

    async def cluster_version(self) -> str:
        """Return the version of its cluster, "" if the member does not answer."""
        with suppress(Unreachable):
            client, where, _ = await self._open()
            return await _first(where, client.cluster_version)
        return ""

    async def trouble(self, expected: str = "") -> str:
        """Return the trouble of the member, "" if it has none. ``expected`` as in ``member_trouble``."""
        try:
            client, where, name = await self._open()
            # A member that does not serve is a trouble even if the survey of all finds none.
            if trouble := await _first(where, client.unready):
                return trouble
            return member_trouble(await survey_cluster(client, where, name), expected)
        except Unreachable as fault:
            return fault.message

    async def snapshot(self) -> None:
        """Save the keyspace, which replaces an earlier file. Raises as ``save_snapshot``."""
        client, where, _ = await self._open()
        await _first(where, lambda url: save_snapshot(client, url, self._snapshot))

    async def _open(self) -> tuple[EtcdClient, Endpoints, str]:
        """Return a client, the addresses and the name of the member."""
        return await asyncio.to_thread(self._connect)

    def _connect(self) -> tuple[EtcdClient, Endpoints, str]:
        # Detected at each query: the replaced pod may have other addresses and certificates.
        member = detect(self._root)
        if member is None:
            raise _unreachable("no member is on this host")
        where = endpoints_of(member.options, EtcdAccess())
        client = open_client(member.options, EtcdAccess(), where, self._timeout or TIMEOUT)
        return client, where, member.options.get("name")


def _unreachable(message: str) -> Unreachable:
    return Unreachable(message, reason=Reason.ETCD_UNREACHABLE)


async def _first(where: Endpoints, ask: Callable[[str], Awaitable[T]]) -> T:
    """Return the first answer. Raises ``Unreachable`` if no address has one."""
    fault = _unreachable("the member has no address for clients")
    # The addresses are of one member, so the first answer is as good as any.
    for url in where.ours:
        try:
            return await ask(url)
        except Unreachable as error:
            fault = error
    raise fault
