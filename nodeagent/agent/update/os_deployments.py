"""The deployments of the host as the phases use them: each change is reported, and the booted one is remembered.

A deployment of ours is known by its id, which is saved at the end of the staging. If the agent was killed just before
that, it is known by having exactly what was to be staged: the target was saved first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from enum import Enum

from nodeagent.core.plan.deployment import (
    Deployment,
    OsTarget,
    StageProgress,
    booted,
    target_from_dict,
    unmet,
)
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.host import Clock, Reporter
from nodeagent.core.update.ports.system import Deployments
from nodeagent.core.update.record import Record
from nodeagent.errors import AgentError, Retryable, Terminal, Unreachable
from nodeagent.reasons import Reason

__all__ = ["Os", "Where", "discard_ours", "ours", "where"]

ASK_AGAIN = 5.0
"""Seconds until the daemon behind the deployments is asked once more; it may still be starting after a boot."""


STARTING = 30.0
"""Seconds that a daemon gets to start after a boot before the executor waits for it, which it reports."""


class Where(Enum):
    OLD = "old"  # the deployment that was booted when the update began
    NEW = "new"
    OTHER = "other"  # a third one was chosen at the boot menu


class Os:
    """The port, which reports every change of the boot order. Raises what ``Deployments`` does."""

    def __init__(self, port: Deployments, reporter: Reporter) -> None:
        self._port = port
        self._reporter = reporter
        self._booted: Deployment | None = None
        self._told: tuple[Deployment, ...] | None = None

    def use(self, port: Deployments) -> None:
        """From the next call on: the settings of the old one have changed."""
        self._port = port

    async def list(self) -> Sequence[Deployment]:
        found = tuple(await self._port.list())
        self._booted = self._booted or booted(found)
        if found != self._told:
            self._told = found
            self._reporter.emit(Event(EventKind.DEPLOYMENTS, Phase.IDLE, fields={"deployments": found}))
        return found

    async def booted(self) -> Deployment:
        """Asked once: it cannot change while this process lives, and asking may start a daemon of many megabytes."""
        if self._booted is None:
            await self.list()
        if self._booted is None:
            raise Terminal("none of the deployments is the booted one", reason=Reason.NO_BOOTED_DEPLOYMENT)
        return self._booted

    async def booted_within(self, clock: Clock, seconds: float) -> Deployment:
        """For right after a boot: a daemon that does not answer yet is called again until ``seconds`` have passed, but
        not for so long that the status has to name what the update waits for."""
        give_up = clock.monotonic() + min(seconds, STARTING)
        while True:
            try:
                return await self.booted()
            except (Retryable, Unreachable):
                if clock.monotonic() >= give_up:
                    raise
            await asyncio.sleep(ASK_AGAIN)

    async def check_stageable(self, target: OsTarget) -> None:
        await self._port.check_stageable(target)

    async def stage(
        self, target: OsTarget, *, credentials: bytes | None, replace: str, tell: Callable[[StageProgress], None]
    ) -> Deployment:
        try:
            return await self._port.stage(target, credentials=credentials, replace=replace, tell=tell)
        finally:
            await self.tell()

    async def unlock(self, deployment: str) -> None:
        await self._port.unlock(deployment)
        await self.tell()

    async def discard(self) -> None:
        await self._port.discard()
        await self.tell()

    async def rollback(self) -> str:
        boots = await self._port.rollback()
        await self.tell()
        return boots

    async def unmerged_soft_reboot(self) -> str:
        return await self._port.unmerged_soft_reboot()

    async def reset_soft_reboot(self) -> None:
        await self._port.reset_soft_reboot()

    async def finalize_failure(self) -> str:
        return await self._port.finalize_failure()

    async def tell(self) -> None:
        """Report the boot order. A fault is left to the caller that needs the deployments."""
        with contextlib.suppress(AgentError):
            await self.list()


async def ours(os: Os, record: Record, *, in_the_way: bool = False) -> str:
    """Id of a deployment that is staged or pending and was staged by us; "" if there is none. ``in_the_way``: also one
    that another program staged and that has what we were asked for. Ours are locked."""
    if not record.os.staged and record.os.target is None:
        return ""
    target = target_from_dict(record.os.target) if record.os.target is not None else None
    for deployment in await os.list():
        if deployment.booted:
            break
        if deployment.id == record.os.staged:
            return deployment.id
        known = in_the_way or deployment.locked is not False
        if known and target is not None and not unmet(target, deployment):
            return deployment.id
    return ""


async def discard_ours(os: Os, record: Record, *, in_the_way: bool = False) -> str:
    """Id of what was discarded. What another program staged stays, unless it is ``in_the_way``."""
    if found := await ours(os, record, in_the_way=in_the_way):
        await os.discard()
    return found


def where(record: Record, deployment: Deployment) -> Where:
    """Which side of the update in ``record`` this boot is on."""
    if deployment.id == record.os.origin:
        return Where.OLD
    if deployment.id == record.os.staged:
        return Where.NEW
    if record.os.target is not None and not unmet(target_from_dict(record.os.target), deployment):
        return Where.NEW
    # The way back may have made a new deployment of the old tree, and the power failed before that was noted.
    return Where.OLD if _tree(deployment.id) == _tree(record.os.origin) else Where.OTHER


def _tree(deployment: str) -> str:
    """An id without its serial."""
    return deployment.rpartition(".")[0]
