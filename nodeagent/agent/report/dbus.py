# SPDX-License-Identifier: Apache-2.0
"""The D-Bus service ``org.nodeagent.Agent1``. Every user may read; polkit authorizes methods that change something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from nodeagent import __version__
from nodeagent.agent.api import Api
from nodeagent.agent.report.report import Report
from nodeagent.agent.report.turns import Turns
from nodeagent.core.plan.plan import DISRUPTION_WORDS
from nodeagent.core.plan.plan_json import PLAN_SCHEMA
from nodeagent.door import BusMethod, Caller, request_options
from nodeagent.errors import AgentError, InvalidInput, Refused
from nodeagent.features import options as options_of_features
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.errors import error_to_dict
from nodeagent.host.dbus.exporter import Exporter
from nodeagent.host.dbus.header import Message
from nodeagent.host.dbus.interface import Interface, Method, Property, Signal
from nodeagent.host.dbus.polkit import authorize, caller_name, is_root, uid_of
from nodeagent.host.dbus.signals import BUS_NAME, Match
from nodeagent.installed import doors
from nodeagent.reasons import Reason
from nodeagent.report.properties import properties, properties_of
from nodeagent.report.status import Status
from nodeagent.report.status_json import status_to_dict
from nodeagent.tasks import running
from nodeagent.update.history.entry import entry_to_dict
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.events import Event, UpdateFinished

T = TypeVar("T")

NAME = "org.nodeagent.Agent1"
PATH = "/org/nodeagent/Agent1"
MANAGER = f"{NAME}.Manager"
STATUS = f"{NAME}.Status"
ACTIONS = "org.nodeagent.agent1"

# Options of ``Apply`` and ``Rollback`` about what may be done. Both limits are words of a disruption.
LIMITS = ("max_disruption", "planned_disruption")
REQUESTED = (*LIMITS, "no_reboot", "boot_staged", "allow_lockout")

# Options of ``Plan``, besides ``problems``.
PLANNED = ("diff", "stage", "allow_lockout", "rollback")

# Those that features add.
OF_FEATURES = tuple(name for option in options_of_features() for name in option.names)

# Bytes of a call of ``Apply`` by a user other than root: more than an API server stores in one object (1.5 MiB).
MAX_APPLY = 2 << 20

# Bytes of such a call by root: the system bus forwards no larger message.
MAX_APPLY_OF_ROOT = 32 << 20


@dataclass(eq=False)
class _Manager:
    """``api`` returns what does the work, or raises the error because of which the daemon cannot work.
    ``read_again`` works nevertheless."""

    bus: Bus
    api: Callable[[], Api]
    read_again: Callable[[], Awaitable[None]]
    turns: Turns = field(default_factory=Turns, init=False)

    async def apply(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.apply")
        text, options = message.body
        _known(options, *REQUESTED, *OF_FEATURES, "strict", "remove")
        hold = _hold(options, await caller_name(self.bus, message))
        flags = {"strict": _flag(options, "strict"), "lockout": _flag(options, "allow_lockout")}
        removes = _number(options, "remove")
        return (await self.api().apply(text, _limits(options), hold, removes=removes, **flags),)

    async def plan(self, message: Message) -> Sequence[Any]:
        text, options = message.body
        _known(options, "problems", *PLANNED)
        problems = _flag(options, "problems")
        try:
            wanted = {name: _flag(options, name) for name in PLANNED}
            return (await self._plan(message, text, **wanted),)
        except AgentError as error:
            if not problems:
                raise
            # Some clients read no more of a D-Bus error than its name and message.
            return (json.dumps({"schema": PLAN_SCHEMA, "error": error_to_dict(error)}),)

    async def _plan(self, message: Message, text: str, *, diff: bool, stage: bool, **wanted: bool) -> str:
        await authorize(self.bus, message, f"{ACTIONS}.{'diff' if diff else 'verify'}")
        # The numbers of changed lines reveal something of a file that not every user may read.
        private = await is_root(self.bus, message)
        if stage:
            # It pulls an image and writes it to the disk. It takes minutes, and a verification need not wait for it.
            await authorize(self.bus, message, f"{ACTIONS}.apply")
            work = partial(self.api().plan, text, diff=diff, private=private, stage=True, **wanted)
            return await while_connected(self.bus, message.sender, work)
        async with self.turns.own("plan", await uid_of(self.bus, message)):
            return await self.api().plan(text, diff=diff, private=private, **wanted)

    async def rollback(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.rollback")
        (options,) = message.body
        _known(options, *REQUESTED, *OF_FEATURES)
        hold = _hold(options, await caller_name(self.bus, message))
        lockout = _flag(options, "allow_lockout")
        return (await self.api().rollback(_limits(options), hold, lockout=lockout),)

    async def cancel(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.cancel")
        return (await self.api().cancel(await caller_name(self.bus, message)),)

    async def reboot(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.reboot")
        return (await self.api().reboot(await caller_name(self.bus, message)),)

    async def verify(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.verify")
        # It reads every managed file, so that several calls of a user at once would load the disk for nothing.
        async with self.turns.own("verify", await uid_of(self.bus, message)):
            return (await self.api().verify(),)

    async def verify_diff(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.diff")
        async with self.turns.own("verify", await uid_of(self.bus, message)):
            return (await self.api().verify(diff=True),)

    async def config(self, message: Message) -> Sequence[Any]:
        which, options = message.body
        name, secrets = _config_options(which, options)
        await authorize(self.bus, message, f"{ACTIONS}.{'read-secrets' if secrets else 'verify'}")
        return await self._read(message, "config", partial(self.api().config, which, name, secrets=secrets))

    async def history(self, message: Message) -> Sequence[Any]:
        # It needs no authorization: like the status, it has names, times and reasons, and no content of a file.
        return await self._read(message, "history", partial(self.api().history, message.body[0]))

    async def update(self, message: Message) -> Sequence[Any]:
        return await self._read(message, "history", partial(self.api().update, message.body[0]))

    async def _read(self, message: Message, kind: str, read: Callable[[], Awaitable[str]]) -> Sequence[Any]:
        """Return the answer of a read that any user may repeat without end."""
        async with self.turns.shared(kind, await uid_of(self.bus, message)) as turn:
            return (turn.answered(await read()),)

    async def of_feature(self, method: BusMethod, message: Message) -> Sequence[Any]:
        if not method.action:
            return await self._read(message, method.name, lambda: self.api().calls[method.name](Caller(), message.body))
        # All of them before the call, because a call that is refused must have no effect.
        for action in (method.action, *method.also(message.body)):
            await authorize(self.bus, message, f"{ACTIONS}.{action}")
        call = self.api().calls[method.name]
        answer = await call(Caller(await caller_name(self.bus, message), message.sender), message.body)
        return (answer,) if method.gives else ()

    async def reload(self, message: Message) -> Sequence[Any]:
        await authorize(self.bus, message, f"{ACTIONS}.reload")
        await self.read_again()
        return ()

    def interface(self) -> Interface:
        with_config = partial(Method, max_size=MAX_APPLY, max_size_for_root=MAX_APPLY_OF_ROOT)
        return Interface(
            MANAGER,
            methods={
                "Apply": with_config(self.apply, "sa{sv}", "s", ("config", "options", "digest")),
                "Plan": with_config(self.plan, "sa{sv}", "s", ("config", "options", "plan")),
                "Rollback": Method(self.rollback, "a{sv}", "s", ("options", "config")),
                "Cancel": Method(self.cancel, "a{sv}", "s", ("options", "answer")),
                "Reboot": Method(self.reboot, "a{sv}", "s", ("options", "answer")),
                "Verify": Method(self.verify, "", "s", ("report",)),
                "VerifyDiff": Method(self.verify_diff, "", "s", ("report",)),
                "Config": Method(self.config, "sa{sv}", "s", ("which", "options", "config")),
                "History": Method(self.history, "u", "s", ("limit", "updates")),
                "Update": Method(self.update, "s", "s", ("id", "update")),
                "Reload": Method(self.reload),
                **{
                    method.name: Method(partial(self.of_feature, method), method.takes, method.gives, method.arguments)
                    for door in doors()
                    for method in door.methods
                },
            },
            signals={"UpdateFinished": Signal("ssi", ("digest", "entry", "exit_code"))},
        )


async def while_connected(bus: Bus, caller: str, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``work``, which is cancelled as soon as the caller disconnects, as a client on Ctrl-C does.

    Raises ``Refused`` (``Cancelled``) for a caller that has left.
    """
    left = Refused("the caller has disconnected", reason=Reason.CANCELLED)
    async with bus.signals(Match(BUS_NAME, "NameOwnerChanged", sender=BUS_NAME, arg0=caller)) as changes:
        # A caller that left before the subscription causes no signal.
        if not (await bus.call_bus("NameHasOwner", "s", (caller,)))[0]:
            raise left
        async with running(work()) as task, running(changes.next()) as gone:
            first: set[asyncio.Future[Any]] = {task, gone}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            # A result that came at the same moment as the departure is still returned: its work is done.
            if not task.done():
                raise left
            return task.result()


