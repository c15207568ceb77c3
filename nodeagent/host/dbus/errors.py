"""The one place where D-Bus error names become our kinds of error.

``bus_error`` keeps the name as it came over the bus, for adapters that have to tell apart what their service means
(``org.freedesktop.systemd1.NoSuchUnit``). Our own daemon's errors cross the bus whole: name, message and, as a second
argument that other clients ignore, kind, hint and problems. So `nodeagent apply` exits as if the daemon's error had
been raised in the client.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nodeagent.core.config.text import plain_json
from nodeagent.errors import (
    AgentError,
    InvalidInput,
    Problem,
    Refused,
    Retryable,
    ServiceUnavailable,
    Terminal,
    Unreachable,
    Unreconcilable,
)

__all__ = [
    "BUS_SERVICE",
    "LOST",
    "OWN_PREFIX",
    "BusFault",
    "BusRefused",
    "BusRetryable",
    "BusTerminal",
    "BusUnreachable",
    "connection_lost",
    "from_bus",
    "service_name",
    "to_bus",
]

OWN_PREFIX = "org.nodeagent.Error."
LOST = "BusConnectionLost"
"""Reason of everything that fails because the connection dropped: the outcome is unknown, read the state again."""

_FREEDESKTOP = "org.freedesktop.DBus.Error."


class BusFault(AgentError):
    """What the four kinds below share: the error as it came over the bus, its name and its text. Both are "" where the
    fault is ours (a timeout, a lost connection)."""

    bus_error: str = ""
    bus_message: str = ""


class BusUnreachable(BusFault, ServiceUnavailable, Unreachable):
    pass


class BusRetryable(BusFault, ServiceUnavailable, Retryable):
    pass


class BusTerminal(BusFault, Terminal):
    default_reason = "BusCallFailed"


class BusRefused(BusFault, Refused):
    pass


# Names are from the D-Bus specification and libdbus' dbus-protocol.h. Whatever is not here is an answer of the service
# itself, which the same question would get again: terminal, unless its adapter knows better.
_KINDS: dict[str, tuple[type[BusFault], str]] = {
    "ServiceUnknown": (BusUnreachable, "ServiceUnknown"),
    "NameHasNoOwner": (BusUnreachable, "ServiceUnknown"),
    "NoServer": (BusUnreachable, "BusUnreachable"),
    "NoReply": (BusRetryable, "NoReply"),  # the service died, or was restarted, with our call in its hands
    "Timeout": (BusRetryable, "BusTimeout"),
    "TimedOut": (BusRetryable, "BusTimeout"),
    "Disconnected": (BusRetryable, LOST),
    "LimitsExceeded": (BusRetryable, "LimitsExceeded"),
    "NoMemory": (BusRetryable, "NoMemory"),
    "AccessDenied": (BusRefused, "AccessDenied"),
    "AuthFailed": (BusRefused, "AccessDenied"),
    "InteractiveAuthorizationRequired": (BusRefused, "AuthorizationRequired"),
    "UnknownMethod": (BusTerminal, "UnknownMethod"),
    "UnknownInterface": (BusTerminal, "UnknownMethod"),
    "UnknownObject": (BusTerminal, "UnknownObject"),
    "UnknownProperty": (BusTerminal, "UnknownProperty"),
    "InvalidArgs": (BusTerminal, "InvalidArgs"),
    "InvalidSignature": (BusTerminal, "InvalidArgs"),
    "NotSupported": (BusTerminal, "NotSupported"),
}

_OWN_KINDS: dict[str, type[AgentError]] = {
    kind.__name__: kind
    for kind in (InvalidInput, Refused, Retryable, Terminal, Unreachable, Unreconcilable, AgentError)
}


BUS_SERVICE = "the system bus"
_SERVICES = {
    "org.freedesktop.DBus": BUS_SERVICE,
    "org.freedesktop.PolicyKit1": "polkit",
    "org.freedesktop.login1": "systemd-logind",
    "org.freedesktop.systemd1": "systemd",
    "org.projectatomic.rpmostree1": "rpm-ostreed",
}


def service_name(destination: str) -> str:
    """The name by which an operator knows the service that owns this bus name."""
    return _SERVICES.get(destination, destination)


def connection_lost(why: str) -> BusRetryable:
    return BusRetryable(f"connection to the bus was lost: {why}", reason=LOST, service=BUS_SERVICE)


def from_bus(name: str, body: Sequence[Any], what: str) -> AgentError:
    """``what`` was asked, as ``interface.member``; it opens the message of a foreign error."""
    message = body[0] if body and isinstance(body[0], str) else ""
    if name.startswith(OWN_PREFIX):
        return _from_own(name.removeprefix(OWN_PREFIX), message, body[1] if len(body) > 1 else "")
    short = name.removeprefix(_FREEDESKTOP)
    kind, reason = _KINDS.get(short, (BusTerminal, "")) if short != name else (BusTerminal, "")
    if short.startswith("Spawn."):  # the activation of the service failed
        kind, reason = BusUnreachable, "ServiceUnknown"
    error = kind(f"{what}: {message or name}", reason=reason)
    error.bus_error, error.bus_message = name, message
    return error


def _from_own(reason: str, message: str, details: Any) -> AgentError:
    try:
        facts = plain_json.loads(details)
        problems = [Problem(str(p["path"]), str(p["message"])) for p in facts.get("problems", ())]
        kind, hint = _OWN_KINDS.get(facts.get("kind"), AgentError), str(facts.get("hint", ""))
    except (TypeError, ValueError, KeyError, AttributeError):  # another version of the daemon: keep what is stable
        return AgentError(message, reason=reason)
    return kind(message, reason=reason, hint=hint, problems=problems)


def to_bus(error: AgentError) -> tuple[str, tuple[str, str]]:
    """Name and body of the D-Bus error that stands for ``error``."""
    kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _OWN_KINDS)
    details = {
        "kind": kind,
        "hint": error.hint,
        "problems": [{"path": p.path, "message": p.message} for p in error.problems],
    }
    return OWN_PREFIX + error.reason, (error.message, json.dumps(details))
