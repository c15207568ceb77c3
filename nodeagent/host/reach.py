# SPDX-License-Identifier: Apache-2.0
"""Whether a server answers, for the checks of the installation. The request only reads."""

from __future__ import annotations

import asyncio
from typing import Final

from nodeagent.core.self_check import ReachFacts
from nodeagent.host.http import HttpFault, request, tls_context

# Seconds for one request.
TIMEOUT: Final = 10.0


async def reach(target: str, url: str, *, ca: str = "", remedy: str = "", timeout: float = TIMEOUT) -> ReachFacts:
    """Request ``url``, to which any answer will do. ``remedy`` is for a ``ca`` that cannot be used."""
    try:
        tls = await asyncio.to_thread(tls_context, ca) if url.startswith("https:") else None
        answer = await request("GET", url, tls=tls, timeout=timeout)
    except HttpFault as fault:
        return ReachFacts(target, str(fault))
    except OSError as error:
        return ReachFacts(target, f"the authority {ca}: {error.strerror or error}", remedy)
    # Below 500 the server works, whatever it thinks of a request without credentials.
    return ReachFacts(target, f"status {answer.status}" if answer.status >= 500 else "")
