# SPDX-License-Identifier: Apache-2.0
"""logind over D-Bus: the ``Power`` port.

Facts (systemd's ``src/login/logind-dbus.c`` and ``org.freedesktop.login1(5)``)
- Up to systemd 256, block inhibitors do not stop root unless the caller requests it (``ROOT_CHECK_INHIBITORS``). Since
  257 they do, root overrides them with ``SKIP_INHIBITORS``, and by default root may ignore ``block-weak`` only. Unknown
  flags are an invalid argument; the oldest version (239) has no ``RebootWithFlags``. Therefore the inhibitors are also
  checked here, with a fallback for each version.
- Powering off works the same way; ``PowerOffWithFlags`` is as old as ``RebootWithFlags``.
- A restarted bus disconnects logind: logind continues without a connection, and no call starts it again.
- A soft reboot is ``RebootWithFlags`` with ``SOFT_REBOOT`` (since 254), under the polkit actions and the inhibitors of
  a reboot. There is no plain method for it, and a logind that does not know the flag must not reboot fully instead. A
  reboot without that flag is a full one, also if another program prepared a soft one. The method ``SoftReboot`` of
  systemd stops no service, so it is not used.
- ``Reboot`` warns users at best in the second of the reboot. ``ScheduleShutdown`` warns them at once and refuses new
  logins, but no inhibitor stops it at its time. Therefore a shutdown is scheduled for a little later than intended, and
  after the warning time the real reboot is requested, which cancels the scheduled one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from nodeagent import log
from nodeagent.core.display import text
from nodeagent.errors import AgentError, NoSoftReboot, Refused, SoftObstacle
from nodeagent.host import systemd_jobs
from nodeagent.host.boot import kernel_boot_id, kernel_start_seconds
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import BusFault, BusRetryable, BusTerminal, service_name
from nodeagent.reasons import Reason
from nodeagent.update.ports.system import Confirm, Inhibitor, ShutdownKind


@dataclass(frozen=True, slots=True)
class _Shutdown:
    """A kind of shutdown.

    ``method`` is that of logind, which also exists with the suffix ``WithFlags``. ``scheduled`` is the type of a
    scheduled shutdown, ``target`` systemd's target. ``flag`` makes the method one of this kind; without it, ``method``
    alone does the same.
    """

    method: str
    scheduled: str
    target: str
    flag: int = 0


_SOFT_REBOOT_FLAG = 1 << 2

_KINDS = {
    ShutdownKind.REBOOT: _Shutdown("Reboot", "reboot", "reboot.target"),
    ShutdownKind.SOFT_REBOOT: _Shutdown("Reboot", "soft-reboot", "soft-reboot.target", _SOFT_REBOOT_FLAG),
    ShutdownKind.POWER_OFF: _Shutdown("PowerOff", "poweroff", "poweroff.target"),
}

_UNIT = "systemd-logind.service"
_NAME = "org.freedesktop.login1"
_PATH = "/org/freedesktop/login1"
_MANAGER = "org.freedesktop.login1.Manager"
_SESSION = "org.freedesktop.login1.Session"

_ROOT_CHECK_INHIBITORS = 1 << 0
_SKIP_INHIBITORS = 1 << 4

# logind does not know the method, or the flag.
_NO_FLAG = (Reason.INVALID_ARGS, Reason.UNKNOWN_METHOD)

# systemd 257 returns the first one, later versions the second one.
_BLOCKED = ("org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.login1.BlockedByInhibitorLock")

# Seconds between the real shutdown and the scheduled one, which only warns.
_SLACK = 60.0
_NOT_ACTIVATED = "org.freedesktop.DBus.Error.TimedOut"
# Seconds; dbus-daemon reports after 25 that a service did not take its name.
_CALL_TIMEOUT = 30.0
# Seconds; a logind without a connection never answers, and the inhibitor is optional.
_INHIBIT_TIMEOUT = 5.0
# Sessions that are checked for a user.
_MAX_SESSIONS = 200
# Characters; users choose the texts, and a message may have many inhibitors.
_MAX_WHO = 100
_MAX_WHY = 300
# Characters; logind takes 4096.
_WALL_MAX = 1000


class Logind:
    """logind.

    ``boot`` is the identity of this boot (``host.boot``), by default the boot id of the kernel.
    """

    def __init__(self, bus: Bus, boot: str = "") -> None:
        self._bus = bus
        self._boot_id = boot or kernel_boot_id()

    def boot_id(self) -> str:
        return self._boot_id

    # -- inhibitors -----------------------------------------------------------------------------------------------

    async def blockers(self) -> Sequence[Inhibitor]:
        try:
            (inhibitors,) = await self._call("ListInhibitors")
        except BusFault as error:
            # Without logind there are no inhibitors.
            if _no_logind(error):
                return ()
            raise
        return [
            # The process behind an inhibitor shows an operator which program to end.
            Inhibitor(text(who, _MAX_WHO), text(explanation, _MAX_WHY), await asyncio.to_thread(_process, pid))
            for what, who, explanation, mode, _uid, pid in inhibitors
            # Mode "delay" only delays a shutdown for some seconds. The inhibitor of the agent itself does not count.
            if mode in ("block", "block-weak") and "shutdown" in what.split(":") and pid != os.getpid()
        ]

    @asynccontextmanager
    async def inhibit(self, purpose: str) -> AsyncIterator[None]:
        """Block shutdowns inside the context. It ends before ``reboot`` or ``power_off``, which it would block too."""
        fd = -1
        try:
            fd = await self._bus.call_for_fd(
                _NAME,
                _PATH,
                _MANAGER,
                "Inhibit",
                "ssss",
                ("shutdown", "nodeagent", purpose, "block"),
                timeout=_INHIBIT_TIMEOUT,
            )
        except BusFault as error:
            # The inhibitor is a convenience: every write can be resumed after a shutdown.
            log.get(__name__).warning(f"a shutdown during the update cannot be blocked: {error}", reason=error.reason)
        try:
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    # -- shutdown -------------------------------------------------------------------------------------------------

    async def kernel_start_seconds(self) -> float | None:
        return await asyncio.to_thread(kernel_start_seconds)

    async def going_down(self) -> bool:
        try:
            return bool(await self._bus.get(_NAME, _PATH, _MANAGER, "PreparingForShutdown"))
        except BusFault as error:
            # Without logind nothing delays a shutdown.
            if _no_logind(error):
                return False
            raise

    async def shut_down(
        self,
        kind: ShutdownKind,
        announcement: str,
        *,
        warn: float,
        force: bool,
        confirm: Confirm,
        warned: Callable[[], None],
        direct: bool,
    ) -> None:
        # logind has not answered for long. Without it there are neither inhibitors nor users to warn.
        if direct:
            await confirm()
            await self._start_target(kind)
            return
        if not force:
            await self._refuse_if_blocked(kind)
        scheduled = warn > 0 and await self._has_users() and await self._warn(kind, announcement, warn)
        try:
            if scheduled:
                warned()
                await asyncio.sleep(warn)
            await confirm()
        except BaseException:
            # BaseException: a cancelled wait must not leave a scheduled shutdown behind.
            if scheduled:
                await self._unschedule()
            raise
        await self._request(kind, force)

    async def _refuse_if_blocked(self, kind: ShutdownKind) -> None:
        if blockers := await self.blockers():
            who = "; ".join(f"{b.who} ({b.process}): {b.why}" for b in blockers)
            raise Refused(f"the {kind} is blocked by {who}", reason=kind.blocked)

    async def _warn(self, kind: ShutdownKind, announcement: str, seconds: float) -> bool:
        """Warn users. Returns True if logind has scheduled a shutdown for later than ``seconds`` from now."""
        message = "".join(c for c in announcement if c.isprintable())[:_WALL_MAX]
        # The scheduled shutdown lies after the real one, so that logind warns users but does not act on its own.
        at = int((time.time_ns() / 1e9 + seconds + _SLACK) * 1e6)
        try:
            await self._call("SetWallMessage", "sb", (message, True))
            await self._call("ScheduleShutdown", "st", (_KINDS[kind].scheduled, at))
        except BusFault as error:
            # The shutdown continues without a warning. Since 257 this happens if a blocker is overridden, because a
            # shutdown cannot be scheduled against it.
            log.get(__name__).warning(f"users could not be warned of the {kind}: {error}", reason=error.reason)
            return False
        return True

    async def _unschedule(self) -> None:
        # If it fails, the host goes down within a minute. The record of the update covers that case.
        with contextlib.suppress(AgentError):
            await self._call("CancelScheduledShutdown", timeout=2.0)

    async def _request(self, kind: ShutdownKind, force: bool) -> None:
        try:
            await self._with_flags(kind, _SKIP_INHIBITORS if force else _ROOT_CHECK_INHIBITORS)
        except BusFault as error:
            # Since 257 polkit decides about root too: it may require a password, or not answer. With ``force`` the
            # settings allow to proceed without it.
            no_answer = error.reason in (
                Reason.AUTHORIZATION_REQUIRED,
                Reason.ACCESS_DENIED,
                Reason.BUS_TIMEOUT,
                Reason.NO_REPLY,
            )
            if _no_logind(error) or (force and no_answer):
                await self._start_target(kind)
            else:
                await self._raise_refusal(kind, error)

    async def _start_target(self, kind: ShutdownKind) -> None:
        """Start the target as logind does: an ordinary shutdown, without checking inhibitors."""
        try:
            await self._systemd("StartUnit", "ss", (_KINDS[kind].target, "replace-irreversibly"))
        except BusFault as error:
            # The target of a soft reboot may be missing or masked, and that of a reboot takes its place then.
            if _KINDS[kind].flag and systemd_jobs.REASONS.get(error.bus_error) in (
                Reason.UNIT_NOT_FOUND,
                Reason.UNIT_MASKED,
            ):
                raise NoSoftReboot(error.message, SoftObstacle.UNSUPPORTED) from error
            raise

    async def _with_flags(self, kind: ShutdownKind, flags: int) -> None:
        method, flag = _KINDS[kind].method, _KINDS[kind].flag
        # A logind without the flags of inhibitors lets root override them without one.
        tries = (flag | flags, flag) if flag and flags == _SKIP_INHIBITORS else (flag | flags,)
        unknown: BusFault | None = None
        for combined in tries:
            try:
                await self._call(f"{method}WithFlags", "t", (combined,))
            except BusTerminal as error:
                if error.reason not in _NO_FLAG:
                    raise
                unknown = error
            else:
                return
        if not flag:
            await self._call(method, "b", (False,))
            return
        # Another kind than the requested one would be a surprise.
        await self._unschedule()
        assert unknown is not None
        message = f"logind knows no {kind}: {unknown.message}"
        raise NoSoftReboot(message, SoftObstacle.UNSUPPORTED) from unknown

    async def _raise_refusal(self, kind: ShutdownKind, error: BusFault) -> None:
        """Raise the error of a refused shutdown. Returns if the host is going down already."""
        if error.bus_error in _BLOCKED:
            # The scheduled shutdown would otherwise take place although it was refused.
            await self._unschedule()
            # The refusal of logind names no inhibitor. This one does, if it is still there.
            await self._refuse_if_blocked(kind)
        # Another program may have requested a shutdown first, which serves as well.
        if error.bus_error == "org.freedesktop.login1.OperationInProgress":
            if await self.going_down():
                return
            raise BusRetryable(
                error.message, reason=Reason.OPERATION_IN_PROGRESS, service=service_name(_NAME)
            ) from error
        raise error

    async def _has_users(self) -> bool:
        """Return whether a user is logged in. Greeters and managers of lingering users do not count."""
        try:
            (sessions,) = await self._call("ListSessions")
        except BusFault as error:
            if _no_logind(error):
                return False
            raise
        classes = await asyncio.gather(
            *(self._bus.get(_NAME, session[4], _SESSION, "Class") for session in sessions[:_MAX_SESSIONS]),
            # A session that ended in the meantime.
            return_exceptions=True,
        )
        return any(isinstance(kind, str) and kind.startswith("user") for kind in classes)

    async def _call(
        self, member: str, signature: str = "", body: Sequence[Any] = (), timeout: float = _CALL_TIMEOUT
    ) -> Any:
        try:
            return await self._bus.call(_NAME, _PATH, _MANAGER, member, signature, body, timeout=timeout)
        except BusRetryable as error:
            # dbus-daemon could not activate logind: the unit runs, but without its bus name.
            if error.bus_error == _NOT_ACTIVATED:
                with contextlib.suppress(AgentError):
                    await self._restart_logind()
            raise

    async def _restart_logind(self) -> None:
        """Restart a logind that runs without its bus name. It lost the bus and does not reconnect.

        Sessions and inhibitors survive the restart.
        """
        (unit,) = await self._systemd("GetUnit", "s", (_UNIT,))
        if await self._bus.get(systemd_jobs.NAME, unit, systemd_jobs.UNIT, "ActiveState") != "active":
            return
        log.get(__name__).warning(f"{_UNIT} is active but lost its connection to the bus; restarting it")
        await self._systemd("RestartUnit", "ss", (_UNIT, "replace"))

    async def _systemd(self, member: str, signature: str, body: Sequence[Any]) -> list[Any]:
        return await self._bus.call(systemd_jobs.NAME, systemd_jobs.PATH, systemd_jobs.MANAGER, member, signature, body)


def _process(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()}[{pid}]"
    except psutil.Error:
        # The process has ended or is not visible.
        return f"pid {pid}"


# Error names of systemd for a unit that it cannot load or start: its own, and an errno in two spellings.
_OF_SYSTEMD = ("org.freedesktop.systemd1.", "System.Error.", "org.freedesktop.DBus.Error.File")


def _no_logind(error: BusFault) -> bool:
    """Return whether the host has no logind, as in small containers, or systemd cannot start it, as if it is masked.

    An unreachable bus does not mean that.
    """
    return error.reason == Reason.SERVICE_UNKNOWN or error.bus_error.startswith(_OF_SYSTEMD)
