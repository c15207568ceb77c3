# SPDX-License-Identifier: Apache-2.0
"""Translate D-Bus errors to ``AgentError`` and back.

``bus_error`` keeps the original name for adapters that distinguish the errors of their service
(``org.freedesktop.systemd1.NoSuchUnit``). Errors of the daemon cross the bus completely: name, message and, in a second
argument that other clients ignore, hint and problems. So `nodeagent apply` exits as if the error had been raised
in the client.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nodeagent.core.config.text import plain_json
from nodeagent.errors import (
    AgentError,
    Problem,
    Refused,
    Retryable,
    ServiceUnavailable,
    Terminal,
    Unreachable,
    error_of,
)
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason, hint, reason_of

OWN_PREFIX = "org.nodeagent.Error."

# Reason of each call that fails because the connection was lost. Its outcome is unknown: read the state again.
LOST = Reason.BUS_CONNECTION_LOST

_FREEDESKTOP = "org.freedesktop.DBus.Error."


class BusFault(AgentError):
    """The base of the four kinds below: name and text of the error as it came over the bus.

    Both are "" if no service sent the error (a timeout, a lost connection).
    """

    bus_error: str = ""
    bus_message: str = ""


class BusUnreachable(BusFault, ServiceUnavailable, Unreachable):
    """``denied``: the socket is there, and the kernel refused the connection (SELinux, mode of the path)."""

    denied: bool = False


class BusRetryable(BusFault, ServiceUnavailable, Retryable):
    pass


class BusTerminal(BusFault, Terminal):
    default_reason = Reason.BUS_CALL_FAILED


class BusRefused(BusFault, Refused):
    pass


# Names are from the D-Bus specification and libdbus' dbus-protocol.h. Any other name is an answer of the service.
# The same call would get it again, so it is terminal unless the adapter of the service decides otherwise.
_KINDS: dict[str, tuple[type[BusFault], AnyReason]] = {
    "ServiceUnknown": (BusUnreachable, Reason.SERVICE_UNKNOWN),
    "NameHasNoOwner": (BusUnreachable, Reason.SERVICE_UNKNOWN),
    "NoServer": (BusUnreachable, Reason.BUS_UNREACHABLE),
    # The service ended while it handled the call.
    "NoReply": (BusRetryable, Reason.NO_REPLY),
    "Timeout": (BusRetryable, Reason.BUS_TIMEOUT),
    "TimedOut": (BusRetryable, Reason.BUS_TIMEOUT),
    "Disconnected": (BusRetryable, LOST),
    "LimitsExceeded": (BusRetryable, Reason.LIMITS_EXCEEDED),
    "NoMemory": (BusRetryable, Reason.NO_MEMORY),
    "AccessDenied": (BusRefused, Reason.ACCESS_DENIED),
    "AuthFailed": (BusRefused, Reason.ACCESS_DENIED),
    "InteractiveAuthorizationRequired": (BusRefused, Reason.AUTHORIZATION_REQUIRED),
    "UnknownMethod": (BusTerminal, Reason.UNKNOWN_METHOD),
    "UnknownInterface": (BusTerminal, Reason.UNKNOWN_METHOD),
    "UnknownObject": (BusTerminal, Reason.UNKNOWN_OBJECT),
    "UnknownProperty": (BusTerminal, Reason.UNKNOWN_PROPERTY),
    "InvalidArgs": (BusTerminal, Reason.INVALID_ARGS),
    "InvalidSignature": (BusTerminal, Reason.INVALID_ARGS),
    "NotSupported": (BusTerminal, Reason.NOT_SUPPORTED),
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
    """Return the name under which operators know the service that owns this bus name."""
    return _SERVICES.get(destination, destination)


def connection_lost(cause: str) -> BusRetryable:
    return BusRetryable(f"connection to the bus was lost: {cause}", reason=LOST, service=BUS_SERVICE)


def from_bus(name: str, body: Sequence[Any], what: str) -> AgentError:
    """Return the error for a D-Bus error. ``what`` was called, as ``interface.member``; messages begin with it."""
    message = body[0] if body and isinstance(body[0], str) else ""
    if name.startswith(OWN_PREFIX):
        return _from_own(reason_of(name.removeprefix(OWN_PREFIX)), message, body[1] if len(body) > 1 else "")
    short = name.removeprefix(_FREEDESKTOP)
    unknown = (BusTerminal, BusTerminal.default_reason)
    kind, reason = _KINDS.get(short, unknown) if short != name else unknown
    # The activation of the service failed.
    if short.startswith("Spawn."):
        kind, reason = BusUnreachable, Reason.SERVICE_UNKNOWN
    error = kind(f"{what}: {message or name}", reason=reason)
    error.bus_error, error.bus_message = name, message
    return error


def _from_own(reason: AnyReason, message: str, details: Any) -> AgentError:
    try:
        facts = plain_json.loads(details)
        problems = [Problem(str(p["path"]), str(p["message"])) for p in facts.get("problems", ())]
        hint = str(facts.get("hint", ""))
    except (TypeError, ValueError, KeyError, AttributeError):
        # The details of another version of the daemon may differ; the reason is stable.
        return error_of(reason, message)
    return error_of(reason, message, hint=hint, problems=problems)


def to_bus(error: AgentError) -> tuple[str, tuple[str, str]]:
    """Return the name and the body of the D-Bus error for ``error``."""
    fields = error_to_dict(error)
    details = {"hint": fields["hint"], "problems": fields["problems"]}
    return OWN_PREFIX + error.reason, (error.message, json.dumps(details))


def error_to_dict(error: AgentError) -> dict[str, Any]:
    """Return an error as JSON data, with the next step of its reason if it has none of its own."""
    return {
        "reason": str(error.reason),
        "message": error.message,
        "hint": error.hint or hint(error.reason),
        "problems": [{"path": p.path, "message": p.message} for p in error.problems],
    }
