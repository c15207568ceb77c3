# SPDX-License-Identifier: Apache-2.0
"""The login session of a caller on the bus, as logind knows it (``org.freedesktop.login1(5)``).

``GetSessionByPID`` finds the session by the control group of the process, which sudo and su do not leave. A process of
a service, of cron, or of the user manager has none. ``TimestampMonotonic`` is CLOCK_MONOTONIC in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.errors import Refused
from nodeagent.features.trial.decide import Login
from nodeagent.features.trial.reasons import TrialReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import BusFault

_NAME: Final = "org.freedesktop.login1"
_PATH: Final = "/org/freedesktop/login1"
_MANAGER: Final = "org.freedesktop.login1.Manager"
_SESSION: Final = "org.freedesktop.login1.Session"
_NONE: Final = ("org.freedesktop.login1.NoSessionForPID", "org.freedesktop.login1.NoSuchSession")


@dataclass(frozen=True, slots=True)
class Logins:
    """The sessions of this host."""

    bus: Bus

    async def of(self, connection: str) -> Login | None:
        """Return the session of a caller, by its unique name on the bus; None if it has none.

        Raises ``Refused`` (``NoLogin``) if logind does not answer, or the caller has left.
        """
        try:
            # The bus knows the process from the kernel, so a caller cannot name another one.
            (pid,) = await self.bus.call_bus("GetConnectionUnixProcessID", "s", (connection,))
            (path,) = await self.bus.call(_NAME, _PATH, _MANAGER, "GetSessionByPID", "u", (pid,))
            texts = [str(await self._get(path, name)) for name in ("Id", "Service", "Class")]
            began, host = await self._get(path, "TimestampMonotonic"), await self._get(path, "RemoteHost")
        except BusFault as error:
            # Only this answer says that there is no session. Any other error leaves it open, and is no proof either.
            if error.bus_error in _NONE:
                return None
            raise Refused(
                f"the session of the caller is not known: {error.message}", reason=TrialReason.NO_LOGIN
            ) from error
        if not isinstance(began, int):
            raise Refused("logind described the session in another form", reason=TrialReason.NO_LOGIN)
        name, service, kind = texts
        return Login(name, service, kind, began / 1e6, str(host))

    async def _get(self, path: str, name: str) -> object:
        value: object = await self.bus.get(_NAME, path, _SESSION, name)
        return value
