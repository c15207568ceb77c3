# SPDX-License-Identifier: Apache-2.0
"""sd_notify(3), so that systemd knows early that a daemon is leaving and starts another."""

from __future__ import annotations

import os
import socket


def notify(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        try:
            notifier.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            return  # A missing listener is not a failure.
