"""Quantities of Kubernetes: ``500m``, ``1.5``, ``100Mi``, ``1e3`` (apimachinery: pkg/api/resource)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

__all__ = ["parse_quantity"]

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


def parse_quantity(text: str) -> Decimal | None:
    """Return the value of a quantity, None if it is not one."""
    found = FORM.fullmatch(text)
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    # A decimal, because a float rounds: 0.1 of a processor would differ from 100m.
    return Decimal(number + (exponent or "")) * SUFFIXES[suffix or ""]
