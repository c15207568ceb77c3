# SPDX-License-Identifier: Apache-2.0
"""Authorize callers with polkit.

Root is always authorized. polkit would decide the same, and an admin must be able to repair a host without polkit. For
other users polkit decides; if it does not answer, the call is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import pwd
from collections.abc import Sequence
from itertools import count
from typing import Any

from nodeagent.errors import AgentError, Refused
from nodeagent.host.dbus.client import Bus
from nodeagent.host.dbus.codec import a_sv
from nodeagent.host.dbus.errors import BusFault
from nodeagent.host.dbus.header import Message
from nodeagent.reasons import Reason

_NAME = "org.freedesktop.PolicyKit1"
_PATH = "/org/freedesktop/PolicyKit1/Authority"
_AUTHORITY = "org.freedesktop.PolicyKit1.Authority"

# Seconds to enter a password.
PASSWORD_TIMEOUT = 240.0

# Seconds for an answer without a prompt.
ANSWER_TIMEOUT = 25.0

# CheckAuthorizationFlags: AllowUserInteraction.
_ALLOW_INTERACTION = 1
_cancellations = count(1)


async def authorize(bus: Bus, message: Message, action: str) -> None:
    """Raise ``Refused`` (``NotAuthorized``) if the caller may not do ``action``.

    polkit asks for a password only if the caller allows it in its message.
    """
    if await uid_of(bus, message) == 0:
        return
    connection = bus.connections
    cancellation = f"nodeagent-{next(_cancellations)}"
    subject = ["system-bus-name", a_sv({"name": ("s", message.sender)})]
    body: Sequence[Any] = (subject, action, {}, _ALLOW_INTERACTION if message.interactive else 0, cancellation)
    try:
        ((allowed, challenge, _details),) = await bus.call(
            _NAME,
            _PATH,
            _AUTHORITY,
            "CheckAuthorization",
            "(sa{sv})sa{ss}us",
            body,
            timeout=PASSWORD_TIMEOUT if message.interactive else ANSWER_TIMEOUT,
        )
    except BusFault as error:
        if error.reason == Reason.BUS_TIMEOUT:
            await _cancel(bus, cancellation)
        raise Refused(f"{action} is for root: polkit does not answer", reason=Reason.NOT_AUTHORIZED) from error
    except asyncio.CancelledError:
        await _cancel(bus, cancellation)
        raise
    if bus.connections != connection:
        # The unique name may belong to another caller on the new connection.
        raise Refused("the caller has disconnected", reason=Reason.NOT_AUTHORIZED)
    if not allowed:
        hint = "run it as root, or in a session that can prompt for a password" if challenge else ""
        raise Refused(f"polkit does not allow {action}", reason=Reason.NOT_AUTHORIZED, hint=hint)


async def _cancel(bus: Bus, cancellation: str) -> None:
    """Close the password prompt, whose answer has no use any more."""
    with contextlib.suppress(AgentError):
        await bus.call(_NAME, _PATH, _AUTHORITY, "CancelCheckAuthorization", "s", (cancellation,), timeout=1.0)


async def is_root(bus: Bus, message: Message) -> bool:
    return await uid_of(bus, message) == 0


async def uid_of(bus: Bus, message: Message) -> int:
    if message.uid is not None:
        return message.uid
    try:
        return await bus.uid_of(message.sender)
    except BusFault as error:
        raise Refused("the caller has disconnected", reason=Reason.NOT_AUTHORIZED) from error


async def caller_name(bus: Bus, message: Message) -> str:
    """Return the name of the caller's user, or its id if it has no name."""
    uid = await uid_of(bus, message)
    try:
        return (await asyncio.to_thread(pwd.getpwuid, uid)).pw_name
    except KeyError:
        return f"uid {uid}"
