# SPDX-License-Identifier: Apache-2.0
"""Split and merge kernel arguments as the kernel and rpm-ostree do: as lists of tokens.

An entry of ``spec.kernelArguments`` may contain several tokens. Whitespace separates them, double quotes protect
whitespace and stay part of the token, and there is no escape character. The order is significant: of a repeated key
(``console=``), the kernel uses the last value, and ``hugepages=`` counts for the ``hugepagesz=`` before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.config.paths import has_control

# The most that the kernel of any architecture reads. It silently cuts off the rest.
MAX_LENGTH: Final = 4096

_OSTREE: Final = "ostree"
_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*")+')

# The family of keys that are read together, in their order. Each other key is a family of its own.
HUGE_PAGES: Final = "hugepages"
_DEFAULT: Final = "default_hugepagesz"
_FAMILIES: Final = dict.fromkeys((_DEFAULT, "hugepagesz", HUGE_PAGES), HUGE_PAGES)
# Keys of which each value counts, so that one more takes no other away: dracut.cmdline(7), systemd(1), modprobe(8),
# kernel-command-line(7). Of all others the last value counts, also of module_blacklist= and most of dracut and systemd.
_EACH_COUNTS: Final = re.compile(
    r"ip|ifname|nameserver|netroot|bond|bridge|team|vlan|earlycon|memmap|(?:modprobe\.|initcall_)blacklist"
    r"|(?:rd\.)?luks\.(?:data|key|name|options|uuid)"
    r"|(?:rd\.)?systemd\.(?:mask|mount_extra|pull|set_credential|set_credential_binary|setenv|swap_extra|wants)"
    r"|rd\.(?:break|dasd|driver\..*|iscsi\.param|luks\.(?:partuuid|serial)|lvm\.(?:lv|vg)|md\.uuid|nvmf\.discover)"
    r"|rd\.(?:route|zfcp|znet|znet_ifname)"
)


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
    if any(_key(token) == _OSTREE for token in split(entry)):
        return "must not hold ostree=, which names the deployment and is written by libostree"
    return None


def split(entry: str) -> list[str]:
    """Return the tokens of an entry for which ``entry_problem`` returned None."""
    return _TOKEN.findall(entry)


def line_of(tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the tokens of a host without ``ostree=``, which libostree writes."""
    return tuple(token for token in tokens if _key(token) != _OSTREE)


