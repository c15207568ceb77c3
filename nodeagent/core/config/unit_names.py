# SPDX-License-Identifier: Apache-2.0
"""Check names of unit files and drop-ins as systemd does: systemd.unit(5), ``unit_name_is_valid`` in its source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from nodeagent.core.config.paths import MAX_NAME_BYTES, has_control
from nodeagent.core.config.problems import similar

UNIT_TYPES: Final = (
    "service",
    "socket",
    "target",
    "device",
    "mount",
    "automount",
    "swap",
    "timer",
    "path",
    "slice",
    "scope",
)
# The directory of the drop-ins needs a valid name as well.
_MAX_UNIT_NAME: Final = 255 - len(".d")
_NAME = re.compile(rf"[0-9A-Za-z:_.\\-][0-9A-Za-z:_.\\@-]*\.(?:{'|'.join(UNIT_TYPES)})")


def is_template(name: str) -> bool:
    """Return whether ``name`` is a template, such as ``getty@.service``."""
    prefix, at, rest = name.partition("@")
    return bool(prefix and at) and rest.startswith(".")


def template_of(name: str) -> str:
    """Return the template of an instance, such as ``getty@.service``; empty if ``name`` is not an instance."""
    prefix, at, rest = name.partition("@")
    kind = rest.rpartition(".")[2]
    return f"{prefix}@.{kind}" if prefix and at and not rest.startswith(".") else ""


def unit_name_problem(name: str) -> str | None:
    """Return why systemd does not load a unit of this name; None if it does."""
    if not name:
        return "must not be empty"
    if len(name) > _MAX_UNIT_NAME:
        return f"must not be longer than {_MAX_UNIT_NAME} characters"
    if name.rpartition(".")[2] not in UNIT_TYPES:
        return f"must end in the type of a unit ({', '.join('.' + kind for kind in UNIT_TYPES)})"
    if not _NAME.fullmatch(name):
        return r"must consist of letters, digits and any of :_.\@- before the type, and not begin with @"
    return None


def dropin_name_problem(name: str) -> str | None:
    """Return why systemd does not read a drop-in of this name; None if it does."""
    if not name:
        return "must not be empty"
    # The name is a part of a path.
    if "/" in name or has_control(name):
        return "must not hold slashes or control characters"
    if name.startswith("."):
        return "must not begin with a dot: systemd skips hidden files"
    if not name.endswith(".conf"):
        return "must end in .conf: systemd skips all other files"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"must not be longer than {MAX_NAME_BYTES} bytes"
    return None


def did_you_mean(unit: str, units: Iterable[str]) -> str:
    """Return ``; did you mean X?`` with the unit of the same type and the most similar name, or ""."""
    stem, dot, kind = unit.rpartition(".")
    stems = [name.removesuffix(dot + kind) for name in units if name.endswith(dot + kind)]
    meant = similar(stem, stems, 0.6)
    return f"{meant.removesuffix('?')}{dot}{kind}?" if meant else ""
