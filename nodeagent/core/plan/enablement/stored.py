# SPDX-License-Identifier: Apache-2.0
"""LinkClaims as text, for the store."""

from __future__ import annotations

import json
from typing import Final

from nodeagent.core.config.text import plain_json
from nodeagent.core.plan.enablement.link_plan import LinkClaim, LinkClaims

_DAMAGED: Final = "the claims of links are damaged"


def claims_to_text(claims: LinkClaims) -> str:
    """Return "" without claims."""
    rows = {path: [claim.entry, claim.before] for path, claim in claims.items()}
    return json.dumps(rows, sort_keys=True, separators=(",", ":")) if rows else ""


def claims_from_text(text: str) -> LinkClaims:
    """Raises ``ValueError`` for a text that ``claims_to_text`` did not return."""
    match plain_json.loads(text) if text else {}:
        case dict(rows):
            return {path: _claim(row) for path, row in rows.items()}
        case _:
            raise ValueError(_DAMAGED)


def _claim(row: object) -> LinkClaim:
    match row:
        case [str(entry), str() | None as before]:
            return LinkClaim(entry, before)
        case _:
            raise ValueError(_DAMAGED)