def families_of(tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the families of tokens, each once: tokens of one family are read together, in their order."""
    return tuple(dict.fromkeys(map(_family, tokens)))


def members(tokens: Iterable[str], family: str) -> tuple[str, ...]:
    return tuple(token for token in tokens if _family(token) == family)


def merged(
    existing: Sequence[str], wanted: Sequence[str], without: Sequence[str], own: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the tokens of a host with ``existing`` when ``wanted`` of a config replaces ``without`` of another.

    ``own`` are the tokens that the host had before a config named their families, in their order. Of a family that
    neither ``without`` nor ``own`` has, all existing tokens are the host's own. A line that has what it should remains
    as it is. Otherwise the tokens of both configs are taken out, and ``wanted`` follows the rest as one block, except
    the families of which the host's own tokens have the effect. The own tokens of a family that ``wanted`` does not
    name come back. The function is idempotent, and leaves out ``ostree=``.
    """
    # The machine-config-daemon deletes and appends all of its arguments with each change, too: a smaller difference
    # separates arguments that belong together.
    line = line_of(existing)
    plans = [_plan(family, line, wanted, without, own) for family in families_of((*wanted, *without))]
    if all(plan.is_met(line) for plan in plans):
        return line
    plan_of = {token: plan for plan in plans for token in plan.known}
    left = {plan.family: list(plan.own) for plan in plans}
    remaining = []
    for token in line:
        if token in plan_of:
            rest = left[plan_of[token].family]
            if not rest or token != rest[0]:
                continue
            rest.pop(0)
        remaining.append(token)
    # A family of which own tokens are missing, or in another order, is written again as a whole.
    again = [plan for plan in plans if left[plan.family] or plan.leads]
    remaining = [token for token in remaining if plan_of.get(token) not in again]
    before, after = ([token for plan in again if plan.leads is leads for token in plan.own] for leads in (False, True))
    block = {plan.family for plan in plans if plan.block}
    return (*remaining, *before, *(token for token in wanted if _family(token) in block), *after)


@dataclass(frozen=True, slots=True)
class _FamilyPlan:
    """The tokens of one family as they must be: ``own`` of the host, then ``block`` of the config, which ``leads`` if
    it begins with a count of huge pages of the default size: the kernel takes that only before all sizes."""

    family: str
    own: tuple[str, ...]
    block: tuple[str, ...]
    # Those that are the host's own or that a config names. Others were added later, and stay.
    known: frozenset[str]

    @property
    def leads(self) -> bool:
        return _is_bare(self.block)

    def is_met(self, line: Sequence[str]) -> bool:
        tokens = members(line, self.family)
        listed = tuple(token for token in tokens if token in self.known)
        parts = (self.block, self.own) if self.leads else (self.own, self.block)
        return listed == (*parts[0], *parts[1]) and _in_effect(tokens, self.block, self.family)


def _plan(
    family: str, line: Sequence[str], wanted: Sequence[str], without: Sequence[str], own: Sequence[str]
) -> _FamilyPlan:
    wants, left, owned = (members(tokens, family) for tokens in (wanted, without, own))
    if not left and not owned:
        owned = members(line, family)
    tokens_of_family = frozenset((*wants, *left, *owned))
    if _in_effect(owned, wants, family):
        return _FamilyPlan(family, owned, (), tokens_of_family)
    rest = _other_sizes(owned, wants) if family == HUGE_PAGES else [token for token in owned if token not in wants]
    return _FamilyPlan(family, tuple(rest), wants, tokens_of_family)


def _other_sizes(owned: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    """Yield the huge pages of the host of which the config does not name the size: the kernel takes the first count.

    A config that names the default size has its count, too: that of the host would be of another size.
    """
    named = frozenset().union(*(sizes for sizes, _ in _sized(wanted)))
    if "" in named and _DEFAULT not in named:
        named |= _default_of(owned)
    for sizes, token in _sized(owned):
        if not sizes & named and not ("" in sizes and _DEFAULT in named):
            yield token


def _sized(tokens: Sequence[str]) -> Iterator[tuple[frozenset[str], str]]:
    """Yield each token with the sizes that it names: ``hugepagesz=`` with its value, "" for the default size."""
    default = sizes = _default_of(tokens) | {""}
    for token in tokens:
        if _key(token) == _DEFAULT:
            sizes = default
            yield frozenset({_DEFAULT}), token
            continue
        sizes = sizes if _key(token) == HUGE_PAGES else frozenset({_size(token)})
        yield sizes, token


def _default_of(tokens: Iterable[str]) -> frozenset[str]:
    return frozenset(_size(token) for token in tokens if _key(token) == _DEFAULT)


def _size(token: str) -> str:
    return f"hugepagesz={token.partition('=')[2]}"


def _is_bare(tokens: Sequence[str]) -> bool:
    """Return whether a count of huge pages follows no size."""
    return bool(tokens) and _key(tokens[0]) == HUGE_PAGES


def _in_effect(line: Sequence[str], wanted: Sequence[str], family: str) -> bool:
    """Return whether the kernel takes ``wanted`` from ``line``; both are of one family."""
    size = len(wanted)
    if family == HUGE_PAGES:
        # The pairs of other sizes before and after them change nothing. After one, a count alone would be of its size.
        places = range(1 if _is_bare(wanted) else len(line) - size + 1)
        return any(tuple(line[at : at + size]) == tuple(wanted) for at in places)
    if _EACH_COUNTS.fullmatch(family):
        rest = iter(line)
        return all(token in rest for token in wanted)
    # The last value counts.
    return tuple(line[len(line) - size :]) == tuple(wanted)


def _family(token: str) -> str:
    key = _key(token)
    return _FAMILIES.get(key, key)


def _key(token: str) -> str:
    # To the kernel, dashes in the name of a parameter are underscores, and quotes may begin before the name.
    return token.removeprefix('"').partition("=")[0].replace("-", "_")
