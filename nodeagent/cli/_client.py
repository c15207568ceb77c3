# SPDX-License-Identifier: Apache-2.0
"""The client of the daemon's D-Bus service.

The exit status of each command follows from the kind of error, on either side of the bus:

    0  done
    1  AgentError, Terminal          the agent or the host failed, or the agent is degraded
    2  InvalidInput                  the input cannot be read or breaks a rule
    3  Unreconcilable                the change cannot be applied to a running host
    4  Refused                       a lease, a window, a check or polkit does not allow it
    5  Unreachable                   no daemon, no bus, or no answer in time
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError, Terminal, Unreachable
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import variant
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.dbus.signals import Match
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason, hint

if TYPE_CHECKING:
    from nodeagent.cli._offline import Stored

NAME = "org.nodeagent.Agent1"
PATH = "/org/nodeagent/Agent1"
MANAGER = "org.nodeagent.Agent1.Manager"
STATUS = "org.nodeagent.Agent1.Status"
BUS = "org.freedesktop.DBus"
BUS_PATH = "/org/freedesktop/DBus"
PROPERTIES = "org.freedesktop.DBus.Properties"

# Seconds for calls that the daemon answers from memory or the store.
QUICK = 10.0

# Seconds for calls that read all managed files, run checkers, or prompt for a password.
THOROUGH = 300.0

# Seconds for a staging, which the daemon ends after three hours.
STAGING = 4 * 3600.0

# Seconds between two requests to a daemon that does not run: a name without an owner sends no signals.
POLL = 1.0

# Seconds for which a command waits for a daemon that stopped, before it gives up. systemd starts it again within a
# few; a package upgrade and a full disk take minutes.
ABSENCE = 600.0

# Seconds for the subscriptions before a request, on a connection that answered a moment ago.
LISTENING = 60.0

# Losses of a call after it was sent: the daemon may have done what was requested.
LOST_CALL: Mapping[AnyReason, str] = {
    Reason.BUS_TIMEOUT: "the daemon did not answer in time",
    Reason.NO_REPLY: "the daemon stopped before it answered",
    Reason.BUS_CONNECTION_LOST: "the connection to the system bus was lost before the daemon answered",
}

ACCEPTED = "nodeagent status shows whether it did; repeat the command only if it did not"

# The end of a hint.
NEITHER = "nodeagent plan --from A --to B needs neither the daemon nor root"

T = TypeVar("T")


class UpdateEnd(NamedTuple):
    """The signal ``UpdateFinished``. ``entry`` is an entry of ``history/v1``, also if the history does not keep it."""

    digest: str
    entry: dict[str, Any]
    exit_code: int


class Subscribed(NamedTuple):
    """A subscription began. Signals before that were missed."""


class Client:
    """Raises ``AgentError`` kinds only, each with a hint."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def plan(self, text: str, **options: bool) -> dict[str, Any]:
        """Return the plan of an update of this host to the config ``text``. ``options`` are those of the method Plan.

        ``stage`` stages its OS as well, until this client disconnects.
        """
        timeout = STAGING if options.get("stage") else THOROUGH
        wanted = typed_options({name: True for name, flag in options.items() if flag})
        return _object(await self._call("Plan", "sa{sv}", (text, wanted), timeout))

    async def apply(self, text: str, wanted: Mapping[str, str | int | bool] | None = None) -> str:
        """Make ``text`` the desired config and return its digest. Does not wait for the update.

        ``wanted`` are the options of docs/reference/dbus.md; empty ones are left out.
        """
        options = typed_options({name: value for name, value in (wanted or {}).items() if value})
        return str(await self._change("Apply", "sa{sv}", (text, options)))

    async def rollback(self, wanted: Mapping[str, str | int | bool] | None = None) -> str:
        """Make the previous config the desired config and return its name. Does not wait for the update.

        ``wanted`` as for ``apply``.
        """
        options = typed_options({name: value for name, value in (wanted or {}).items() if value})
        return str(await self._change("Rollback", "a{sv}", (options,)))

    async def cancel(self) -> dict[str, Any]:
        """Cancel the update under way, and return what follows. Does not wait for its end."""
        return _object(await self._change("Cancel", "a{sv}", ({},)))

    async def reboot(self) -> dict[str, Any]:
        """Let an update go on whose reboot is held back. Returns it; its ``config`` is "" if there is none."""
        return _object(await self._change("Reboot", "a{sv}", ({},)))

    async def verify(self, *, diff: bool = False) -> dict[str, Any]:
        return _object(await self._call("VerifyDiff" if diff else "Verify", timeout=THOROUGH))

    async def config(self, which: str, name: str, *, secrets: bool) -> dict[str, Any]:
        """Return a config as ``nodeagent/machineconfig/v1``; ``which`` is current, desired or named."""
        options = typed_options({"name": name, "secrets": secrets})
        return _object(await self._call("Config", "sa{sv}", (which, options), THOROUGH))

    async def history(self, limit: int) -> list[dict[str, Any]]:
        """Return updates, the newest first."""
        return list(_object(await self._call("History", "u", (limit,)))["updates"])

    async def update(self, update_id: str = "") -> dict[str, Any]:
        """Return an update with its plan and its trail; "" is the newest update, which may be under way."""
        return _object(await self._call("Update", "s", (update_id,)))

    async def change(self, method: str, signature: str = "", *values: Any) -> dict[str, Any]:
        """Call a method of a feature that requests a change of the host."""
        return _object(await self._change(method, signature, values))

    async def request(self, method: str, signature: str = "", *values: Any) -> None:
        """Call a method of a feature that has no answer."""
        await self._change(method, signature, values)

    async def read(self, method: str, signature: str = "", *values: Any, timeout: float = QUICK) -> dict[str, Any]:
        """Call a method of a feature that reads."""
        return _object(await self._call(method, signature, values, timeout))

    async def status(self) -> dict[str, Any]:
        return _object(await self._get("Status"))

    async def version(self) -> str:
        return str(await self._get("Version"))

    async def follow(self, absence: float | None = None) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the status now and at each change, None when the daemon stops.

        Without end, because the daemon may start again; but with ``absence``, raise ``Unreachable`` after so many
        seconds without a daemon. Close it (``contextlib.aclosing``), or the subscription stays.
        """
        # An empty status differs from every other one, so the first is reported too.
        last: dict[str, Any] | None = {}
        gone = 0.0
        while True:
            try:
                async with aclosing(self._changes(last or {})) as changes:
                    async for changed in changes:
                        yield changed
                        last = changed
            except Unreachable as error:
                now = asyncio.get_running_loop().time()
                if last is not None:
                    gone = now
                    yield None
                last = None
                if absence is not None and now - gone >= absence:
                    message = f"the daemon has not answered for {absence:g} s: {error.message}"
                    way_out = f"{hint(Reason.UNREACHABLE)}; nodeagent status shows what became of the request"
                    raise Unreachable(message, reason=error.reason, hint=way_out) from error
            await asyncio.sleep(POLL)

    async def finished(self) -> AsyncGenerator[UpdateEnd | Subscribed, None]:
        """Yield the reported ends of updates. Without end; close it."""
        match = Match(MANAGER, "UpdateFinished", sender=NAME, path=PATH)
        while True:
            try:
                with _translated():
                    async with self._bus.signals(match) as signals:
                        yield Subscribed()
                        while True:
                            digest, entry, code = (await signals.next()).body
                            yield UpdateEnd(digest, _object(entry), code)
            except Unreachable:
                await asyncio.sleep(POLL)

    async def owner(self) -> str:
        """Return the unique name of the daemon on the bus, which changes when it restarts; "" if it does not run."""
        try:
            # Without an owner the bus answers with the error NameHasNoOwner.
            return str((await self._bus.call(BUS, BUS_PATH, BUS, "GetNameOwner", "s", (NAME,), timeout=QUICK))[0])
        except AgentError:
            return ""

    async def _changes(self, reported: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield changes until the connection is lost, or the daemon does not answer."""
        match = Match(PROPERTIES, "PropertiesChanged", sender=NAME, path=PATH, arg0=STATUS)
        with _translated():
            async with self._bus.signals(match) as signals:
                # The subscription comes first, so that no change between the two is missed.
                now = await self.status()
                while True:
                    if now != reported:
                        yield now
                        reported = now
                    try:
                        async with asyncio.timeout(POLL):
                            _, changed, _ = (await signals.next()).body
                        now = _object(changed["Status"]) if "Status" in changed else await self.status()
                    except TimeoutError:
                        # A busy host may reach the deadline with a change in the queue, which is older than an answer.
                        if not signals.waiting:
                            now = await self.status()

    async def _change(self, member: str, signature: str = "", body: tuple[Any, ...] = ()) -> Any:
        """Request a change of the host."""
        return await self._call(member, signature, body, THOROUGH, changes=True)

    async def _call(
        self,
        member: str,
        signature: str = "",
        body: tuple[Any, ...] = (),
        timeout: float = QUICK,
        changes: bool = False,
    ) -> Any:
        with _translated(changes=changes):
            # polkit prompts for a password only if the caller allows it. Otherwise it refuses an ordinary user at once.
            reply = await self._bus.call(
                NAME, PATH, MANAGER, member, signature, body, timeout=timeout, interactive=True
            )
        return reply[0] if reply else None

    async def _get(self, name: str) -> Any:
        with _translated():
            return await self._bus.get(NAME, PATH, STATUS, name, timeout=QUICK)


