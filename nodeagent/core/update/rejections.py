"""Configs that failed on this host and are not applied again without a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LIMIT", "Rejection", "added", "matching", "without"]

LIMIT = 16
"""Rejections that are kept, the newest last. A tool that alternates between more bad configs is stopped by the budget
of fallback reboots."""

WORDS = 300
"""Characters of the cause that are kept: the whole of it is in the history."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """``digest`` is that of the text. ``meaning`` is "" in a record of 0.1.0 until the config was read again."""

    digest: str
    meaning: str = ""
    name: str = ""
    why: str = ""
    since: str = ""  # RFC 3339


def matching(known: Sequence[Rejection], digest: str, meaning: str) -> Rejection | None:
    """The newest rejection of this config, or of one with the same meaning."""
    return next((one for one in reversed(known) if _same(one, digest, meaning)), None)


def added(known: Sequence[Rejection], new: Rejection) -> tuple[Rejection, ...]:
    short = Rejection(new.digest, new.meaning, new.name, new.why[:WORDS], new.since)
    return (*without(known, new.digest, new.meaning), short)[-LIMIT:]


def without(known: Sequence[Rejection], digest: str, meaning: str) -> tuple[Rejection, ...]:
    return tuple(one for one in known if not _same(one, digest, meaning))


def _same(one: Rejection, digest: str, meaning: str) -> bool:
    return bool(digest and one.digest == digest) or bool(meaning and one.meaning == meaning)
