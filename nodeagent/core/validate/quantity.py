# SPDX-License-Identifier: Apache-2.0
"""Quantities of Kubernetes: ``500m``, ``1.5``, ``100Mi``, ``1e3`` (apimachinery: pkg/api/resource), and durations."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

SUFFIXES: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
# The bounds keep a hostile text from making a number of a million digits.
FORM: Final = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))(?:([eE][+-]?[0-9]{1,2})|(n|u|m|k|[MGTPE]|[KMGTPE]i)?)"
)

# Seconds of the units of durations: time.ParseDuration of Go. The bounds are those of above.
UNITS: Final = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART: Final = re.compile(rf"([0-9]{{1,30}}(?:\.[0-9]{{0,30}})?|\.[0-9]{{1,30}})({'|'.join(UNITS)})")
MAX_DURATION: Final = 200


def parse_quantity(text: str) -> Decimal | None:
    """Return the value of a quantity, None if it is not one."""
    match = FORM.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    # A decimal, because a float rounds: 0.1 of a processor would differ from 100m.
    return Decimal(number + (exponent or "")) * SUFFIXES[suffix or ""]


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as ``1m30s``, None if it is not one that is 0 or more."""
    if text == "0":
        return 0.0
    parts = PART.findall(text) if len(text) <= MAX_DURATION else []
    # Whatever is between the parts is none of them.
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * UNITS[unit] for number, unit in parts)
