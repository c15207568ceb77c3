# SPDX-License-Identifier: Apache-2.0
"""Whether a registry answers. The request only reads."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nodeagent.core.self_check import NotRead, ReachFacts
from nodeagent.features.selfcheck.decide.reach import is_redirected
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.reach import TIMEOUT, reach

_REGISTRIES: Final = "etc/containers/registries.conf"
_MAX_FILE: Final = 1 << 20
# Certificates for single registries: containers-certs.d(5).
_CERTIFICATES: Final = ("etc/containers/certs.d", "etc/docker/certs.d")


async def reach_registry(
    registry: str, *, root: Path = Path("/"), scheme: str = "https", timeout: float = TIMEOUT
) -> ReachFacts | NotRead:
    """Request the endpoint that each registry has. An answer that demands a login is an answer."""
    # A mirror or a certificate of its own is known to containers/image only, so a plain request proves nothing.
    if await asyncio.to_thread(_is_special, registry, root):
        return NotRead(f"registries.conf or certs.d of this host has its own rules for {registry}")
    return await reach(registry, f"{scheme}://{registry}/v2/", timeout=timeout)


def _is_special(registry: str, root: Path) -> bool:
    if any((root / place / registry).is_dir() for place in _CERTIFICATES):
        return True
    return is_redirected(registry, _documents(root))


def _documents(root: Path) -> Iterator[Mapping[str, Any]]:
    for path in (root / _REGISTRIES, *sorted((root / f"{_REGISTRIES}.d").glob("*.conf"))):
        try:
            yield tomllib.loads(read_regular(path, _MAX_FILE).decode())
        except (OSError, ValueError, RecursionError):
            # ``settings check`` and the pre-flight report a bad file. TOMLDecodeError is a ValueError.
            continue
