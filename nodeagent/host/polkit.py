"""May this caller do that? Root may; others are polkit's decision."""

from __future__ import annotations

from nodeagent.errors import AgentError, Refused
from nodeagent.host.bus import Bus
from nodeagent.host.bus_codec import Message, a_sv

__all__ = ["authorize", "caller_name"]

_POLKIT = "org.freedesktop.PolicyKit1"
_AUTHORITY = "/org/freedesktop/PolicyKit1/Authority"

PASSWORD_TIMEOUT = 240.0
"""Seconds for a person to type a password."""

ANSWER_TIMEOUT = 25.0
"""Seconds for an answer that asks nobody."""

_MAY_ASK = 1  # CheckAuthorizationFlags: AllowUserInteraction


async def authorize(bus: Bus, message: Message, action: str) -> None:
    """Raises ``Refused`` with reason ``NotAuthorized``. Without polkit only root is allowed."""
    if await _uid(bus, message.sender) == 0:
        return
    subject = ("system-bus-name", a_sv({"name": ("s", message.sender)}))
    may_ask = message.interactive
    try:
        ((allowed, _challenge, _details),) = await bus.call(
            _POLKIT,
            _AUTHORITY,
            f"{_POLKIT}.Authority",
            "CheckAuthorization",
            "(sa{sv})sa{ss}us",
            (subject, action, {}, _MAY_ASK if may_ask else 0, ""),
            timeout=PASSWORD_TIMEOUT if may_ask else ANSWER_TIMEOUT,
        )
    except AgentError as error:
        raise Refused(f"{action} is for root: polkit does not answer", reason="NotAuthorized") from error
    if not allowed:
        raise Refused(f"polkit does not allow {action}", reason="NotAuthorized")


async def _uid(bus: Bus, sender: str) -> int:
    (uid,) = await bus.call_bus("GetConnectionUnixUser", "s", (sender,))
    return int(uid)


async def caller_name(bus: Bus, message: Message) -> str:
    """For the lease: who is it? The user id where it has no name here."""
    import pwd  # nothing else needs it

    uid = await _uid(bus, message.sender)
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
