# SPDX-License-Identifier: Apache-2.0
"""Run the daemon until it is idle or asked to stop.

At the end it says STOPPING=1, gives the name back and waits for the answer to that. A call that was sent to it before
the name was gone gets no reply: that is the window in which clients see NoReply.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from integration.standins.rpmostreed.standin import interfaces, settings
from integration.standins.rpmostreed.standin.daemon import Daemon
from integration.standins.rpmostreed.standin.gir import Gio, GLib
from integration.standins.rpmostreed.standin.notify import notify


def main() -> int:
    options = settings.parse(sys.argv[1:])
    try:
        connection = _connect(options.bus_address)
        daemon = Daemon(connection, options)
        daemon.faults.act("boot")
        daemon.own_name()
    except (GLib.Error, ValueError) as error:
        print(f"error: Couldn't start daemon: {error}", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, number, daemon.stop)
    context = GLib.MainContext.default()
    while daemon.running:
        context.iteration(True)
    notify("STOPPING=1")
    daemon.faults.act("exit")
    released: list[bool] = []
    connection.call(
        "org.freedesktop.DBus",
        "/org/freedesktop/DBus",
        "org.freedesktop.DBus",
        "ReleaseName",
        GLib.Variant("(s)", (interfaces.NAME,)),
        GLib.VariantType("(u)"),
        Gio.DBusCallFlags.NONE,
        -1,
        None,
        lambda *_: released.append(True),
    )
    while not released:
        context.iteration(True)
    return 0


def _connect(address: str | None) -> Any:
    if address is None:
        return Gio.bus_get_sync(Gio.BusType.SYSTEM, None)
    flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
    return Gio.DBusConnection.new_for_address_sync(address, flags, None, None)


if __name__ == "__main__":
    sys.exit(main())
