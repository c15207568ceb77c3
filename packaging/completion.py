"""Write shell completion for bash, zsh and fish: `python packaging/completion.py ROOT`, below ROOT/usr/share.

It is generated from the parser when the package is built, so it is always complete and costs nothing at run time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import shtab

from nodeagent.cli.main import build_parser

PLACES = {
    "bash": "usr/share/bash-completion/completions/nodeagent",
    "zsh": "usr/share/zsh/site-functions/_nodeagent",
    "fish": "usr/share/fish/vendor_completions.d/nodeagent.fish",
}

FILES = {"FILE", "A", "B", "P", "PATH|UNIT"}
"""Metavars of arguments that are, or may be, files."""


def parser_with_files() -> argparse.ArgumentParser:
    parser = build_parser()
    stack = [parser]
    while stack:
        # argparse has no public access to the arguments.
        for action in stack.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                stack += action.choices.values()
            elif action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser


def write(root: Path) -> list[Path]:
    """Return the written files. The same parser gives the same bytes."""
    written = []
    for shell, place in PLACES.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shtab.complete(parser_with_files(), shell=shell))
        written.append(path)
    return written


if __name__ == "__main__":
    write(Path(sys.argv[1]))
