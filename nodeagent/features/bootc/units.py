# SPDX-License-Identifier: Apache-2.0
"""The transient units that write: the pull of an image, and commands of `ostree admin`.

A unit has a fixed name, so that the limits on its I/O are known before it starts, a killed agent's is found, and an
admin can give it a drop-in, such as one with a proxy. Its output is a file, because an error is known by its text.

An exit status of 0 means nothing: the caller reads the deployments.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from nodeagent.core.config.image import ContainerImage
from nodeagent.core.plan.deployment import Deployment, OsTarget, StageProgress, unmet
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.features.bootc.pull_watch import PullWatch
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.fs.read_inside import read_inside
from nodeagent.host.ostree.failures import OF_AN_IMAGE, OF_THE_NETWORK, Failures
from nodeagent.host.ostree.programs import CommandTiming, Services
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, run_unit
from nodeagent.reasons import Reason
from nodeagent.tasks import running

PULL: Final = "nodeagent-pull.service"
ADMIN: Final = "nodeagent-deploy.service"
CHECK: Final = "nodeagent-check-tree.service"
UNITS: Final = (PULL, ADMIN, CHECK)
# Below system.slice. systemd takes limits for a slice that does not exist yet, and not for such a service.
SLICE: Final = "system-nodeagent.slice"

_OSTREE: Final = "/usr/bin/ostree"
# By its interpreter: systemd would start the program itself in the domain of the daemon, where SELinux denies a mount.
_FLAGS: Final = ("-BIS",) if sys.flags.no_site else ()
_WRITABLE: Final = (sys.executable, *_FLAGS, "/usr/bin/nodeagent", "write-sysroot", "--")
_REPO: Final = "/ostree/repo"
_RUN: Final = "run/nodeagent"
# What the pull prints at its end: "Wrote: REFERENCE => COMMIT", or "No changes in REFERENCE => COMMIT".
_COMMIT: Final = re.compile(r" => ([0-9a-f]{64})$", re.MULTILINE)
_FAILURES: Final = Failures("ostree", (*OF_AN_IMAGE, *OF_THE_NETWORK))
# The last line of each failed command begins with it.
_ERROR: Final = "error: "
# The signals of systemd, of an admin and of a host without memory.
_BY_OTHERS: Final = ("SIGTERM", "SIGKILL")
# Bytes.
_MAX_OUTPUT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class UnitTiming(CommandTiming):
    """Timeouts, in seconds."""

    # One pull. A slow SD card takes hours.
    total: float = 6 * 3600.0

    # Time in which a pull neither received nor computed anything. A silent registry would be waited for until that.
    stall: float = 600.0

    # Between two looks at a pull.
    look: float = 10.0

    # From a signal to the end of a unit. skopeo ends with it.
    stop: float = 60.0

    # A program of the new tree, from a cold disk.
    check: float = 120.0

    # Waiting for another program that has the lock of the sysroot. A deployment takes minutes.
    busy: float = 1800.0

    busy_pause: float = 1.0


class SysrootUnits:
    """Runs the units, one after the other. ``root`` is for tests."""

    def __init__(self, services: Services, make_bus: Callable[[], Bus], root: Path, timing: UnitTiming) -> None:
        self._services = services
        self._make_bus = make_bus
        self._root = root
        self._timing = timing

    async def end_left(self) -> None:
        """End what a killed agent left. Its result is not known."""
        for unit in UNITS:
            await self._stop(unit)
            # A unit that failed stays loaded until that is acknowledged.
            async with self._make_bus() as bus:
                with suppress(BusFault):
                    await bus.call(NAME, PATH, MANAGER, "ResetFailedUnit", "s", (unit,))

    async def pull(self, image: ContainerImage, on_progress: Callable[[StageProgress], None]) -> str:
        """Pull an image into the repository, and return the commit that it became.

        Raises ``Retryable`` (``PullStalled``) if it stands still, after the end of the unit.
        """
        command = (*_WRITABLE, "container", "image", "pull", "--quiet", _REPO, image.refspec)
        properties = [("PrivateMounts", variant("b", True)), ("IPAccounting", variant("b", True))]
        doing = f"pull {image.name}@{image.digest}"
        task, read = f"Pulling {image.name}", partial(self._read, self._output(PULL))
        watch = PullWatch(PULL, task, self._make_bus, self._root)
        on_progress(StageProgress(task))
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self._timing.stall)
        try:
            async with limit:
                moved = lambda: limit.reschedule(loop.time() + self._timing.stall)  # noqa: E731
                async with running(watch.follow(self._timing.look, read, on_progress, moved)):
                    output = await self._run(PULL, command, doing, self._timing.total, properties)
        except TimeoutError as error:
            if not limit.expired():
                raise
            message = f"cannot {doing}: it received nothing and did nothing for {self._timing.stall:g} s"
            raise Retryable(message, reason=BootcReason.PULL_STALLED) from error
        # The name of the ref of an image is escaped in a way of its own, so it is not looked up.
        found = _COMMIT.findall(output)
        if not found:
            message = f"cannot {doing}: ostree reported success and named no commit"
            raise Terminal(message, reason=Reason.STAGE_INCOMPLETE)
        return str(found[-1])

    async def prune(self) -> None:
        """Remove images of which there is no deployment."""
        command = (*_WRITABLE, "container", "image", "prune-images", "--sysroot=/", "--and-layers")
        own_mounts = [("PrivateMounts", variant("b", True))]
        await self._run(PULL, command, "remove old images", self._timing.redeploy, own_mounts)

    async def admin(self, doing: str, *arguments: str) -> None:
        """Run a command of `ostree admin`, which takes the lock of the sysroot and makes it writable for itself."""
        await self._run(ADMIN, (_OSTREE, "admin", *arguments), doing, self._timing.redeploy)

    async def check(self, tree: Path) -> None:
        """Run a program of a tree in that tree. Raises ``Terminal`` (``ImageBroken``) if it does not run."""
        properties = [
            ("RootDirectory", variant("s", str(tree))),
            ("MountAPIVFS", variant("b", True)),
            ("ProtectSystem", variant("s", "strict")),
            ("PrivateNetwork", variant("b", True)),
        ]
        doing = "run a program of the new tree"
        try:
            await self._run(CHECK, ("/usr/bin/true",), doing, self._timing.check, properties)
        except Retryable as error:
            # A program that was late, or that something else ended, says nothing about the image.
            if not isinstance(cause := error.__cause__, Terminal) or not _is_fault_of_the_program(cause):
                raise
            raise Terminal(error.message, reason=Reason.IMAGE_BROKEN) from error

    async def _run(
        self, unit: str, command: Sequence[str], doing: str, deadline: float, more: Sequence[tuple[str, Any]] = ()
    ) -> str:
        """Return what the command printed. Raises as ``failure``."""
        output = self._output(unit)
        await asyncio.to_thread(self._prepare, output)
        properties = [
            ("Slice", variant("s", SLICE)),
            # Not the journal: it may be full, or bounded, and it is slow to search.
            ("StandardOutputFile", variant("s", str(output))),
            ("StandardError", variant("s", "inherit")),
            ("TimeoutStopUSec", variant("t", int(self._timing.stop * 1_000_000))),
            *more,
        ]
        # systemd expands variables in the arguments of a command.
        plain = [word.replace("$", "$$") for word in command]
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, plain, f"Node agent: {doing}", deadline, name=unit, more=properties)
            return await asyncio.to_thread(self._read, output)
        except Terminal as error:
            if error.reason not in (Reason.COMMAND_FAILED, Reason.COMMAND_TIMED_OUT):
                raise
            raise failure(await asyncio.to_thread(self._read, output), doing, error.message) from error
        except asyncio.CancelledError:
            # The unit would go on without the agent.
            await asyncio.shield(self._stop(unit))
            raise
        finally:
            await asyncio.to_thread(output.unlink, missing_ok=True)

    async def _stop(self, unit: str) -> None:
        with suppress(AgentError):
            await self._services.stop(unit, self._timing.stop + 10)

    def _output(self, unit: str) -> Path:
        return self._root / _RUN / f"{unit}.txt"

    def _prepare(self, output: Path) -> None:
        output.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        output.unlink(missing_ok=True)

    def _read(self, output: Path) -> str:
        try:
            return read_inside(output.parent, f"/{output.name}", _MAX_OUTPUT).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def _is_fault_of_the_program(error: Terminal) -> bool:
    ended = any(f"ended by {name}" in error.message for name in _BY_OTHERS)
    return error.reason == Reason.COMMAND_FAILED and not ended


def failure(output: str, doing: str, how: str) -> AgentError:
    """Return the error for the output of a command. ``how`` it ended counts if it printed no error."""
    lines = [line for line in output.splitlines() if line.startswith(_ERROR)]
    return _FAILURES.failure(lines[-1].removeprefix(_ERROR) if lines else how, doing)


def incomplete(target: OsTarget, staged: Deployment | None) -> Terminal:
    """Return the error for a success that left ``staged`` instead of the target."""
    wrong = {} if staged is None else unmet(target, staged)
    what = ", ".join(f"{domain} {how}" for domain, how in wrong.items())
    cause = what or ("none is staged" if staged is None else f"{staged.id} is staged")
    message = f"ostree reported success, but the next deployment differs: {cause}"
    return Terminal(message, reason=Reason.STAGE_INCOMPLETE)
