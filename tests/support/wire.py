# SPDX-License-Identifier: Apache-2.0
"""Raw messages as a hostile client makes them, and a connection to the bus as another user."""

from __future__ import annotations

import itertools
import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534
_serials = itertools.count(1)
FACE = "org.nodeagent.Agent1.Manager"
PATH = "/org/nodeagent/Agent1"


def connect_as(uid: int, path: Path, root: Path = Path("/")) -> socket.socket:
    """Authenticated at the bus as that user: the kernel keeps the user of the process that connected. ``path`` is that
    below ``root``."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            if root != Path("/"):
                os.chroot(root)
            if uid != os.geteuid():
                os.setgroups([])
                os.setresuid(uid, uid, uid)
            made = socket.socket(socket.AF_UNIX)
            made.connect(str(path))
            made.sendall(b"\0AUTH EXTERNAL " + str(uid).encode().hex().encode() + b"\r\n")
            answer = made.recv(200)
            made.sendall(b"BEGIN\r\n")
            socket.send_fds(theirs, [answer[:2]], [made.fileno()])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    theirs.close()
    answer, fds, _, _ = socket.recv_fds(ours, 2, 1)
    ours.close()
    assert answer == b"OK", "the bus did not let that user in"
    return socket.socket(fileno=fds[0])


def field(code: int, kind: str, value: str | int) -> bytes:
    head = bytes([code, 1]) + kind.encode() + b"\0"
    if isinstance(value, int):
        return head + struct.pack("<I", value)
    data = value.encode()
    size = bytes([len(data)]) if kind == "g" else struct.pack("<I", len(data))
    return head + size + data + b"\0"


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def message(kind: int, destination: str, member: str, signature: str, body: bytes, **fields: str | int) -> bytes:
    """Encode a message with a serial of its own.

    ``fields``: path, interface, sender, error_name or reply_serial instead of the usual ones; "" and 0 leave one out.
    """
    named = {"path": PATH, "interface": FACE, "sender": "", "error_name": "", "reply_serial": 0, **fields}
    parts = [
        field(code, letter, value)
        for code, letter, value in (
            (1, "o", named["path"]),
            (2, "s", named["interface"]),
            (3, "s", member),
            (4, "s", named["error_name"]),
            (5, "u", named["reply_serial"]),
            (6, "s", destination),
            (7, "s", named["sender"]),
            (8, "g", signature),
        )
        if value
    ]
    array = b"".join(map(pad, parts[:-1])) + parts[-1]
    return pad(struct.pack("<4BIII", ord("l"), kind, 0, 1, len(body), next(_serials), len(array)) + array) + body


def hello() -> bytes:
    bus = "org.freedesktop.DBus"
    return message(1, bus, "Hello", "", b"", path="/org/freedesktop/DBus", interface=bus)


def array_of_variants(size: int) -> bytes:
    """The body of an ``av``: six bytes and their padding for an element that takes microseconds to decode."""
    element = b"\1y\0\0"
    return struct.pack("<I", size // 4 * 4) + element * (size // 4)


def nested_variants(depth: int) -> bytes:
    return b"\1v\0" * depth + b"\1y\0\7"


def hostile(seed: int, destination: str, count: int) -> Iterator[bytes]:
    """Valid frames of every kind that a bus lets through, most of them pointless: wrong paths, members, signatures,
    unwanted replies and signals, large and nested bodies."""
    rng = random.Random(seed)
    bodies = [
        ("", b""),
        ("s", struct.pack("<I", 3) + b"abc\0"),
        ("sa{sv}", struct.pack("<I", 3) + b"abc\0" + bytes(8)),
        ("av", array_of_variants(1 << 10)),
        ("av", array_of_variants(1 << 13)),
        ("v", nested_variants(60)),
        ("aay", struct.pack("<I", 1 << 12) + bytes(1 << 12)),
        ("ay", struct.pack("<I", 1 << 15) + bytes(1 << 15)),
        ("a{sv}", struct.pack("<II", 0, 0)),
    ]
    members = ["Apply", "History", "Verify", "Options", "Add", "Fail", "Get", "GetAll", "PropertiesChanged", "None"]
    faces = [FACE, "org.freedesktop.DBus.Properties", "org.freedesktop.systemd1.Manager", "a.b", ""]
    paths = [PATH, "/", "/" + "x" * 200, "/org/freedesktop/systemd1"]
    for _ in range(count):
        signature, body = rng.choice(bodies)
        kind = rng.choice((1, 1, 1, 2, 3, 4))
        yield message(
            kind,
            destination,
            rng.choice(members),
            signature,
            body,
            path=rng.choice(paths),
            interface=rng.choice(faces) or (FACE if kind == 4 else ""),
            error_name="a.b" if kind == 3 else "",
            reply_serial=rng.randrange(1, 100) if kind in (2, 3) else 0,
        )


def malformed(seed: int, count: int) -> Iterator[bytes]:
    """Change some bytes of ``hostile``, as only a broken bus would let through. Frames keep their size."""
    rng = random.Random(seed)
    for data in hostile(seed, ":1.0", count):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 8)):
            at = rng.randrange(1, min(len(changed), 400))
            if at == 3 or 4 <= at < 8 or 12 <= at < 16:  # the version and the two sizes
                continue
            changed[at] = rng.randrange(256)
        yield bytes(changed)
