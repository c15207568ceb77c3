"""systemd's native journal protocol: one datagram for each entry, fields and all.

Contract: never blocks and never raises. A journal that is full, restarting or gone loses entries; the next one that
arrives says how many. https://systemd.io/JOURNAL_NATIVE_PROTOCOL/
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

from nodeagent.log.messages import INFO

__all__ = ["SOCKET", "SYSTEMD", "Journal", "frame", "stderr_is_journal"]

SOCKET = "/run/systemd/journal/socket"

SEND_BUFFER = 8 * 1024 * 1024
"""What libsystemd asks for too: room for a burst while journald is busy rotating."""


def stderr_is_journal(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether our stderr is the stream that systemd connected: not so if somebody redirected it, or runs us by hand
    from a service's environment."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _name(name: str) -> str:
    """Upper case letters, digits and underscores, at most 64, a letter first: journald drops others."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.upper())[:64].lstrip("_0123456789")


def frame(fields: Mapping[str, object]) -> bytes:
    """``NAME=value`` lines; a value with a newline has its length before it instead, as 64 bits little-endian."""
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
    """journald reads a memfd only if nobody can change it under its hands."""
    fd = os.memfd_create("nodeagent-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:  # memory, not a disk: this copies and does not wait
            view = view[os.pwrite(fd, view, len(data) - len(view)) :]
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


# Names that systemd gave a meaning; everything else in an entry is ours and gets our prefix.
SYSTEMD = frozenset({"MESSAGE", "MESSAGE_ID", "PRIORITY", "SYSLOG_IDENTIFIER", "CODE_FILE", "CODE_LINE", "CODE_FUNC"})


class Journal:
    """A sink. Not connected: journald may be restarted at any time, and the next datagram simply finds the new one."""

    threshold = INFO

    def __init__(self, path: str = SOCKET) -> None:
        self.path = path
        self.dropped = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def send(self, entry: Mapping[str, object]) -> None:
        fields = {key if key in SYSTEMD else f"NODEAGENT_{key}": value for key, value in entry.items()}
        if self.dropped and self._try({**fields, "NODEAGENT_DROPPED": self.dropped}):
            self.dropped = 0
        elif self.dropped or not self._try(fields):
            self.dropped += 1

    def _try(self, fields: Mapping[str, object]) -> bool:
        data = frame(fields)
        try:
            self._socket.sendto(data, self.path)
        except OSError as error:
            # ENOBUFS comes instead of EMSGSIZE when it is the kernel's memory that does not fit.
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
