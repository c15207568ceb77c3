"""Match rules: what we ask the bus to send us, and the same test again on what arrives.

The second test is needed: anybody on the bus may send a signal directly to us, whatever we asked for. A sender given
by its well-known name is compared by the name's present owner, which ``Bus`` keeps track of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from nodeagent.host.dbus.header import Message

__all__ = ["BUS_NAME", "Match"]

BUS_NAME = "org.freedesktop.DBus"


@dataclass(frozen=True, slots=True)
class Match:
    """Signals of ``interface``; the rest narrows it down where it is not ""."""

    interface: str
    member: str = ""
    sender: str = ""
    path: str = ""
    arg0: str = ""

    def rule(self) -> str:
        parts = [f"{f.name}='{value}'" for f in fields(self) if (value := getattr(self, f.name))]
        if any(part.count("'") != 2 for part in parts):
            raise ValueError(f"a match rule cannot hold a quote: {parts}")
        return ",".join(["type='signal'", *parts])

    @property
    def watched_name(self) -> str:
        """The well-known name whose owner has to be known, "" if none."""
        return "" if self.sender.startswith(":") or self.sender == BUS_NAME else self.sender

    def accepts_header(self, signal: Message, owners: Mapping[str, str]) -> bool:
        """Before the body was decoded."""
        return (
            self.interface == signal.interface
            and self.member in ("", signal.member)
            and self.path in ("", signal.path)
            and (self.sender in ("", signal.sender) or owners.get(self.sender, "") == signal.sender != "")
        )

    def accepts(self, signal: Message, owners: Mapping[str, str]) -> bool:
        return self.accepts_header(signal, owners) and (
            not self.arg0 or (len(signal.body) > 0 and signal.body[0] == self.arg0)
        )
