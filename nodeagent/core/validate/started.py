# SPDX-License-Identifier: Apache-2.0
"""Programs of a config that its units start: whether the kernel would start them.

A file without a mode gets 0644, so that systemd could not execute it (203/EXEC). The unit fails then, and only the
journal of its boot has the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from nodeagent.core.config.file_tree import DEV_NULL, FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.validate.unit_file import assignments
from nodeagent.errors import Problem

# systemd.service(5). Of the prefixes, "|" runs the line in a shell, which does not execute the file itself.
_EXEC: Final = re.compile(r"Exec(?:Start(?:Pre|Post)?|Condition|Reload|Stop(?:Pre|Post)?)")
_PROGRAM: Final = re.compile(r"""[-@:+!]*(?:"(?P<double>[^"]+)"|'(?P<single>[^']+)'|(?P<plain>[^\s"'|][^\s"']*))""")
# Links of image-based hosts: the same file has both names.
_LINKS: Final = (
    *(("/var/usrlocal/", "/usr/local/"), ("/var/opt/", "/opt/"), ("/var/home/", "/home/")),
    *(("/var/roothome/", "/root/"), ("/var/srv/", "/srv/"), ("/var/mnt/", "/mnt/")),
)
# Where systemd looks for a name without a slash, as far as a config can bring it.
_SEARCHED: Final = ("/usr/local/sbin/", "/usr/local/bin/")
_ROOT: Final = (0, "root", "")
# Bytes in which a binary file has a NUL.
_HEAD: Final = 1024


class Start(NamedTuple):
    """A program that ``unit`` starts as ``user``, "" for root, and the paths of its texts."""

    unit: str
    key: str
    program: str
    user: str
    texts: frozenset[str]


def check(before: Mapping[str, FileTreeEntry], after: Mapping[str, FileTreeEntry]) -> Iterator[Problem]:
    """Find the programs that cannot be started, of expanded configs: those that change, and those whose unit does."""
    units = _units(after)
    if not units:
        return
    real = {_resolved(path): path for path, entry in after.items() if isinstance(entry, RegularFile)}
    for start in (start for unit, texts in units.items() for start in _starts(unit, texts)):
        names = [start.program] if "/" in start.program else [place + start.program for place in _SEARCHED]
        for path in (real[name] for name in map(_resolved, names) if name in real):
            entry = after[path]
            changed = any(before.get(source) != after[source] for source in (path, *start.texts))
            if changed and isinstance(entry, RegularFile) and (problem := _why_not(entry, start)):
                yield Problem(path, problem)


def _units(tree: Mapping[str, FileTreeEntry]) -> dict[str, dict[str, str]]:
    """Return the texts of each unit that is not masked, by path: the unit first, then its drop-ins by name."""
    units: dict[str, dict[str, str]] = {}
    masked: set[str] = set()
    for path, entry in sorted(tree.items(), key=lambda item: (item[0].count("/"), item[0])):
        if not path.startswith(f"{UNIT_DIR}/"):
            continue
        unit = path.removeprefix(f"{UNIT_DIR}/").partition("/")[0].removesuffix(".d")
        if isinstance(entry, SymbolicLink):
            masked |= {unit} if entry.target == DEV_NULL else set()
        elif isinstance(entry, RegularFile):
            units.setdefault(unit, {})[path] = entry.content.decode(errors="replace")
    return {unit: texts for unit, texts in units.items() if unit not in masked}


def _starts(unit: str, texts: Mapping[str, str]) -> Iterator[Start]:
    lines: dict[str, list[str]] = {}
    user = ""
    for _, key, value in (line for text in texts.values() for line in assignments(text)):
        if key == "User":
            user = value
        elif _EXEC.fullmatch(key):
            # An empty assignment resets the list.
            lines[key] = [*lines.get(key, []), value] if value else []
    for key, commands in lines.items():
        for program in _programs(commands):
            yield Start(unit, key, program, user, frozenset(texts))


def _programs(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first word of each command."""
    for command in (part for line in lines for part in re.split(r"\s;\s+", line)):
        if match := _PROGRAM.match(command.strip()):
            name = match["double"] or match["single"] or match["plain"]
            # What a specifier or an escape stands for is known to systemd only.
            if "%" not in name and "\\" not in name:
                yield name


def _resolved(path: str) -> str:
    for link, real in _LINKS:
        if path.startswith(link):
            return real + path.removeprefix(link)
    return path


def _why_not(entry: RegularFile, start: Start) -> str:
    by = f"{start.unit} starts it ({start.key}=)"
    if not entry.mode & 0o111:
        return f"has mode 0{entry.mode:03o}, and {by}: it needs an x bit, as in 0755 (493 in JSON)"
    foreign = start.user not in (*_ROOT, str(entry.user), "0") and "%" not in start.user
    if foreign and entry.user in _ROOT and entry.group in _ROOT and not entry.mode & 0o001:
        return f"has mode 0{entry.mode:03o} and belongs to root, and {by} as {start.user}, who may not execute it"
    head = entry.content[:_HEAD]
    if not head.startswith(b"#!") and b"\0" not in head:
        return f"has no #! in its first line, and {by}: the kernel does not know what to run it with"
    return ""
