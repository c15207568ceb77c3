"""Kernel arguments as the kernel and rpm-ostree see them: a list of tokens.

An entry of ``spec.kernelArguments`` may hold several. Whitespace separates, double quotes protect whitespace and stay
part of the token, nothing escapes. Order is kept and is part of the meaning: of a repeated key (``console=``) the
kernel takes the last.
"""

from __future__ import annotations

import re
from typing import Final

from nodeagent.core.paths import has_control

__all__ = ["MAX_LENGTH", "entry_problem", "split"]

MAX_LENGTH: Final = 4096  # the most that the kernel of any architecture reads; it cuts off the rest and says nothing

_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*")+')


def entry_problem(entry: str) -> str | None:
    """What keeps ``entry`` from being a list of tokens; None if nothing does."""
    if len(entry) > MAX_LENGTH:
        return f"must not be longer than {MAX_LENGTH} characters"
    if entry.count('"') % 2:
        return "has a double quote without its partner"
    if has_control(entry.replace("\n", " ").replace("\t", " ")):
        return "must not hold control characters"
    if any("\n" in token for token in split(entry)):
        return "must not hold a line break inside quotes"
    return None


def split(entry: str) -> list[str]:
    """The tokens of one entry that ``entry_problem`` found nothing wrong with."""
    return _TOKEN.findall(entry)
