# SPDX-License-Identifier: Apache-2.0
"""The FleetLock protocol as data: a request for a slot of a group before a reboot, and one to release it.

The client's id identifies a slot, and a repeated request is harmless: a host that comes back after a reboot releases
the slot that it took before.
Source: the protocol's page in the documentation of Zincati, and its sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

GROUP = re.compile(r"[a-zA-Z0-9.-]+")


class Call(StrEnum):
    """The paths below the server's address."""

    LOCK = "v1/pre-reboot"
    UNLOCK = "v1/steady-state"


def is_group(name: str) -> bool:
    return GROUP.fullmatch(name) is not None


def body_of(client: str, group: str) -> Mapping[str, Any]:
    return {"client_params": {"id": client, "group": group}}


def refusal_text(answer: Mapping[str, Any]) -> str:
    """Return the text of a refusal; "" for an answer that is not of the protocol."""
    kind, value = answer.get("kind"), answer.get("value")
    return ": ".join(text for text in (kind, value) if isinstance(text, str) and text) if isinstance(kind, str) else ""
