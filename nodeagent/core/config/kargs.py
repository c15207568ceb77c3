"""Split and merge kernel arguments as the kernel and rpm-ostree do: as lists of tokens.

An entry of ``spec.kernelArguments`` may contain several tokens. Whitespace separates them, double quotes protect
whitespace and stay part of the token, and there is no escape character. The order is significant: of a repeated key
(``console=``), the kernel uses the last value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from nodeagent.core.config.paths import has_control

# The most that the kernel of any architecture reads. It silently cuts off the rest.
MAX_LENGTH: Final = 4096

_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*")+')


def entry_problem(entry: str) -> str | None:
    """Return why ``entry`` is not a list of tokens; None if it is one."""
    if not entry.strip():
        return "must not be empty"
    if len(entry) > MAX_LENGTH:
        return f"must not be longer than {MAX_LENGTH} characters"
    if entry.count('"') % 2:
        return "has an unpaired double quote"
    # A line break at the end comes from a YAML block and has no meaning.
    if "\n" in entry.rstrip("\n"):
        return "must not hold a line break: each argument is an entry of its own"
    if has_control(entry.rstrip("\n").replace("\t", " ")):
        return "must not hold control characters"
    return None


def split(entry: str) -> list[str]:
    """Return the tokens of an entry for which ``entry_problem`` returned None."""
    return _TOKEN.findall(entry)


def merged(existing: Sequence[str], wanted: Sequence[str], without: Sequence[str]) -> tuple[str, ...]:
    """Return the tokens of a host with ``existing`` that must have ``wanted`` and must not have ``without``.

    Other tokens of the host keep their place. Missing tokens are appended. If the host has the values of a key in
    another order than ``wanted``, all of them move to the end. The function is idempotent. ``ostree=`` is left out,
    because libostree writes it.
    """
    # The machine-config-daemon deletes and appends all of its arguments with each change. That moves them behind those
    # of the host, and may change which value of a repeated key counts.
    gone = set(without) - set(wanted)
    kept = [token for token in existing if token not in gone and _key(token) != "ostree"]
    for key in dict.fromkeys(map(_key, wanted)):
        values = [token for token in wanted if _key(token) == key]
        if not _appendable(values, [token for token in kept if token in values]):
            kept = [token for token in kept if token not in values]
    # Counted, not a set: an argument may be wanted twice, and then both count to the kernel (console=, module
    # parameters).
    have = Counter(kept)
    missing = []
    for token in wanted:
        have[token] -= 1
        if have[token] < 0:
            missing.append(token)
    return (*kept, *missing)


def _appendable(values: Sequence[str], present: Sequence[str]) -> bool:
    """Return whether appending those of ``values`` that are not ``present`` keeps the order of all of them."""
    matched = 0
    rest = []
    for token in present:
        if matched < len(values) and token == values[matched]:
            matched += 1
        else:
            rest.append(token)
    return not set(rest) & set(values[matched:])


def _key(token: str) -> str:
    return token.partition("=")[0]
