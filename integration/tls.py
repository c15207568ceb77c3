# SPDX-License-Identifier: Apache-2.0
"""TLS for clients and servers of tests. None of their sockets stays open when a peer resets a connection early.

Before Python 3.13, ``wrap_socket`` leaves the socket open if the connection was reset before the handshake, as a server
does that is killed with connections in its queue. The warning about it appears in a later test.
"""

from __future__ import annotations

import socket
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

HANDSHAKE: Final = 20.0


class _Socket(ssl.SSLSocket):
    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ConnectionError:
            self.close()
            raise


def client(ca: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    context.sslsocket_class = _Socket
    return context


def server(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = _Socket
    context.load_cert_chain(certificate, key)
    return context


class HttpsServer(ThreadingHTTPServer):
    """On a free port of the loopback. A handshake is made in the thread of its connection, so a client that is silent
    or rejects the certificate delays no other."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        assert isinstance(request, ssl.SSLSocket)
        try:
            request.settimeout(HANDSHAKE)
            request.do_handshake()
            request.settimeout(None)
        except OSError:
            return
        super().finish_request(request, client_address)
