# SPDX-License-Identifier: Apache-2.0
"""An id of this host for leases and slots, which everyone may read.

It is the one of Zincati, so that a server which maps hosts to nodes by it (poseidon/fleetlock drains them) knows this
host, and a host that changes from Zincati keeps its slot.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from uuid import UUID

# The application id that Zincati compiles in.
APPLICATION: Final = UUID("de35106b6ec24688b63afddaa156679b")


def host_id(machine_id: str) -> str:
    """Return an id of this host that does not reveal its machine id. Raises ``ValueError`` for an invalid machine id.

    It is that of ``systemd-id128 machine-id --app-specific`` with Zincati's application id.
    """
    digest = bytearray(hmac.digest(UUID(machine_id).bytes, APPLICATION.bytes, hashlib.sha256)[:16])
    # sd_id128_get_machine_app_specific(3): a valid UUID of version 4.
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return digest.hex()
