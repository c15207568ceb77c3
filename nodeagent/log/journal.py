# SPDX-License-Identifier: Apache-2.0
"""The native protocol of journald: one datagram with all fields for each entry.

Contract: it never blocks and never raises. If journald is full, restarting or gone, entries are lost; the next one that
arrives has their number. https://systemd.io/JOURNAL_NATIVE_PROTOCOL/
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"

# Bytes, as in libsystemd: room for a burst while journald rotates its files.
SEND_BUFFER = 8 * 1024 * 1024


def stderr_is_journal(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether stderr is the stream that systemd connected.

    It is not if it was redirected, or if the process was started manually in the environment of a service.
    """
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _name(name: str) -> str:
    """Return a valid name: at most 64 upper case letters, digits and underscores, a letter first."""
    # journald drops a field with another name. A leading underscore marks its own, trusted fields.
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.upper())[:64].lstrip("_0123456789")


def frame(fields: Mapping[str, object]) -> bytes:
    """Return the fields as ``NAME=value`` lines. A value with a newline follows its length, 64 bits little-endian."""
    parts: list[bytes] = []
    for key, value in fields.items():
        name = _name(key).encode()
        if not name:
            continue
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
        if b"\n" in data:
            parts += (name, b"\n", struct.pack("<Q", len(data)), data, b"\n")
        else:
            parts += (name, b"=", data, b"\n")
    return b"".join(parts)


def _sealed_memfd(data: bytes) -> int:
    """Return a memfd with the data. journald reads it only if it is sealed against changes."""
    fd = os.memfd_create("nodeagent-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        # A write to memory does not block.
        while view:
            view = view[os.pwrite(fd, view, len(data) - len(view)) :]
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


# Fields that systemd defines; all other fields of an entry get the prefix of nodeagent.
SYSTEMD = frozenset({"MESSAGE", "MESSAGE_ID", "PRIORITY", "SYSLOG_IDENTIFIER", "CODE_FILE", "CODE_LINE", "CODE_FUNC"})


class Journal:
    """A sink without a connection: if journald restarts, the next datagram reaches the new process."""

    def __init__(self, path: str = SOCKET) -> None:
        self.path = path
        self.dropped = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        # The kernel caps the size at net.core.wmem_max without an error.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def send(self, entry: Mapping[str, object]) -> None:
        fields = {key if key in SYSTEMD else f"NODEAGENT_{key}": value for key, value in entry.items()}
        # The gap is reported with the first entry after it, where a reader of the journal looks for a cause.
        if self.dropped and self._try({**fields, "NODEAGENT_DROPPED": self.dropped}):
            self.dropped = 0
        elif self.dropped or not self._try(fields):
            self.dropped += 1

    def _try(self, fields: Mapping[str, object]) -> bool:
        data = frame(fields)
        try:
            self._socket.sendto(data, self.path)
        except OSError as error:
            # ENOBUFS replaces EMSGSIZE if the memory of the kernel is too small.
            return error.errno in (errno.EMSGSIZE, errno.ENOBUFS) and self._send_memfd(data)
        return True

    def _send_memfd(self, data: bytes) -> bool:
        try:
            fd = _sealed_memfd(data)
        except OSError:
            return False
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
            self._socket.sendmsg([], [rights], 0, self.path)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def close(self) -> None:
        self._socket.close()
