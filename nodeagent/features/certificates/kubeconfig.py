# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs that `nodeagent bootstrap` reads and writes: without the official library and without a connection."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from nodeagent.core.config.text import plain_yaml
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason

# What is taken over of a cluster: the address, its authority, and the way to it.
ADDRESS: Final = ("server", "certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url")
# Files that a user may name, and the keys for the same content.
_FILES: Final = {"client-certificate": "client-certificate-data", "client-key": "client-key-data", "tokenFile": "token"}


def cluster_of(path: Path) -> Mapping[str, str]:
    """Return the cluster of the current context, with an absolute path of its authority.

    Raises ``InvalidInput`` (``KubeconfigInvalid``).
    """
    document, context = _current(path)
    entry = _named(path, document, "cluster", context.get("cluster"))
    cluster = {key: str(entry[key]) for key in ADDRESS if entry.get(key)}
    if "server" not in cluster:
        raise _invalid(path, "the cluster of the current context has no server")
    # A relative path in a kubeconfig is relative to it, and the new one is in another directory.
    if "certificate-authority" in cluster:
        cluster["certificate-authority"] = str(path.parent / cluster["certificate-authority"])
    return cluster


def client_certificate_of(path: Path) -> Path | None:
    """Return the file with the certificate of the current user, None for another kind of credentials."""
    document, context = _current(path)
    name = _named(path, document, "user", context.get("user")).get("client-certificate")
    return path.parent / name if isinstance(name, str) and name else None


def kubeconfig(cluster: Mapping[str, str], certificate: Path) -> bytes:
    """Return a kubeconfig for the key and the certificate in one file."""
    return _document(cluster, {"client-certificate": str(certificate), "client-key": str(certificate)})


def self_contained(path: Path) -> bytes:
    """Return the current context as a kubeconfig that names no file, for a reader that cannot see the files.

    The content of a key wins over the file beside it. Raises ``InvalidInput`` (``KubeconfigInvalid``).
    """
    document, context = _current(path)
    cluster = dict(cluster_of(path))
    if authority := cluster.pop("certificate-authority", ""):
        cluster.setdefault("certificate-authority-data", base64.b64encode(_content(Path(authority))).decode())
    user = dict(_named(path, document, "user", context.get("user")))
    for key, inline in _FILES.items():
        if file := user.pop(key, None):
            content = _content(path.parent / str(file))
            text = content.decode(errors="replace").strip() if inline == "token" else base64.b64encode(content).decode()
            user.setdefault(inline, text)
    return _document(cluster, user)


def _content(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            # A pipe without a writer would block without end.
            raise _invalid(path, "it is no regular file")
        return path.read_bytes()
    except OSError as error:
        raise _invalid(path, error.strerror or str(error)) from None


def _document(cluster: Mapping[str, str], user: Mapping[str, Any]) -> bytes:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": dict(cluster)}],
        "users": [{"name": "nodeagent", "user": dict(user)}],
        "contexts": [{"name": "nodeagent", "context": {"cluster": "cluster", "user": "nodeagent"}}],
        "current-context": "nodeagent",
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


def _current(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the document and its current context."""
    try:
        document = plain_yaml.loads(_content(path))
    except ValueError as error:
        raise _invalid(path, str(error)) from None
    if not isinstance(document, Mapping):
        raise _invalid(path, "not a kubeconfig")
    return document, _named(path, document, "context", document.get("current-context"))


def _named(path: Path, document: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(kind), Mapping):
            section: Mapping[str, Any] = entry[kind]
            return section
    raise _invalid(path, f"the {kind} of the current context is missing")


def _invalid(path: Path, problem: str) -> InvalidInput:
    return InvalidInput(f"{path}: {problem}", reason=Reason.KUBECONFIG_INVALID)