def _known(options: Mapping[str, Any], *names: str) -> None:
    """Raise ``InvalidInput`` (``BadOption``) for an option that this daemon does not know.

    Options limit what a call may do. A daemon that ignored ``no_reboot`` because of its age, or a client's misspelled
    option, would reboot the host.
    """
    if unknown := sorted(options.keys() - set(names)):
        raise InvalidInput(f"the option {unknown[0]} is unknown", reason=Reason.BAD_OPTION)


def _word(options: Mapping[str, Any], name: str) -> str:
    """Return the disruption in this option, "" if it is not set. Raises ``InvalidInput`` (``BadOption``)."""
    word = options.get(name, "")
    if word not in ("", *DISRUPTION_WORDS):
        message = f"{name} must be one of {', '.join(DISRUPTION_WORDS)}"
        raise InvalidInput(message, reason=Reason.BAD_OPTION)
    return str(word)


def _limits(options: Mapping[str, Any]) -> list[str]:
    return [word for name in LIMITS if (word := _word(options, name))]


def _hold(options: Mapping[str, Any], requester: str) -> Hold | None:
    """Return what the options of a request say about the update. Raises ``InvalidInput``."""
    # A limit holds for what follows a failed action, too. That a plan was confirmed is no limit.
    limited = options.get("max_disruption", "") not in ("", "reboot")
    no_reboot = options.get("no_reboot", False) or limited
    boot_staged = _flag(options, "boot_staged")
    of_features = request_options(options)
    if not (no_reboot or boot_staged or of_features):
        return None
    # The digest is that of the request, which is known when the config is parsed.
    return Hold("", bool(no_reboot), requester, boot_staged, of_features)


