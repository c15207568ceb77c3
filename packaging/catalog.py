"""Puts the hints for every reason (nodeagent/core/hints.py) into the journal's catalog.

`python packaging/catalog.py`. The rest of the catalog is written by hand.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from nodeagent.core.hints import HINTS

CATALOG = Path(__file__).parent.parent / "systemd/usr/lib/systemd/catalog/nodeagent.catalog"
ABOVE = "What to do depends on the reason:\n"
WIDTH = 100


def reasons() -> str:
    lines = textwrap.TextWrapper(
        WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(lines.fill(f"{reason}: {hint}.") for reason, hint in HINTS.items())


def with_reasons(catalog: str) -> str:
    """The catalog with its list of reasons, which ends at the next empty line, made anew."""
    head, _, tail = catalog.partition(ABOVE)
    _, _, rest = tail.partition("\n\n")
    return f"{head}{ABOVE}{reasons()}\n\n{rest}"


if __name__ == "__main__":
    CATALOG.write_text(with_reasons(CATALOG.read_text()))
