"""D-Bus server addresses of unix sockets."""

from __future__ import annotations

import os
from urllib.parse import unquote

from nodeagent.host.dbus.errors import BusTerminal
from nodeagent.reasons import Reason

__all__ = ["socket_paths", "system_bus_address"]

_DEFAULT = "unix:path=/run/dbus/system_bus_socket"


def system_bus_address() -> str:
    return os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or _DEFAULT


def socket_paths(address: str) -> list[str]:
    """Return the sockets in the order in which they are tried. An abstract socket starts with NUL, as in ``socket``."""
    found = []
    for server in address.split(";"):
        transport, _, rest = server.partition(":")
        values = dict(pair.partition("=")[::2] for pair in rest.split(",") if pair)
        if transport == "unix" and "path" in values:
            found.append(unquote(values["path"]))
        elif transport == "unix" and "abstract" in values:
            found.append("\0" + unquote(values["abstract"]))
    if not found:
        raise BusTerminal(f"no unix socket in the bus address {address!r}", reason=Reason.BUS_ADDRESS_INVALID)
    return found
