"""The syntax of unit files and drop-ins: systemd.syntax(7).

Sections, assignments and continued lines, nothing about their meaning: that takes the systemd of the host, which
``host.checkers`` asks where it can. systemd loads a unit in spite of most of these and ignores the line, which is
exactly the surprise that an admin should not have to find in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["assignments", "check"]

MAX_LINE: Final = 1024 * 1024  # systemd's LONG_LINE_MAX, which is fatal to the whole file
COMMENTS: Final = ("#", ";")
BLANKS: Final = " \t\n\r"
NEWLINE: Final = b"\n"  # a name, because 3.11 has no backslash in an f-string


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
    """Section, key and value of each assignment, in order. What is no assignment is left out."""
    section = ""
    for _, line in _logical_lines(text.removeprefix("\ufeff")):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line:
            key, _, value = line.partition("=")
            yield section, key.strip(BLANKS), value.strip(BLANKS)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with continued ones joined, and the number of the first of them."""
    start, parts = 0, ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(BLANKS)
        if line.startswith(COMMENTS):
            continue  # also inside a continued line, which goes on behind the comment
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
    """A backslash at the very end; one that is escaped by another does not count."""
    line = line.rstrip("\r")
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
