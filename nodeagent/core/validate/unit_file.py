# SPDX-License-Identifier: Apache-2.0
"""Check the syntax of unit files and drop-ins: systemd.syntax(7).

Sections, assignments and continued lines are checked. Their meaning is checked by the systemd of the host, where it is
available (``host.checkers``). systemd ignores most malformed lines and loads the rest of the unit; an admin would find
that in the journal only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# LONG_LINE_MAX of systemd. A longer line invalidates the whole file.
MAX_LINE: Final = 1024 * 1024
COMMENTS: Final = ("#", ";")
BLANKS: Final = " \t\n\r"
# Python 3.11 allows no backslash in an f-string.
NEWLINE: Final = b"\n"
_WORD: Final = re.compile(r"""(?:"[^"]*"|'[^']*')(?=\s|$)|\S+""")


def check(content: bytes) -> Iterator[str]:
    if b"\0" in content:
        yield f"line {content.count(NEWLINE, 0, content.index(0)) + 1}: NUL byte"
        return
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        yield f"line {content.count(NEWLINE, 0, error.start) + 1}: not UTF-8"
        return
    section = False
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        if len(line) > MAX_LINE:
            yield f"line {number}: longer than {MAX_LINE} characters"
        elif line.startswith("["):
            section = True
            if not line.endswith("]") or len(line) == 2:
                yield f"line {number}: a section must be [Name]"
        elif "=" not in line:
            yield f"line {number}: neither a section nor key=value"
        elif line.startswith("="):
            yield f"line {number}: a value without a key"
        elif not section:
            yield f"line {number}: an assignment before the first section"


def assignments(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield section, key and value of each assignment, in order. Other lines are left out."""
    section = ""
    for _, line in _logical_lines(text.removeprefix("\ufeff")):
        # As systemd, which leaves out a malformed line and reads on.
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line:
            key, _, value = line.partition("=")
            yield section, key.strip(BLANKS), value.strip(BLANKS)


def words(value: str) -> list[str]:
    """Return the words of a value, without the quotes around them. Escapes stay as they are."""
    return [word[1:-1] if word[0] in "\"'" and word[-1] == word[0] else word for word in _WORD.findall(value)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments, with continued lines joined, and the number of the first one."""
    start, parts = 0, ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(BLANKS)
        if line.startswith(COMMENTS):
            # A continued line continues after a comment.
            continue
        if not parts:
            if not line:
                continue
            start = number
        if _continues(raw):
            parts += line[:-1] + " "
            continue
        yield start, (parts + line).strip(BLANKS)
        parts = ""
    if parts:
        yield start, parts.strip(BLANKS)


def _continues(line: str) -> bool:
    """Return whether the line ends with a backslash that is not escaped by another."""
    line = line.rstrip("\r")
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