def _config_options(which: str, options: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the name and whether secrets are requested."""
    _known(options, "name", "secrets")
    name, secrets = options.get("name", ""), options.get("secrets", False)
    if which not in ("current", "desired", "named") or not isinstance(name, str) or not isinstance(secrets, bool):
        raise InvalidInput("which must be current, desired or named", reason=Reason.BAD_OPTION)
    return name, secrets


def _flag(options: Mapping[str, Any], name: str) -> bool:
    option = options.get(name, False)
    if not isinstance(option, bool):
        raise InvalidInput(f"{name} must be true or false", reason=Reason.BAD_OPTION)
    return option


def _number(options: Mapping[str, Any], name: str) -> int:
    number = options.get(name, 0)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidInput(f"{name} must be a number", reason=Reason.BAD_OPTION)
    return number


def _properties(report: Report) -> dict[str, Property]:
    """Return the JSON and its typed parts, all of them of one status."""
    # They answer from memory, so that the status works while the store or a peer hangs. Each is made once for each
    # status, however many clients read it.
    of: Status | None = None
    text, typed = "", dict[str, Any]()

    def values() -> tuple[str, Mapping[str, Any]]:
        nonlocal of, text, typed
        if of is not report.status:
            of = report.status
            text, typed = json.dumps(status_to_dict(of, daemon="running")), properties_of(of)
        return text, typed

    parts = {
        name: Property(declared.signature, partial(lambda name: values()[1][name], name))
        for name, declared in properties().items()
    }
    return {"Status": Property("s", lambda: values()[0]), "Version": Property("s", lambda: __version__), **parts}


@asynccontextmanager
async def serve(
    bus: Bus, report: Report, api: Callable[[], Api], reload: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Own the bus name inside the context, and emit a changed property for every event. ``api`` as in ``_Manager``."""
    shown = properties_of(report.status)
    status = Interface(STATUS, properties=_properties(report))
    async with Exporter(bus, NAME, PATH, [_Manager(bus, api, reload).interface(), status]) as exporter:

        def emit(event: Event, status: Status) -> None:
            nonlocal shown
            before, shown = shown, properties_of(status)
            exporter.changed(STATUS, "Status", *(name for name, value in shown.items() if value != before[name]))
            # After the properties, so that a client that gets the signal finds the end of the update in them.
            if isinstance(event, UpdateFinished):
                entry = json.dumps({**entry_to_dict(event.entry), "tried_again": event.tried_again})
                exporter.emit(MANAGER, "UpdateFinished", event.entry.to_digest, entry, event.exit_code)

        report.add(emit)
        yield
