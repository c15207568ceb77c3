# SPDX-License-Identifier: Apache-2.0
"""Reject words that docs/development/style.md replaces. Part of ``make check``: ``python docs/words.py``.

Every text file of the tree is checked: documentation, code with its comments and names, tests and packaging. Some words
are rejected in the product and its documentation only: tests may have them for the output of programs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = (".ci", ".github", "docs", "integration", "nodeagent", "packaging", "systemd", "tests")
TESTS = ("integration", "tests")
# The list itself and the page that explains it.
EXCEPT = ("docs/words.py", "docs/development/style.md")
# Output of builds, caches, and licence texts of others.
SKIPPED = ("__pycache__", "build", "licenses", "node_modules", "target")
AVOID = (
    "anew",
    "at nought",
    "a person",
    "anybody",
    "by itself",
    "everybody",
    "for ever",
    "in spite of",
    "meanwhile",
    "nobody",
    "nought",
    "shall",
    "somebody",
    "stands in",
    "stands there",
    "tells",
    "told",
    "whoever",
    "whomever",
)
AVOID_IN_PRODUCT = ("heard", "hears", "is there twice", "said", "the one before")


def pattern(words: Sequence[str]) -> re.Pattern[str]:
    # An underscore separates words as well: names of tests and functions are checked like text.
    either = "|".join(word.replace(" ", "[ _]") for word in words)
    return re.compile(rf"(?<![a-z])({either})(?![a-z])", re.IGNORECASE)


WORDS = pattern(AVOID)
WORDS_OF_PRODUCT = pattern((*AVOID, *AVOID_IN_PRODUCT))
# An address may keep the name that a page had before, and nobody is also an account.
IGNORED = re.compile(r"""\]\([^)]*\)|["'`=]nobody\b|nobody-here|\bNOBODY\b""")


def texts() -> Iterator[tuple[str, str]]:
    """Yield the path below the root and the text of each file."""
    found = [path for tree in TREES for path in (ROOT / tree).rglob("*")]
    for path in sorted([*ROOT.glob("*.*"), ROOT / "Makefile", *found]):
        name = path.relative_to(ROOT)
        if str(name) in EXCEPT or not path.is_file() or any(part in SKIPPED for part in name.parts):
            continue
        try:
            yield str(name), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def findings(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, with the word that is found there. ``name`` is the path below the root."""
    words = WORDS if name.startswith(TESTS) else WORDS_OF_PRODUCT
    for number, line in enumerate(text.splitlines(), 1):
        for match in words.finditer(IGNORED.sub("", line)):
            yield number, match[0]


def main() -> int:
    found = 0
    for name, text in texts():
        for line, word in findings(name, text):
            sys.stdout.write(f"{name}:{line}: {word!r} (see docs/development/style.md)\n")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
