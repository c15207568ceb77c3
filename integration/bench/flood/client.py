# SPDX-License-Identifier: Apache-2.0
"""One user of a test host who reads the history without end, over two connections with as many calls as each may have.

    python -m integration.bench.flood.client UID PROCESS

PROCESS is one of the host, whose root has the bus. It ends with its standard input.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from nodeagent.host.dbus.header import HEADER_SIZE, MessageKind, frame_size, read_header
from tests.support.wire import FACE, connect_as, hello, message

SOCKET: Final = Path("/run/dbus/system_bus_socket")
NAME: Final = "org.nodeagent.Agent1"
# The limit of a connection. The answer to Hello brings one more call, which is refused and repeated at once.
OUTSTANDING: Final = 8
CALLS: Final = (
    ("History", "u", struct.pack("<I", 1000)),
    ("Update", "s", struct.pack("<I", 1) + b"0\0"),
)


class Flood:
    def __init__(self, sock: socket.socket, member: str, signature: str, body: bytes) -> None:
        self.sock = sock
        self.call = (1, NAME, member, signature, body)
        self.buffer = bytearray()
        sock.sendall(hello())

    def send(self, count: int) -> None:
        kind, name, member, signature, body = self.call
        one = message(kind, name, member, signature, body, path="/org/nodeagent/Agent1", interface=FACE)
        self.sock.sendall(one * count)

    def read(self) -> int:
        """Return the number of answers, each of which is followed by another call."""
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the bus closed the connection")
        self.buffer += data
        answers = 0
        while len(self.buffer) >= HEADER_SIZE and len(self.buffer) >= (size := frame_size(self.buffer)):
            kind = read_header(self.buffer).kind
            del self.buffer[:size]
            answers += kind in (MessageKind.RETURN, MessageKind.ERROR)
        return answers


def main(uid: int, process: str) -> int:
    root = Path(f"/proc/{process}/root")
    os.nice(19)
    answers = 0
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for call in CALLS:
            flood = Flood(connect_as(uid, SOCKET, root), *call)
            flood.send(OUTSTANDING)
            selector.register(flood.sock, selectors.EVENT_READ, flood)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    # The first answer is that of Hello.
                    print(answers - len(CALLS), flush=True)
                    return 0
                count = key.data.read()
                answers += count
                if count:
                    key.data.send(count)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
