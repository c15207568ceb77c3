"""Decode JSON for files whose programs are strict: no YAML, no repeated keys, bounded size and depth."""

from __future__ import annotations

from nodeagent.core.config.text import document
from nodeagent.errors import InvalidInput

__all__ = ["load"]


def load(content: bytes) -> tuple[object, tuple[str, ...]]:
    """Return the data and the problems of the text. If there are problems, the data is None."""
    if not document.is_json(content):
        return None, ("is not a JSON object",)
    try:
        return document.load(content, "the file"), ()
    except InvalidInput as error:
        return None, tuple(f"{p.path}: {p.message}" for p in error.problems) or (error.message,)
