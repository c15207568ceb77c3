# SPDX-License-Identifier: Apache-2.0
"""Read the options of etcd from its command line, its environment, a static pod or a config file.

All get the names of its flags. Only addresses, names and paths are kept. An environment may have secrets, so only
etcd's own variables are read.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from nodeagent.core.plan.static_pods import is_etcd_container

# Flags for the place, the addresses and the certificates of a member.
KEPT = frozenset(
    {
        "name",
        "config-file",
        "data-dir",
        "cert-file",
        "key-file",
        "trusted-ca-file",
        "listen-client-urls",
        "listen-client-http-urls",
        "listen-metrics-urls",
        "advertise-client-urls",
        "initial-cluster",
    }
)
PATHS = ("config-file", "data-dir", "cert-file", "key-file", "trusted-ca-file")
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - the address of a server, to be replaced
# A server on a loopback address is this member, and no network is between.
LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Options:
    """``flags`` are by name, without dashes. Paths are those of this host."""

    flags: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        return self.flags.get(name, "")


def from_argv(argv: Sequence[str]) -> dict[str, str]:
    """Accept ``--name=value``, ``--name value`` and one dash, as Go does."""
    options: dict[str, str] = {}
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if name in KEPT:
            # A flag without "=" has its value in the next word.
            options[name] = value if equals else following
    return options


def from_environment(variables: Iterable[tuple[str, str]]) -> dict[str, str]:
    names = ((name.removeprefix("ETCD_").lower().replace("_", "-"), value) for name, value in variables
             if name.startswith("ETCD_"))  # fmt: skip
    return select_known(names)


def select_known(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the options that have a use here."""
    return {name: value for name, value in options if name in KEPT}


def from_config(document: Mapping[str, Any]) -> dict[str, str]:
    """Read the document of ``--config-file``."""
    security = document.get("client-transport-security")
    every = {**document, **(security if isinstance(security, Mapping) else {})}
    return {name: value for name, value in every.items() if name in KEPT and isinstance(value, str)}


def from_pod(pod: Mapping[str, Any]) -> dict[str, str] | None:
    """Return None if no container of the pod is an etcd.

    A command may be a shell script, as that of OpenShift is. Its words are read, without values that need the shell.
    """
    spec = _mapping(pod.get("spec"))
    for container in _mappings(spec.get("containers")):
        if not is_etcd_container(container):
            continue
        words = [str(word) for key in ("command", "args") for word in _list(container.get(key))]
        variables = [(str(v.get("name")), str(v["value"])) for v in _mappings(container.get("env")) if v.get("value")]
        # Flags have precedence over variables, as in etcd.
        flags = {**from_environment(variables), **from_argv(list(_split(words)))}
        # A value that the shell expands is unknown here.
        literals = {name: value for name, value in flags.items() if "$" not in value}
        # As texts, because a name in a file of the host may be of any type.
        volumes = {str(v.get("name")): _mapping(v.get("hostPath")).get("path") for v in _mappings(spec.get("volumes"))}
        mounts = {
            str(m.get("mountPath")): volumes.get(str(m.get("name"))) for m in _mappings(container.get("volumeMounts"))
        }
        return {name: _on_host(value, mounts) if name in PATHS else value for name, value in literals.items()}
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in _list(value) if isinstance(item, Mapping)]


def _split(words: Iterable[str]) -> Iterable[str]:
    for word in words:
        if "\n" not in word:
            yield word
            continue
        try:
            yield from shlex.split(word, comments=True)
        # A script with a quote that shlex does not know may still have the flags in plain words.
        except ValueError:
            yield from word.split()


def _on_host(path: str, mounts: Mapping[str, str | None]) -> str:
    """Map a path through the longest mount. A path on no mount belongs to the image, and is returned as it is."""
    # The longest mount point wins, as in the container.
    for mount in sorted(mounts, key=len, reverse=True):
        host = mounts[mount]
        if isinstance(host, str) and host and PurePosixPath(path).is_relative_to(mount):
            return str(PurePosixPath(host) / PurePosixPath(path).relative_to(mount))
    return path


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Base URLs of the JSON gateway.

    ``ours`` are of the member on this host, loopback first; ``others`` of hosts that may have members. ``port`` is set
    if the gateway is on that port instead of that of the advertised addresses.
    """

    ours: Sequence[str]
    others: Sequence[str] = ()
    port: int | None = None


def endpoints(options: Options) -> Endpoints:
    """Return the addresses of the gateway. With --listen-client-http-urls it is at those only."""
    http = _urls(options.get("listen-client-http-urls"))
    ours = http or _urls(options.get("listen-client-urls")) + _urls(options.get("advertise-client-urls"))
    if not ours:
        ours = ["http://127.0.0.1:2379"]
    # Loopback works even if the address of the host has changed.
    ours.sort(key=lambda url: urlsplit(url).hostname not in LOCAL)
    first = urlsplit(ours[0])
    peers = [part.partition("=")[2] for part in options.get("initial-cluster").split(",")]
    hosts = [urlsplit(url).hostname for url in _urls(",".join(peers))]
    others = [urlunsplit((first.scheme, _netloc(host, first.port), "", "", "")) for host in hosts if host]
    return Endpoints(
        tuple(dict.fromkeys(ours)),
        tuple(url for url in dict.fromkeys(others) if url not in ours),
        first.port if http else None,
    )


def metrics_urls(options: Options) -> Sequence[str]:
    """Return URLs of the metrics, the best first: etcd serves them at --listen-metrics-urls, and beside its API."""
    own = sorted(_urls(options.get("listen-metrics-urls")), key=lambda url: urlsplit(url).hostname not in LOCAL)
    return tuple(dict.fromkeys(f"{url}/metrics" for url in (*own, *endpoints(options).ours)))


def _urls(value: str) -> list[str]:
    """Return the http and https URLs of a list. Unix sockets and invalid URLs are left out."""
    urls = []
    for url in value.split(","):
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            continue
        if parts.scheme in ("http", "https") and parts.hostname:
            host = ANY_ADDRESS.get(parts.hostname, parts.hostname)
            urls.append(urlunsplit((parts.scheme, _netloc(host, port), "", "", "")))
    return urls


def _netloc(host: str | None, port: int | None) -> str:
    name = f"[{host}]" if host and ":" in host else host or ""
    return f"{name}:{port}" if port else name
