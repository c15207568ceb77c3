"""The configuration of an ostree repository (ostree.repo-config(5)), with an fsync for each object.

Without it a whole layer is written and then synced at once, and all users of the disk wait for that. With it each
object is synced when it is written, and the sync at the end finds little. Measured: ``docs/research/fence.md``.
"""

from __future__ import annotations

import re

__all__ = ["with_object_fsync"]

_KEY = "per-object-fsync"
_SECTION = re.compile(r"\s*\[(.*)\]\s*")
# GLib accepts no other values.
_TRUE = ("true", "1")


def with_object_fsync(text: str) -> str | None:
    """Return the text with the option; None if there is nothing to change.

    That is the case if the option is set, if the admin has turned all syncs off, or if it is not a repository.
    """
    lines: list[str] = []
    core, at = False, None
    for line in text.splitlines():
        key, equals, value = (part.strip() for part in line.partition("="))
        if section := _SECTION.fullmatch(line):
            core = section[1] == "core"
        elif core and equals and key == _KEY:
            if value in _TRUE:
                return None
            continue
        elif core and equals and key == "fsync" and value not in _TRUE:
            return None
        lines.append(line)
        if section and core:
            at = len(lines)
    if at is None:
        return None
    lines.insert(at, f"{_KEY}=true")
    return "\n".join(lines) + "\n"
