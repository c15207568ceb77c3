"""logind over D-Bus: the ``Power`` port.

Facts this stands on (systemd's ``src/login/logind-dbus.c`` and ``org.freedesktop.login1(5)``)
- Up to systemd 256, block inhibitors do not stop root unless the caller asks for it (``ROOT_CHECK_INHIBITORS``). Since
  257 they do, root must say ``SKIP_INHIBITORS`` to override, and what root may ignore by default is ``block-weak``.
  Unknown flags are an invalid argument; the oldest (239) have no ``RebootWithFlags``. So we look at the inhibitors
  ourselves too, and fall back step by step.
- Powering off is the same with other words; ``PowerOffWithFlags`` is as old as ``RebootWithFlags``.
- A bus that is restarted takes logind with it: logind goes on without a connection, and no call starts it again.
- ``Reboot`` warns users at best in the second it happens. ``ScheduleShutdown`` warns them at once and closes the host
  to new logins, but no inhibitor stops it when its time comes. So we schedule for a little later than we mean, wait,
  and then ask for the real reboot, which takes the scheduled one with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nodeagent import log
from nodeagent.core.report.display import text
from nodeagent.core.update.ports import Confirm, Inhibitor
from nodeagent.errors import AgentError, Refused
from nodeagent.host.boot import kernel_boot_id
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import BusFault, BusRetryable, BusTerminal, service_name

__all__ = ["Logind"]


@dataclass(frozen=True, slots=True)
class _Way:
    """A way down: logind's method (``WithFlags`` after it where it has flags), its word for a scheduled one, systemd's
    target, the word for people, and our reason where somebody blocks it."""

    method: str
    scheduled: str
    target: str
    words: str
    blocked: str


_REBOOT = _Way("Reboot", "reboot", "reboot.target", "reboot", "RebootBlocked")
_POWER_OFF = _Way("PowerOff", "poweroff", "poweroff.target", "power-off", "PowerOffBlocked")

_SYSTEMD = "org.freedesktop.systemd1"
_UNIT = "systemd-logind.service"
_NAME = "org.freedesktop.login1"
_PATH = "/org/freedesktop/login1"
_MANAGER = "org.freedesktop.login1.Manager"
_SESSION = "org.freedesktop.login1.Session"

_ROOT_CHECK_INHIBITORS = 1 << 0
_SKIP_INHIBITORS = 1 << 4

# 257 says the first, later ones the second.
_BLOCKED = ("org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.login1.BlockedByInhibitorLock")

_SLACK = 60.0  # seconds by which the scheduled shutdown, which only warns, is later than the real one
_NOT_ACTIVATED = "org.freedesktop.DBus.Error.TimedOut"
_CALL_TIMEOUT = 30.0  # seconds; dbus-daemon reports after 25 that a service did not take its name
_INHIBIT_TIMEOUT = 5.0  # seconds; a logind that lost its bus answers nobody, and we can do without
_MAX_SESSIONS = 200  # enough to know that somebody is there
_MAX_WHO = 100  # characters; any user with a session chooses them, and there may be many inhibitors in one message
_MAX_WHY = 300
_WALL_MAX = 1000  # characters; logind takes 4096


class Logind:
    def __init__(self, bus: Bus, boot: str = "") -> None:
        """``boot`` is the identity of this boot (``host.boot``), which cannot change while we live; by default the
        kernel's boot id."""
        self._bus = bus
        self._boot_id = boot or kernel_boot_id()

    def boot_id(self) -> str:
        return self._boot_id

    # -- inhibitors -----------------------------------------------------------------------------------------------

    async def blockers(self) -> Sequence[Inhibitor]:
        try:
            (inhibitors,) = await self._call("ListInhibitors")
        except BusFault as error:
            if _no_logind(error):  # then nobody can inhibit anything
                return ()
            raise
        return [
            Inhibitor(text(who, _MAX_WHO), text(why, _MAX_WHY), await asyncio.to_thread(_process, pid))
            for what, who, why, mode, _uid, pid in inhibitors
            if mode in ("block", "block-weak") and "shutdown" in what.split(":") and pid != os.getpid()
        ]

    def inhibit(self, why: str) -> AbstractAsyncContextManager[None]:
        """Ends before ``reboot`` or ``power_off`` is called: it would block ours as well."""
        return self._inhibit(why)

    @asynccontextmanager
    async def _inhibit(self, why: str) -> AsyncIterator[None]:
        fd = -1
        try:
            fd = await self._bus.call_for_fd(
                _NAME,
                _PATH,
                _MANAGER,
                "Inhibit",
                "ssss",
                ("shutdown", "nodeagent", why, "block"),
                timeout=_INHIBIT_TIMEOUT,
            )
        except BusFault as error:
            log.get(__name__).warning(
                f"nothing keeps others from shutting down while we write: {error}", reason=error.reason
            )
        try:
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    # -- down -----------------------------------------------------------------------------------------------------

    async def reboot(
        self, why: str, *, warn: float, force: bool, confirm: Confirm | None = None, direct: bool = False
    ) -> None:
        await self._down(_REBOOT, why, warn, force, confirm, direct)

    async def power_off(
        self, why: str, *, warn: float, force: bool, confirm: Confirm | None = None, direct: bool = False
    ) -> None:
        await self._down(_POWER_OFF, why, warn, force, confirm, direct)

    async def _down(self, way: _Way, why: str, warn: float, force: bool, confirm: Confirm | None, direct: bool) -> None:
        if direct:
            if confirm is not None:
                await confirm()
            await self._start_target(way)
            return
        if not force:
            await self._refuse_if_blocked(way)
        scheduled = warn > 0 and await self._anybody_there() and await self._warn(way, why, warn)
        try:
            if scheduled:
                await asyncio.sleep(warn)
            if confirm is not None:
                await confirm()
        except BaseException:
            if scheduled:
                await self._unschedule()
            raise
        await self._ask(way, force)

    async def _refuse_if_blocked(self, way: _Way) -> None:
        if blockers := await self.blockers():
            who = "; ".join(f"{b.who} ({b.process}): {b.why}" for b in blockers)
            raise Refused(f"the {way.words} is blocked by {who}", reason=way.blocked)

    async def _warn(self, way: _Way, why: str, seconds: float) -> bool:
        """True if users have been warned; then logind has a shutdown scheduled for later than ``seconds`` from now."""
        message = "".join(c for c in why if c.isprintable())[:_WALL_MAX]
        at = int((time.time_ns() / 1e9 + seconds + _SLACK) * 1e6)
        try:
            await self._call("SetWallMessage", "sb", (message, True))
            await self._call("ScheduleShutdown", "st", (way.scheduled, at))
        except BusFault as error:
            # A host that cannot warn goes down all the same. Since 257, a blocker that we override is such a case:
            # nobody may schedule past it.
            log.get(__name__).warning(f"users could not be warned of the {way.words}: {error}", reason=error.reason)
            return False
        return True

    async def _unschedule(self) -> None:
        # If it fails, the host goes down within a minute; what we noted before says so, so that is no surprise.
        with contextlib.suppress(AgentError):
            await self._call("CancelScheduledShutdown", timeout=2.0)

    async def _ask(self, way: _Way, force: bool) -> None:
        try:
            await self._with_flags(way, _SKIP_INHIBITORS if force else _ROOT_CHECK_INHIBITORS)
        except BusFault as error:
            # Since 257 polkit is asked even about root: it wants a password, or does not answer either. The admin said
            # in our settings what to do then, so we do not ask again.
            no_answer = error.reason in ("AuthorizationRequired", "AccessDenied", "BusTimeout", "NoReply")
            if _no_logind(error) or (force and no_answer):
                await self._start_target(way)
            else:
                await self._explain(way, error)

    async def _start_target(self, way: _Way) -> None:
        """What logind itself asks of systemd, an ordinary shutdown, without a look at inhibitors."""
        await self._systemd("StartUnit", "ss", (way.target, "replace-irreversibly"))

    async def _with_flags(self, way: _Way, flags: int) -> None:
        try:
            await self._call(f"{way.method}WithFlags", "t", (flags,))
        except BusTerminal as error:
            if error.reason not in ("InvalidArgs", "UnknownMethod"):
                raise
            # A logind that knows no such flag lets root pass without one.
            await self._call(way.method, "b", (False,))

    async def _explain(self, way: _Way, error: BusFault) -> None:
        """Raises what a refused shutdown means; returns if the host is going down already."""
        if error.bus_error in _BLOCKED:
            await self._unschedule()
            await self._refuse_if_blocked(way)  # says who
        if error.bus_error == "org.freedesktop.login1.OperationInProgress":
            if await self._bus.get(_NAME, _PATH, _MANAGER, "PreparingForShutdown"):
                return
            raise BusRetryable(error.message, reason="OperationInProgress", service=service_name(_NAME)) from error
        raise error

    async def _anybody_there(self) -> bool:
        """Somebody is logged in; greeters and the managers of lingering users are nobody."""
        try:
            (sessions,) = await self._call("ListSessions")
        except BusFault as error:
            if _no_logind(error):
                return False
            raise
        classes = await asyncio.gather(
            *(self._bus.get(_NAME, session[4], _SESSION, "Class") for session in sessions[:_MAX_SESSIONS]),
            return_exceptions=True,  # one that ended meanwhile
        )
        return any(isinstance(kind, str) and kind.startswith("user") for kind in classes)

    async def _call(
        self, member: str, signature: str = "", body: Sequence[Any] = (), timeout: float = _CALL_TIMEOUT
    ) -> Any:
        try:
            return await self._bus.call(_NAME, _PATH, _MANAGER, member, signature, body, timeout=timeout)
        except BusRetryable as error:
            if error.bus_error == _NOT_ACTIVATED:
                with contextlib.suppress(AgentError):
                    await self._bring_back()
            raise

    async def _bring_back(self) -> None:
        """A logind that runs without its name lost the bus and does not connect again. Sessions and inhibitors outlast
        its restart."""
        (unit,) = await self._systemd("GetUnit", "s", (_UNIT,))
        if await self._bus.get(_SYSTEMD, unit, f"{_SYSTEMD}.Unit", "ActiveState") != "active":
            return
        log.get(__name__).warning(f"{_UNIT} runs, but lost its connection to the bus: restarting it")
        await self._systemd("RestartUnit", "ss", (_UNIT, "replace"))

    async def _systemd(self, member: str, signature: str, body: Sequence[Any]) -> list[Any]:
        path, manager = "/org/freedesktop/systemd1", f"{_SYSTEMD}.Manager"
        return await self._bus.call(_SYSTEMD, path, manager, member, signature, body)


def _process(pid: int) -> str:
    import psutil  # 37 ms that only a host with a blocked reboot pays for

    try:
        return f"{psutil.Process(pid).name()}[{pid}]"
    except psutil.Error:  # gone, or not ours to see
        return f"pid {pid}"


# What systemd answers with for a unit that it could not load or start: names of its own, and errno in two spellings.
_OF_SYSTEMD = ("org.freedesktop.systemd1.", "System.Error.", "org.freedesktop.DBus.Error.File")


def _no_logind(error: BusFault) -> bool:
    """There is none, as in small containers, or systemd could not start it, for one because it is masked. A bus that
    cannot be reached says nothing about that."""
    return error.reason == "ServiceUnknown" or error.bus_error.startswith(_OF_SYSTEMD)
