# SPDX-License-Identifier: Apache-2.0
"""Check the certificates of a member before it is added to its cluster.

An added member that cannot connect blocks the next join. So its certificates make a handshake with each other here, as
server and as client, for each of its addresses, and its peer certificate one with a running member.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from nodeagent.features.etcd_members.config import MemberConfig, TlsFiles
from nodeagent.host.etcd.client import TIMEOUT
from nodeagent.host.http import HttpFault, no_password, request, tls_context

# Seconds. A certificate that ends earlier does not last for the join and its first renewal.
SOON: Final = 86400.0

MAX_FLIGHTS: Final = 10


async def certificate_problem(config: MemberConfig, others: Sequence[str], now: float) -> str:
    """Return the first problem, "" without one. ``others`` are peer URLs of running members; ``now`` is Unix time."""
    document = config.document
    clients = _hosts(str(document.get("advertise-client-urls") or ""))
    problem = await asyncio.to_thread(_own, config, clients, _hosts(",".join(config.peers)), now)
    return problem or await _accepted(config.peer_tls, others)


def _own(config: MemberConfig, clients: Sequence[str], peers: Sequence[str], now: float) -> str:
    # etcd compares the names in a certificate with the address that it connects to, so each one is tried.
    for what, files, hosts in (("client", config.client_tls, clients), ("peer", config.peer_tls, peers)):
        for host in hosts:
            if problem := _handshake(files, host, now):
                return f"the certificate for {what} connections, {files.certificate}: {problem}"
    return ""


def _handshake(files: TlsFiles, host: str, now: float) -> str:
    """Connect the certificate with itself in memory. The gateway of etcd uses it as a client, too."""
    try:
        client = tls_context(files.ca, files.certificate, files.key)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(files.certificate, files.key or None, password=no_password)
        # With client-cert-auth, etcd demands a certificate of each client and peer.
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_verify_locations(files.ca)
        ends = _ends(client, server, host)
    except ssl.SSLCertVerificationError as error:
        return f"{error.verify_message} (for {host})"
    except ssl.SSLError as error:
        return (error.reason or "invalid").lower().replace("_", " ")
    except OSError as error:
        return f"{error.strerror}: {error.filename or files.ca}"
    return f"it ends in {max(0.0, ends - now) / 3600:.0f} hours" if ends - now < SOON else ""


def _ends(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> float:
    """Make the handshake, and return the time at which the certificate ends, in Unix time."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(down, up, server_hostname=host)
    server_side = server.wrap_bio(up, down, server_side=True)
    pending = [client_side, server_side]
    for _ in range(MAX_FLIGHTS):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                continue
        if not pending:
            break
    certificate = client_side.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(certificate["notAfter"]))


async def _accepted(files: TlsFiles, others: Sequence[str]) -> str:
    """Return why no running member accepts the peer certificate: with TLS 1.3, that shows in the first answer."""
    problem = ""
    for url in others:
        try:
            tls = await asyncio.to_thread(tls_context, files.ca, files.certificate, files.key)
            # The peer port has this path as well, and it needs no rights in etcd.
            await request("GET", f"{url.rstrip('/')}/version", tls=tls, timeout=TIMEOUT)
        except HttpFault as fault:
            problem = f"{url}: {fault}"
        except OSError as error:
            return f"the certificate for peer connections: {error.strerror}: {error.filename or files.certificate}"
        else:
            return ""
    return problem and f"no member accepts a peer connection with {files.certificate or 'no certificate'}: {problem}"


def _hosts(urls: str) -> Sequence[str]:
    return tuple(dict.fromkeys(_https(url.strip() for url in urls.split(","))))


def _https(urls: Iterable[str]) -> Iterable[str]:
    for url in urls:
        # What is no URL has no host to connect to.
        with suppress(ValueError):
            parts = urlsplit(url)
            if parts.scheme == "https" and parts.hostname:
                yield parts.hostname
