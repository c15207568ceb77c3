# SPDX-License-Identifier: Apache-2.0
"""Registry credentials, looked for where ostree-ext looks: the first auth.json that exists, and no other."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path

from integration.standins.rpmostreed.standin.errors import Failed

FILES = (Path("/run/ostree/auth.json"), Path("/etc/ostree/auth.json"), Path("/usr/lib/ostree/auth.json"))


def credentials(image_name: str) -> tuple[str, str] | None:
    """(user, password) for the most specific entry: the repository, then its parents, then the host alone."""
    path = next((path for path in FILES if path.exists()), None)
    if path is None:
        return None
    try:
        entries = json.loads(path.read_text()).get("auths", {})
    except json.JSONDecodeError as error:
        raise Failed(f'getting username and password: reading JSON file "{path}": unmarshaling JSON: {error}') from None
    key = image_name.partition("@")[0]
    while key:
        if key in entries and entries[key].get("auth"):
            try:
                user, _, password = base64.b64decode(entries[key]["auth"]).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError) as error:
                raise Failed(f"getting username and password: {error}") from None
            return user, password.strip("\0")
        # The tag first, then one path element after the other.
        head, separator, tail = key.rpartition(":" if ":" in key.rpartition("/")[2] else "/")
        key = head if separator and tail else ""
    return None
