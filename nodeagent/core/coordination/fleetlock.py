"""The FleetLock protocol as data: one request to take a slot of a group before a reboot, one to give it back.

Slots are recursive and known by the client's id, so asking again is harmless, and a host that comes back after a reboot
gives back what it took before. The id is the one of Zincati, so that a server which maps hosts to nodes by it
(poseidon/fleetlock drains them) knows this host as well, and a host that changes from Zincati keeps its slot.
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

__all__ = ["Call", "body_of", "client_id", "is_group", "said"]

APPLICATION = UUID("de35106b6ec24688b63afddaa156679b")
GROUP = re.compile(r"[a-zA-Z0-9.-]+")


class Call(StrEnum):
    """The paths below the server's address."""

    LOCK = "v1/pre-reboot"
    UNLOCK = "v1/steady-state"


def client_id(machine_id: str) -> str:
    """An id of this host for this purpose, from which the machine id cannot be told: ``systemd-id128 machine-id
    --app-specific`` with Zincati's application id. Raises ``ValueError`` for what is no machine id."""
    digest = bytearray(hmac.digest(UUID(machine_id).bytes, APPLICATION.bytes, hashlib.sha256)[:16])
    digest[6] = digest[6] & 0x0F | 0x40  # sd_id128_get_machine_app_specific(3): a valid UUID of version 4
    digest[8] = digest[8] & 0x3F | 0x80
    return digest.hex()


def is_group(name: str) -> bool:
    return GROUP.fullmatch(name) is not None


def body_of(client: str, group: str) -> Mapping[str, Any]:
    return {"client_params": {"id": client, "group": group}}


def said(answer: Mapping[str, Any]) -> str:
    """What a server answers with a no, in words; "" for an answer that is not the protocol's."""
    kind, value = answer.get("kind"), answer.get("value")
    return ": ".join(text for text in (kind, value) if isinstance(text, str) and text) if isinstance(kind, str) else ""
