"""One visit to rpm-ostreed: a bus connection of its own, registered as a client, gone afterwards.

Contract and reasons
- A connection of its own, because a transaction that was made and not started belongs to the connection that asked for
  it. If an answer comes too late, closing the connection makes the daemon drop that transaction; on a connection that
  stays it would block everybody for ever.
- Registered, because the daemon leaves a minute after its last client. Not for longer than a visit, because a daemon
  that idles has no use for its memory. A daemon that was started anew has forgotten us, so its owner is compared before
  each call.
- Started by systemd first: dbus-daemon waits 25 seconds for what it activates, the daemon's unit allows itself minutes
  where the disk is slow. Its own command line does the same.
- A call that the daemon took with it when it left (``NoReply``) is made again, a few times: nothing of it remains, for
  a transaction lives in the daemon that made it.
- ``read`` is a state of one moment after ``Reload``, the daemon's own sync point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import Retryable, Unreconcilable
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv
from nodeagent.host.dbus.errors import LOST, BusRefused, BusRetryable, BusUnreachable
from nodeagent.host.rpmostree.boot_entries import BootEntry
from nodeagent.host.rpmostree.deployments import first_of_booted, read_all
from nodeagent.host.rpmostree.staged import Lock
from nodeagent.host.rpmostree.timing import Timing

__all__ = ["SERVICE", "Local", "Session", "State", "visit"]

SERVICE = "rpm-ostreed.service"
_NAME = "org.projectatomic.rpmostree1"
_SYSROOT_PATH = "/org/projectatomic/rpmostree1/Sysroot"
_SYSROOT = "org.projectatomic.rpmostree1.Sysroot"
_OS = "org.projectatomic.rpmostree1.OS"
_CLIENT_ID = "nodeagent"
_ATTEMPTS = 4  # of one call, before a daemon that leaves each time is somebody else's problem


@dataclass(frozen=True, slots=True)
class Local:
    """What the host itself knows of deployments, without the daemon."""

    entries: Mapping[str, BootEntry]
    staged: Lock | None


@dataclass(frozen=True, slots=True)
class State:
    """``os_path`` is the object of the booted OS; the escaping in it cannot be reversed, so it is never built.
    ``first`` is the one that a new deployment is made from. ``entries`` are those of the boot menu, by the id of their
    deployment."""

    os_path: str
    deployments: tuple[Deployment, ...]
    booted: Deployment
    first: Deployment
    entries: Mapping[str, BootEntry]

    @property
    def staged(self) -> Deployment | None:
        return next((d for d in self.deployments if d.staged), None)


class Session:
    """Made by ``visit``."""

    def __init__(
        self,
        bus: Bus,
        timing: Timing,
        read_local: Callable[[], Local],
        start: Callable[[], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._timing = timing
        self._read_local = read_local
        self._start = start
        self._registered = ("", "")  # our name and the daemon's at that time

    async def read(self) -> State:
        """Raises ``Unreconcilable`` (``NoDeployments``) on a host that was not booted from a deployment, and
        ``Retryable`` (``NoBootEntry``) while /boot has no entry for the booted one."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                return await self._read()
            except Retryable as error:
                # A boot order that is written just now is not the one that the daemon told of.
                if error.reason != "NoBootEntry" or not left:
                    raise
            await asyncio.sleep(self._timing.retry_pause)
        raise AssertionError("unreachable")

    async def _read(self) -> State:
        await self._sysroot("Reload")
        path = str(await self.property("Booted"))
        if path == "/":
            raise Unreconcilable("this host was not booted from an ostree deployment", reason="NoDeployments")
        raw = await self.property("Deployments")
        local = await asyncio.to_thread(self._read_local)
        deployments = read_all(raw, entries=local.entries, staged=local.staged)
        booted, first = next((d for d in deployments if d.booted), None), first_of_booted(deployments)
        if booted is None or first is None:
            raise Unreconcilable("none of the deployments is the booted one", reason="NoDeployments")
        return State(path, deployments, booted, first, local.entries)

    async def active_address(self) -> str:
        """Of the transaction under way, "" if there is none."""
        return str(await self.property("ActiveTransactionPath"))

    async def property(self, name: str) -> Any:
        body = (_SYSROOT, name)
        return (await self.call(_SYSROOT_PATH, "org.freedesktop.DBus.Properties", "Get", "ss", body))[0]

    async def ask(self, os_path: str, member: str, signature: str, body: Sequence[Any]) -> str:
        """Address of the transaction. Whoever gets one must start it, or end this visit."""
        return str((await self.call(os_path, _OS, member, signature, body))[0])

    async def _sysroot(self, member: str) -> None:
        await self.call(_SYSROOT_PATH, _SYSROOT, member)

    async def call(
        self, path: str, interface: str, member: str, signature: str = "", body: Sequence[Any] = ()
    ) -> list[Any]:
        for left in reversed(range(_ATTEMPTS)):
            try:
                await self._register()
                return await self._bus.call(_NAME, path, interface, member, signature, body, timeout=self._timing.call)
            except BusRetryable as error:
                if error.reason not in ("NoReply", LOST) or not left:
                    raise
            await asyncio.sleep(self._timing.retry_pause)
        raise AssertionError("unreachable")

    async def _register(self) -> None:
        owner = await self._owner()
        if not owner:
            await self._start()
            owner = await self._owner()
        if owner and (self._bus.unique_name, owner) == self._registered:
            return
        options = a_sv({"id": ("s", _CLIENT_ID)})
        with suppress(BusRefused):  # polkit lets us do the rest perhaps; then the daemon may leave between two calls
            await self._bus.call(
                _NAME, _SYSROOT_PATH, _SYSROOT, "RegisterClient", "a{sv}", (options,), timeout=self._timing.call
            )
        self._registered = (self._bus.unique_name, await self._owner())

    async def _owner(self) -> str:
        """ "" while nobody has the name; the next call makes the bus start the daemon then."""
        try:
            return str((await self._bus.call_bus("GetNameOwner", "s", (_NAME,)))[0])
        except BusUnreachable as error:
            if error.reason != "ServiceUnknown":
                raise
            return ""


@asynccontextmanager
async def visit(
    make_bus: Callable[[], Bus],
    timing: Timing,
    read_local: Callable[[], Local],
    start: Callable[[], Awaitable[None]],
) -> AsyncIterator[Session]:
    """``read_local`` blocks for small files, so it runs in a thread. ``start``: the daemon, as far as that can be
    done."""
    async with make_bus() as bus:
        yield Session(bus, timing, read_local, start)
