# SPDX-License-Identifier: Apache-2.0
"""TLS of the tests: connections that fail early leave no open socket, whose warning a later test would get."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from integration import tls
from tests.support.tls_server import pair

__all__ = ["pair"]

ROOT = Path(__file__).resolve().parents[2]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@contextmanager
def nothing_left_open() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not [str(warning.message) for warning in found if warning.category is ResourceWarning]


@contextmanager
def serving(pair: tuple[str, str]) -> Iterator[tls.HttpsServer]:
    server = tls.HttpsServer(Handler, tls.server(Path(pair[0]), Path(pair[1])))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def answer(server: tls.HttpsServer, context: ssl.SSLContext) -> int:
    connection = HTTPSConnection("127.0.0.1", server.server_port, context=context, timeout=30)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


def handlers_ended(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()


def test_a_server_that_resets_before_the_handshake(pair: tuple[str, str]) -> None:
    with nothing_left_open(), socket.create_server(("127.0.0.1", 0)) as listening:
        connected = socket.create_connection(listening.getsockname(), 30)
        reset(listening.accept()[0])
        with pytest.raises(ConnectionResetError):
            tls.client(Path(pair[0])).wrap_socket(connected, server_hostname="127.0.0.1")


def test_clients_that_go_before_or_in_the_handshake(pair: tuple[str, str]) -> None:
    with nothing_left_open(), serving(pair) as server:
        before = set(threading.enumerate())
        address = server.server_address[:2]
        early = socket.create_connection(address, 30)
        reset(early)
        with socket.create_connection(address, 30) as closed:
            closed.sendall(b"\x16\x03\x01")
        with socket.create_connection(address, 30) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            plain.recv(100)
        with pytest.raises(ssl.SSLCertVerificationError):
            answer(server, ssl.create_default_context())
        assert answer(server, tls.client(Path(pair[0]))) == 204
        handlers_ended(before)


def test_a_silent_client_delays_no_other(pair: tuple[str, str]) -> None:
    with nothing_left_open(), serving(pair) as server:
        before = set(threading.enumerate())
        with socket.create_connection(server.server_address[:2], 30):
            assert answer(server, tls.client(Path(pair[0]))) == 204
        handlers_ended(before)


def test_each_context_for_blocking_sockets_is_made_here() -> None:
    """A context of ``ssl`` alone would leave sockets open."""
    made = ("ssl.create_default_context(", "ssl.SSLContext(", ".wrap_socket(")
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "integration").rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in made)
    }
    # Programs on other hosts, and a context that no socket gets.
    assert found == {
        "integration/tls.py",
        "integration/cluster/test_bootstrap.py",
        "integration/package/test_source_interpreter.py",
    }
