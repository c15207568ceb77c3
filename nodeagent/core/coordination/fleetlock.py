# SPDX-License-Identifier: Apache-2.0
"""The FleetLock protocol as data: a request for a slot of a group before a reboot, and one to release it.

The client's id identifies a slot, and a repeated request is harmless: a host that comes back after a reboot releases
the slot that it took before. The id is the one of Zincati, so that a server which maps hosts to nodes by it
(poseidon/fleetlock drains them) knows this host, and a host that changes from Zincati keeps its slot.
Source: the protocol's page in the documentation of Zincati, and its sources.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

# The application id that Zincati compiles in.
APPLICATION = UUID("de35106b6ec24688b63afddaa156679b")
GROUP = re.compile(r"[a-zA-Z0-9.-]+")


class Call(StrEnum):
    """The paths below the server's address."""

    LOCK = "v1/pre-reboot"
    UNLOCK = "v1/steady-state"


def client_id(machine_id: str) -> str:
    """Return an id of this host that does not reveal its machine id. Raises ``ValueError`` for an invalid machine id.

    It is that of ``systemd-id128 machine-id --app-specific`` with Zincati's application id.
    """
    digest = bytearray(hmac.digest(UUID(machine_id).bytes, APPLICATION.bytes, hashlib.sha256)[:16])
    # sd_id128_get_machine_app_specific(3): a valid UUID of version 4.
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return digest.hex()


def is_group(name: str) -> bool:
    return GROUP.fullmatch(name) is not None


def body_of(client: str, group: str) -> Mapping[str, Any]:
    return {"client_params": {"id": client, "group": group}}


def refusal_text(answer: Mapping[str, Any]) -> str:
    """Return the text of a refusal; "" for an answer that is not of the protocol."""
    kind, value = answer.get("kind"), answer.get("value")
    return ": ".join(text for text in (kind, value) if isinstance(text, str) and text) if isinstance(kind, str) else ""
