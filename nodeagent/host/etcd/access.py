"""The addresses and certificates with which etcd is queried: those of a caller, or the detected ones."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.host.etcd.client import TIMEOUT, EtcdClient, EtcdFault
from nodeagent.host.etcd.options import Endpoints, Options, endpoints
from nodeagent.host.http import tls_context
from nodeagent.reasons import Reason


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Addresses and certificates of a caller. "" and () mean those that are detected. Paths are PEM files."""

    endpoints: Sequence[str] = ()
    ca: str = ""
    certificate: str = ""
    key: str = ""


def endpoints_of(options: Options, access: EtcdAccess) -> Endpoints:
    """Return the addresses. The first one of a caller is that of this host."""
    if access.endpoints:
        first, *others = (url.rstrip("/") for url in access.endpoints)
        return Endpoints((first,), others)
    return endpoints(options)


def open_client(options: Options, access: EtcdAccess, where: Endpoints, timeout: float = TIMEOUT) -> EtcdClient:
    """Read the certificates. Blocks. Raises ``EtcdFault`` (``EtcdCredentials``)."""
    if not any(url.startswith("https:") for url in (*where.ours, *where.others)):
        return EtcdClient(None, timeout=timeout)
    return EtcdClient(client_tls(options, access), timeout=timeout)


def client_tls(options: Options, access: EtcdAccess = EtcdAccess()) -> ssl.SSLContext:
    """Return the context with the certificates. Blocks. Raises ``EtcdFault`` (``EtcdCredentials``)."""
    files = (
        access.ca or options.get("trusted-ca-file"),
        access.certificate or options.get("cert-file"),
        access.key or options.get("key-file"),
    )
    try:
        return tls_context(*files)
    except ssl.SSLError as error:
        raise EtcdFault(f"certificates of etcd: {error.reason or error}", reason=Reason.ETCD_CREDENTIALS) from error
    except OSError as error:
        which = error.filename or ", ".join(filter(None, files))
        raise EtcdFault(f"certificates of etcd: {error.strerror}: {which}", reason=Reason.ETCD_CREDENTIALS) from error
