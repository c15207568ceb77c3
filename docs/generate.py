"""Rewrites the parts of the docs that are taken from the code. `--check` only says whether they are up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from nodeagent.core.phase import graph

DOCS = Path(__file__).parent


def phases() -> str:
    return f"```mermaid\n{graph()}\n```"


PARTS = {"architecture.md": {"phases": phases}}


def render(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- begin generated: {name} -->", f"<!-- end generated: {name} -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"no place for {name}")
    return pattern.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def main(arguments: list[str]) -> int:
    stale = []
    for file, parts in PARTS.items():
        path = DOCS / file
        before = after = path.read_text()
        for name, make in parts.items():
            after = render(after, name, make())
        if after != before:
            stale.append(file)
            if "--check" not in arguments:
                path.write_text(after)
    print(f"docs: {'stale: ' + ', '.join(stale) if stale else 'up to date'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
