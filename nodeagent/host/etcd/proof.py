"""Whether the member of etcd on this host works, by its own answers: after its static pod was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from nodeagent.core.etcd.member_health import member_trouble
from nodeagent.host.etcd.access import EtcdAccess, endpoints_of, open_client
from nodeagent.host.etcd.client import TIMEOUT, EtcdClient, EtcdFault
from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.options import Endpoints
from nodeagent.host.etcd.quorum import survey_cluster
from nodeagent.host.etcd.snapshot import save_snapshot

__all__ = ["MemberProof"]

T = TypeVar("T")


class MemberProof:
    """``snapshot`` is the file for the keyspace. ``timeout`` of one request, in seconds. Paths below ``root`` are those
    of the host."""

    def __init__(self, snapshot: Path, *, timeout: float = TIMEOUT, root: Path = Path("/")) -> None:
        self._snapshot = snapshot
        self._timeout = timeout
        self._root = root

    async def identity(self) -> str:
        """Return the id of the member, "" if it does not answer."""
        found = await self._first(EtcdClient.state)
        return "" if found is None else found[0]

    async def cluster_version(self) -> str:
        """Return the version of its cluster, "" if the member does not answer."""
        return await self._first(EtcdClient.cluster_version) or ""

    async def trouble(self, expected: str = "") -> str:
        """Return what is wrong with the member, "" if nothing is. ``expected`` as in ``member_trouble``."""
        try:
            client, where, name = await self._open()
            if why := await _unready(client, where):
                return why
            return member_trouble(await survey_cluster(client, where, name), expected)
        except EtcdFault as fault:
            return fault.message

    async def snapshot(self) -> None:
        """Save the keyspace, which replaces an earlier file. Raises as ``save_snapshot``."""
        client, where, _ = await self._open()
        fault = EtcdFault("the member has no address for clients")
        for url in where.ours:
            try:
                await save_snapshot(client, url, self._snapshot)
            except EtcdFault as error:
                fault = error
            else:
                return
        raise fault

    async def _first(self, ask: Callable[[EtcdClient, str], Awaitable[T]]) -> T | None:
        """Return the first answer of an address of the member, None if none answers."""
        with suppress(EtcdFault):
            client, where, _ = await self._open()
            for url in where.ours:
                with suppress(EtcdFault):
                    return await ask(client, url)
        return None

    async def _open(self) -> tuple[EtcdClient, Endpoints, str]:
        found = await asyncio.to_thread(detect, self._root)
        if found is None:
            raise EtcdFault("no member is on this host")
        where = endpoints_of(found.options, EtcdAccess())
        client = await asyncio.to_thread(open_client, found.options, EtcdAccess(), where, self._timeout)
        return client, where, found.options.get("name")


async def _unready(client: EtcdClient, where: Endpoints) -> str:
    """Return why the member is not ready. The first address that answers decides."""
    why = "the member has no address for clients"
    for url in where.ours:
        try:
            return await client.unready(url)
        except EtcdFault as fault:
            why = fault.message
    return why
