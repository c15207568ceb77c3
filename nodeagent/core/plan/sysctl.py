"""Settings of the kernel, as systemd-sysctl reads them from sysctl.d(5).

Names are those below ``/proc/sys``, with slashes. A line that is no assignment is skipped, and the service fails after
all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.plan.layers import by_name

DIRECTORY: Final = "/etc/sysctl.d"
# The strongest last: its file replaces those of the same name.
DIRECTORIES: Final = ("/usr/lib/sysctl.d", "/usr/local/lib/sysctl.d", "/run/sysctl.d", DIRECTORY)
PROC: Final = "/proc/sys"
SUFFIX: Final = ".conf"
BLANK: Final = " \t\r"
SWAP: Final = str.maketrans("./", "/.")


@dataclass(frozen=True, slots=True)
class FileSettings:
    """One file. ``values``: name to value, None for a name that no pattern sets. ``invalid``: numbers of lines."""

    values: Mapping[str, str | None] = field(default_factory=dict)
    invalid: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """All files: ``values`` as of one file, the strongest wins. ``files`` by path, of those that count."""

    files: Mapping[str, FileSettings]
    values: Mapping[str, str | None]


def parse(content: bytes) -> FileSettings:
    """Read one file. Raises nothing."""
    values: dict[str, str | None] = {}
    invalid: list[int] = []
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        text = line.strip(BLANK)
        if not text or text[0] in "#;":
            continue
        left, equals, right = text.partition("=")
        # The dash means that a failure is ignored; without a value, that no pattern sets the name.
        name = _name(left.strip(BLANK).removeprefix("-").strip(BLANK))
        if not name or not (equals or text.startswith("-")) or not all(map(_is_text, text)):
            invalid.append(number)
            continue
        # The last assignment counts, also for the order.
        values.pop(name, None)
        values[name] = right.strip(BLANK) if equals else None
    return FileSettings(values, tuple(invalid))


def _name(text: str) -> str:
    """Return a name with slashes, "" for one that is empty or leads out of the directory."""
    # The first separator decides: a slash keeps the dots of a name, a dot exchanges both.
    path = text.translate(SWAP) if _first_separator(text) == "." else text
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "" if ".." in parts else "/".join(parts)


def _first_separator(text: str) -> str:
    return next((letter for letter in text if letter in "./"), "")


def _is_text(letter: str) -> bool:
    return letter == "\t" or letter.isprintable()


def dotted(name: str) -> str:
    """Return the usual form of a name, which ``parse`` reads as the same name."""
    return f"/{name}" if _first_separator(name) == "." else name.translate(SWAP)


def is_glob(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def read_all(files: Mapping[str, bytes]) -> KernelSettings:
    """Return the settings of the files that systemd-sysctl reads of these, path to content."""
    read = {path: parse(files[path]) for path in by_name(files, DIRECTORIES, SUFFIX)}
    values: dict[str, str | None] = {}
    for each in read.values():
        values |= each.values
    return KernelSettings(read, values)
