# SPDX-License-Identifier: Apache-2.0
"""The origin of the interpreter that a package has, as the package's list of components names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# The only origin that is not for users: prebuilt parts, for which no publisher makes security fixes.
TESTING: Final = "testing"
ORIGINS: Final[Mapping[str, str]] = {
    "host": "the interpreter of the host",
    "source": "built from Debian's source packages",
    "standalone": "from python-build-standalone",
    TESTING: "from prebuilt parts, for tests only",
}
_PROPERTY: Final = "nodeagent:interpreter"


def origin_of(document: Mapping[str, Any]) -> str:
    """Return the origin that a list of components names, "" if it names none. Raises KeyError or TypeError."""
    properties = document["metadata"].get("properties", [])
    return next((str(property_["value"]) for property_ in properties if property_["name"] == _PROPERTY), "")


def describe(origin: str) -> str:
    return ORIGINS.get(origin, origin)
