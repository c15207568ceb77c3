"""CRI-O. Other domains reload or restart it; this one declares its health check."""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.domain import Domain, SocketHealth

__all__ = ["DOMAIN"]

DOMAIN: Final = Domain(
    name="crio",
    title="the container runtime",
    health=(SocketHealth("crio.service", "/run/crio/crio.sock"),),
)
