# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: puts into etcd at fixed times, over its JSON gateway, and notes when each was due and done.

    puts.py PORT RESULT RATE

RESULT gets three little-endian doubles a put: due, begun, done; a put that failed has 0 as its end.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import sys
import time

VALUE = 256  # bytes
KEYS = 512
TIMEOUT = 60.0


class Client:
    """One connection that is kept; http.client would cost more without KVM than the put."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def put(self, number: int) -> bool:
        key = base64.b64encode(f"/bench/{number % KEYS:04}".encode()).decode()
        body = f'{{"key":"{key}","value":"{base64.b64encode(os.urandom(VALUE)).decode()}"}}'
        head = f"POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT)
            self._socket.sendall((head + body).encode())
            return self._answer(self._socket)
        except OSError:
            self._socket = None
            return False

    def _answer(self, stream: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            data += (more := stream.recv(65536))
            if not more:
                raise ConnectionResetError
        head, _, rest = data.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        left = int(fields[b"content-length"]) - len(rest)
        while left > 0:
            left -= len(stream.recv(left))
        return b" 200 " in head.split(b"\r\n", 1)[0]


def main(port: int, result: str, rate: float) -> None:
    client, record, number = Client(port), struct.Struct("<ddd"), 0
    out = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    due = time.monotonic() + 1 / rate
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        begun = time.monotonic()
        done = client.put(number)
        os.write(out, record.pack(due, begun, time.monotonic() if done else 0.0))
        number, due = number + 1, due + 1 / rate


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
