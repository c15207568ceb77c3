# SPDX-License-Identifier: Apache-2.0
"""Names of units with ``*`` in entries of a policy.

A ``*`` is any run of characters, also an empty one, before the type of the unit: ``wg-quick@*.service``, ``*.timer``. A
name has one ``*`` at most, as in ``path_pattern``. A template, ``wg-quick@.service``, is the pattern of its instances.
"""

from __future__ import annotations

from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan import path_pattern


def is_pattern(name: str) -> bool:
    """Return whether an entry with this name is for more than one unit."""
    return "*" in name or is_template(name)


def matches(name: str, unit: str) -> bool:
    """Return whether the pattern ``name`` matches ``unit``. False for a name without a pattern."""
    before, star, after = _spelt(name).partition("*")
    return bool(star) and len(unit) >= len(before) + len(after) and unit.startswith(before) and unit.endswith(after)


def specificity(name: str) -> int:
    """Return the number of characters that a unit must have literally. Among patterns, the highest wins."""
    return path_pattern.specificity(_spelt(name))


def overlap(name: str, other: str) -> bool:
    """Return whether some unit matches both patterns."""
    (before, _, after), (other_before, _, other_after) = _spelt(name).partition("*"), _spelt(other).partition("*")
    return (before.startswith(other_before) or other_before.startswith(before)) and (
        after.endswith(other_after) or other_after.endswith(after)
    )


def _spelt(name: str) -> str:
    return name.replace("@.", "@*.") if is_template(name) and "*" not in name else name
