# SPDX-License-Identifier: Apache-2.0
"""Judge whether the servers that the settings and the desired config name can be reached from this host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodeagent.core.config.image import ContainerImage, parse_image
from nodeagent.errors import InvalidInput


def denied(verbs: Iterable[str], allowed: Mapping[str, bool]) -> str:
    """Return the verbs that the cluster does not allow, as words of an error."""
    refused = [verb for verb in verbs if not allowed.get(verb, False)]
    return f"the cluster does not allow to {', '.join(refused)} leases there" if refused else ""


def registry_of(image: str) -> str:
    """Return the host of the registry of an ``osImageURL``; "" for an image that names none."""
    try:
        parsed = parse_image(image)
    except InvalidInput:
        return ""
    if not isinstance(parsed, ContainerImage):
        return ""
    host, slash, _ = parsed.name.partition("/")
    # As in the references of container images: the first part is a host if it looks like one.
    return host if slash and ("." in host or ":" in host or host == "localhost") else ""


def is_redirected(registry: str, documents: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a registries.conf lets other servers, or other protocols, answer for this registry."""
    for document in documents:
        entries = document.get("registry")
        for entry in entries if isinstance(entries, list) else ():
            # A registry without a prefix is known by its location.
            scope = str(entry.get("prefix") or entry.get("location") or "") if isinstance(entry, dict) else ""
            wildcard = scope.startswith("*.") and registry.endswith(scope.partition("/")[0][1:])
            if scope and (wildcard or scope.partition("/")[0] == registry):
                return True
    return False
