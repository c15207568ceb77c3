# SPDX-License-Identifier: Apache-2.0
"""The base of a declared object, and the description of a key."""

from __future__ import annotations

from msgspec import Meta, Struct


class Keys(Struct, forbid_unknown_fields=True):
    """The keys of one object. An optional key has the default ``UNSET``."""


def about(text: str) -> Meta:
    """Return the description of a key."""
    return Meta(description=text)
