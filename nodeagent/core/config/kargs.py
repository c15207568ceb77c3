"""Kernel arguments as the kernel and rpm-ostree see them: a list of tokens.

An entry of ``spec.kernelArguments`` may hold several. Whitespace separates, double quotes protect whitespace and stay
part of the token, nothing escapes. Order is kept and is part of the meaning: of a repeated key (``console=``) the
kernel takes the last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from nodeagent.core.config.paths import has_control

__all__ = ["MAX_LENGTH", "entry_problem", "merged", "split"]

MAX_LENGTH: Final = 4096  # the most that the kernel of any architecture reads; it cuts off the rest and says nothing

_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*")+')


def entry_problem(entry: str) -> str | None:
    """What keeps ``entry`` from being a list of tokens; None if nothing does."""
    if not entry.strip():
        return "must not be empty"
    if len(entry) > MAX_LENGTH:
        return f"must not be longer than {MAX_LENGTH} characters"
    if entry.count('"') % 2:
        return "has a double quote without its partner"
    if "\n" in entry.rstrip("\n"):  # at the end it comes from a block of YAML, and means nothing
        return "must not hold a line break: each argument is an entry of its own"
    if has_control(entry.rstrip("\n").replace("\t", " ")):
        return "must not hold control characters"
    return None


def split(entry: str) -> list[str]:
    """The tokens of one entry that ``entry_problem`` found nothing wrong with."""
    return _TOKEN.findall(entry)


def merged(existing: Sequence[str], wanted: Sequence[str], without: Sequence[str]) -> tuple[str, ...]:
    """The tokens of a host that shall have ``wanted``, in that order as far as keys repeat, and not ``without``.

    What the host has and nobody speaks of stays where it is. What is lacking is appended; a key whose values are there
    in another order than wanted is written anew at the end. Merging again changes nothing. ``ostree=`` is left out: it
    names the deployment, and libostree writes it.
    """
    gone = set(without) - set(wanted)
    kept = [token for token in existing if token not in gone and _key(token) != "ostree"]
    for key in dict.fromkeys(map(_key, wanted)):
        ours = [token for token in wanted if _key(token) == key]
        if not _appendable(ours, [token for token in kept if token in ours]):
            kept = [token for token in kept if token not in ours]
    have = Counter(kept)
    lacking = []
    for token in wanted:
        have[token] -= 1
        if have[token] < 0:
            lacking.append(token)
    return (*kept, *lacking)


def _appendable(ours: Sequence[str], there: Sequence[str]) -> bool:
    """Whether appending those of ``ours`` that are not ``there`` leaves them all in order."""
    matched = 0
    rest = []
    for token in there:
        if matched < len(ours) and token == ours[matched]:
            matched += 1
        else:
            rest.append(token)
    return not set(rest) & set(ours[matched:])


def _key(token: str) -> str:
    return token.partition("=")[0]
