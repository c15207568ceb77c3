# SPDX-License-Identifier: Apache-2.0
"""A client session with rpm-ostreed, and starting a transaction.

Each session has its own bus connection, registered as a client and closed afterwards:
- A transaction that was created and not started belongs to the connection that requested it. If an answer is late,
  closing the connection makes the daemon drop that transaction; on a lasting connection it would block all clients.
- The session is registered because the daemon exits a minute after its last client leaves. It ends early because an
  idle daemon should free its memory. A restarted daemon has lost the registration, so its owner is compared before each
  call.
- systemd starts the daemon first: dbus-daemon waits 25 seconds for an activated service, while the unit of the daemon
  allows minutes on a slow disk. The rpm-ostree command does the same.
- A call that was lost because the daemon exited (``NoReply``) is repeated a few times. It has no effect, because a
  transaction ends with its daemon.
- ``read`` returns one consistent state after ``Reload``, the sync point of the daemon.

Starting a transaction fails while another one is under way. This error has no name of its own (G_IO_ERROR_BUSY) and one
of two texts: another transaction of the daemon, or the lock of the sysroot held by another program. The daemon joins
two equal requests, so a restarted agent finds its own transaction again. A transaction that an earlier run started for
another target is cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.plan.deployment import Deployment, StageProgress
from nodeagent.core.plan.os_changes import OsChanges, PackageChange, PackageChangeKind
from nodeagent.errors import AgentError, Refused, Retryable, Unreconcilable
from nodeagent.features.rpmostree.deployments import first_of_booted, read_all
from nodeagent.features.rpmostree.failures import failure
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.features.rpmostree.request import TITLE, Request
from nodeagent.features.rpmostree.transaction import Timing, cancel, describe
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv
from nodeagent.host.dbus.errors import LOST, BusFault, BusRefused, BusRetryable, BusUnreachable
from nodeagent.host.ostree.boot_order import BootEntry
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.ostree.staged import Lock
from nodeagent.host.ostree.trees import Trees
from nodeagent.host.ostree.trees import compare as differences
from nodeagent.reasons import Reason

SERVICE = "rpm-ostreed.service"
_NAME = "org.projectatomic.rpmostree1"
_SYSROOT_PATH = "/org/projectatomic/rpmostree1/Sysroot"
_SYSROOT = "org.projectatomic.rpmostree1.Sysroot"
_OS = "org.projectatomic.rpmostree1.OS"
_CLIENT_ID = "nodeagent"
# Attempts of one call if the daemon exits each time.
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Local:
    """Facts about deployments that are read from files, not from the daemon."""

    entries: Mapping[str, BootEntry]
    staged: Lock | None


@dataclass(frozen=True, slots=True)
class SysrootState:
    """The deployments at one moment.

    ``os_path`` is the object of the booted OS; its escaping is not reversible, so the path is never constructed.
    ``first`` is the deployment from which a new one is made. ``entries`` are the boot menu entries by deployment id.
    """

    os_path: str
    deployments: tuple[Deployment, ...]
    booted: Deployment
    first: Deployment
    entries: Mapping[str, BootEntry]

    @property
    def staged(self) -> Deployment | None:
        return next((d for d in self.deployments if d.staged), None)

    @property
    def previous(self) -> Deployment | None:
        """The deployment that Rollback puts first: the next one of the same OS after the booted one."""
        after = self.deployments[self.deployments.index(self.booted) + 1 :]
        return next((d for d in after if d.osname == self.booted.osname), None)

    def refuse_staged(self) -> None:
        """Raise ``Refused`` (``StagedByOther``) if a deployment is staged: a rollback would discard it."""
        if self.staged is not None:
            message = f"cannot roll back while {self.staged.id} is staged"
            raise Refused(message, reason=Reason.STAGED_BY_OTHER, hint="remove it first: rpm-ostree cleanup -p")

    def rolled_back(self) -> bool:
        """Return whether another deployment boots next. Raises as ``refuse_staged``."""
        self.refuse_staged()
        return not self.first.booted


# As rpm-ostree numbers them.
_KINDS: Final = (
    PackageChangeKind.ADDED,
    PackageChangeKind.REMOVED,
    PackageChangeKind.UPGRADED,
    PackageChangeKind.DOWNGRADED,
)

# Packages of one answer; a large OS has 1,000.
MAX_PACKAGES: Final = 20_000


def packages_from(raw: Sequence[Any]) -> tuple[PackageChange, ...]:
    """Return the result of ``GetDeploymentsRpmDiff``, a(sua{sv}). Raises ``ValueError`` for another shape."""
    changes: list[PackageChange] = []
    try:
        for name, kind, details in raw[:MAX_PACKAGES]:
            before, after = (str(details.get(key, ("", "", ""))[1]) for key in ("PreviousPackage", "NewPackage"))
            changes.append(PackageChange(str(name), _KINDS[int(kind)], before, after))
    except (TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"unexpected package: {error}") from error
    return tuple(changes)


class Session:
    """A session. ``bus`` is its own connection, which the caller closes at the end.

    ``read_local`` reads small files and runs in a thread; ``start`` starts the daemon if it can.
    """

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
        # Unique names of this connection and of the daemon when it was registered.
        self._registered = ("", "")

    async def read(self) -> SysrootState:
        """Return the current state.

        Raises ``Unreconcilable`` (``NoDeployments``) if the host was not booted from a deployment, and ``Retryable``
        (``NoBootEntry``) while /boot has no entry for the booted deployment.
        """
        for left in reversed(range(_ATTEMPTS)):
            try:
                return await self._read()
            except Retryable as error:
                # The boot order may have been rewritten since the daemon loaded it.
                if error.reason != Reason.NO_BOOT_ENTRY or not left:
                    raise
            await asyncio.sleep(self._timing.retry_pause)
        raise AssertionError("unreachable")

    async def _read(self) -> SysrootState:
        # The daemon caches the deployments, and ostree may have changed them without it.
        await self.call(_SYSROOT_PATH, _SYSROOT, "Reload")
        path = str(await self.property("Booted"))
        # "/" is the null object of this interface.
        if path == "/":
            raise Unreconcilable("this host was not booted from an ostree deployment", reason=Reason.NO_DEPLOYMENTS)
        raw = await self.property("Deployments")
        local = await asyncio.to_thread(self._read_local)
        deployments = read_all(raw, entries=local.entries, staged=local.staged)
        booted, first = next((d for d in deployments if d.booted), None), first_of_booted(deployments)
        if booted is None or first is None:
            raise Unreconcilable("none of the deployments is the booted one", reason=Reason.NO_DEPLOYMENTS)
        return SysrootState(path, deployments, booted, first, local.entries)

    async def property(self, name: str) -> Any:
        body = (_SYSROOT, name)
        return (await self.call(_SYSROOT_PATH, "org.freedesktop.DBus.Properties", "Get", "ss", body))[0]

    async def request(self, os_path: str, member: str, signature: str, body: Sequence[Any]) -> str:
        """Request a transaction and return its address. The caller must start it or end the session."""
        return str((await self.call(os_path, _OS, member, signature, body))[0])

    async def package_diff(self, os_path: str, before: str, after: str) -> list[Any]:
        """Return the packages that differ between two deployments, a(sua{sv})."""
        return list((await self.call(os_path, _OS, "GetDeploymentsRpmDiff", "ss", (before, after)))[0])

    async def compare(self, root: Path, staged: str, managed: Mapping[str, FileTreeEntry] | None) -> OsChanges:
        """Return how ``staged`` differs from the booted one. Raises ``Refused`` (``StagedLost``) if it is gone."""
        state = await self.read()
        deployment = next((d for d in state.deployments if d.id == staged), None)
        if deployment is None:
            raise Refused(f"{staged} is not staged any more", reason=Reason.STAGED_LOST)
        trees = Trees(root, state.booted.osname, state.booted.id, staged)
        packages: tuple[PackageChange, ...] | None = None
        if await asyncio.to_thread(trees.have_packages):
            # Without the packages the files are counted, so a failure of the daemon here fails no update.
            with suppress(AgentError, ValueError):
                packages = packages_from(await self.package_diff(state.os_path, state.booted.id, staged))
        return await asyncio.to_thread(differences, trees, state.booted, deployment, packages, managed)

    async def call(
        self, path: str, interface: str, member: str, signature: str = "", body: Sequence[Any] = ()
    ) -> list[Any]:
        for left in reversed(range(_ATTEMPTS)):
            try:
                await self._register()
                return await self._bus.call(_NAME, path, interface, member, signature, body, timeout=self._timing.call)
            except BusRetryable as error:
                if error.reason not in (Reason.NO_REPLY, LOST) or not left:
                    raise
            await asyncio.sleep(self._timing.retry_pause)
        raise AssertionError("unreachable")

    async def _register(self) -> None:
        owner = await self._owner()
        if not owner:
            await self._start()
            owner = await self._owner()
        # A registration belongs to one pair of connection and daemon. Either may have changed.
        if owner and (self._bus.unique_name, owner) == self._registered:
            return
        options = a_sv({"id": ("s", _CLIENT_ID)})
        # Without a registration the other calls may still be authorized, but the daemon may exit between two of them.
        with suppress(BusRefused):
            await self._bus.call(
                _NAME, _SYSROOT_PATH, _SYSROOT, "RegisterClient", "a{sv}", (options,), timeout=self._timing.call
            )
        self._registered = (self._bus.unique_name, await self._owner())

    async def _owner(self) -> str:
        """ "" while the name has no owner. Then the next call activates the daemon."""
        try:
            return str((await self._bus.call_bus("GetNameOwner", "s", (_NAME,)))[0])
        except BusUnreachable as error:
            if error.reason != Reason.SERVICE_UNKNOWN:
                raise
            return ""


_BUSY_CODE = ".Code26"
_BUSY_TEXTS = ("Transaction in progress", "System transaction in progress")
_DBUS = "org.freedesktop.DBus."


async def works_for_another(make_bus: Callable[[], Bus]) -> bool:
    """Return whether the daemon, which runs, has a transaction under way. One that does not answer may have one."""
    try:
        async with make_bus() as bus:
            return bool(await bus.get(_NAME, _SYSROOT_PATH, _SYSROOT, "ActiveTransactionPath"))
    except AgentError:
        return True


class BusyWait:
    """Bounds how long one operation waits for other transactions in total, and reports the wait."""

    def __init__(self, timing: Timing, on_progress: Callable[[StageProgress], None]) -> None:
        self.timing = timing
        self._on_progress = on_progress
        self._until: float | None = None
        self._pause = timing.busy_pause

    async def wait(self, client: str, doing: str) -> None:
        """Wait once. Raises ``Refused`` (``TransactionBusy``) when the total time is used up."""
        now = asyncio.get_running_loop().time()
        # The total time starts with the first wait, and counts over all transactions that follow.
        self._until = self._until or now + self.timing.busy
        if now + self._pause > self._until:
            message = f"cannot {doing}: still busy after {self.timing.busy:g} s: {client}"
            raise Refused(message, reason=RpmOstreeReason.TRANSACTION_BUSY)
        self._on_progress(StageProgress(f"Waiting for {client}"))
        await asyncio.sleep(self._pause * random.uniform(0.75, 1.25))  # noqa: S311 - jitter separates two waiting clients
        self._pause = min(2 * self._pause, self.timing.busy_pause_max)


async def start_transaction(session: Session, os_path: str, request: Request, busy: BusyWait) -> str:
    """Start a transaction and return its address.

    Returns "" after waiting for another transaction. The caller then reads the state before it tries again, because a
    new transaction would discard a deployment that the other one staged.
    """
    try:
        return await session.request(os_path, request.member, request.signature, request.body)
    except BusFault as error:
        # Errors of the bus say nothing about the request. Those of rpm-ostree have names of their own.
        if not error.bus_error or error.bus_error.startswith(_DBUS):
            raise
        if not _is_busy(error):
            raise failure(error.bus_message, request.doing) from error
        client = await _active_client(session, error.bus_message, busy.timing)
    await busy.wait(client, request.doing)
    return ""


def _is_busy(error: BusFault) -> bool:
    return error.bus_error.endswith(_BUSY_CODE) or error.bus_message.startswith(_BUSY_TEXTS)


async def _active_client(session: Session, text: str, timing: Timing) -> str:
    if text.startswith("System transaction"):
        return "another program that holds the lock of the system (ostree admin, bootc)"
    # "" if it has ended in the meantime.
    address = str(await session.property("ActiveTransactionPath"))
    title, client = await describe(address, timing) if address else ("", "")
    # A killed agent may have left its own transaction, which nothing else would end.
    if title.startswith(f"{TITLE} "):
        await cancel(address, timing)
        return f"an earlier transaction of nodeagent ({one_line(title)}), which was cancelled"
    title = title or text.partition("\n")[0].partition(": ")[2]
    return f"the transaction {one_line(title)!r} of {one_line(client) or 'another client'}"