@contextmanager
def _translated(*, changes: bool = False) -> Iterator[None]:
    """Raise errors of the bus as errors of a command. ``changes``: the call requests a change."""
    try:
        yield
    except AgentError as error:
        error.hint = error.hint or hint(error.reason)
        # The daemon answered, though with an error of a service that it needs itself.
        if not isinstance(error, BusFault):
            raise
        message, way_out = LOST_CALL.get(error.reason, ""), hint(Reason.UNREACHABLE)
        if message and changes:
            message, way_out = f"{message}: it is not known whether it accepted the request", ACCEPTED
        elif error.reason == Reason.SERVICE_UNKNOWN:
            message, way_out = (
                "the daemon does not run",
                "systemctl start nodeagent; journalctl -u nodeagent shows why it ended",
            )
        elif error.reason == Reason.BUS_UNREACHABLE:
            message, way_out = "the system bus cannot be reached", hint(error.reason)
        elif error.reason == Reason.LIMITS_EXCEEDED:
            message = error.message
        if not message:
            raise
        raise Unreachable(message, reason=error.reason, hint=way_out) from error


def typed_options(values: Mapping[str, str | int | bool]) -> dict[str, Any]:
    """Return the options of a method with their types."""
    # Looked up by the exact type, because a bool is an int too.
    kinds = {str: "s", bool: "b", int: "t"}
    return {name: variant(kinds[type(value)], value) for name, value in values.items()}


def _object(text: Any) -> dict[str, Any]:
    try:
        answer = plain_json.loads(text)
    except (TypeError, ValueError):
        answer = None
    if not isinstance(answer, dict):
        raise Terminal(
            "unexpected reply from the daemon", reason=Reason.UNEXPECTED_REPLY, hint=hint(Reason.UNEXPECTED_REPLY)
        )
    return answer


def stored(error: Unreachable) -> Stored:
    """Return the answers of the store, for a command without an answer of the daemon."""
    from nodeagent.cli._offline import Stored

    return Stored(error)


def ask(work: Callable[[Client], Awaitable[T]], without: Callable[[Stored], T] | None = None) -> T:
    """Run ``work`` in an event loop of its own, with one connection to the bus.

    ``without`` returns the answer if there is no daemon.
    """

    async def conversation() -> T:
        # A missing bus is an error at once, because an operator waits. Commands that outlive a restart connect again.
        # But a running bus may take seconds to accept a connection on a host without spare processor time.
        async with Bus(connect_for=0.0, patience=QUICK) as bus:
            return await work(Client(bus))

    try:
        return asyncio.run(conversation())
    except Unreachable as error:
        if without is None:
            raise
        return without(stored(error))
