# SPDX-License-Identifier: Apache-2.0
"""Write shell completion for bash, zsh and fish: `python packaging/completion.py ROOT`, below ROOT/usr/share.

It is generated from the parser when the package is built, so it is always complete and costs nothing at run time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import shtab

SOURCE = Path(__file__).resolve().parent.parent
PLACES = {
    "bash": "usr/share/bash-completion/completions/nodeagent",
    "zsh": "usr/share/zsh/site-functions/_nodeagent",
    "fish": "usr/share/fish/vendor_completions.d/nodeagent.fish",
}

FILES = {"FILE", "A", "B", "P"}
"""Metavars of arguments that are files."""

_HISTORY = "nodeagent history --json --limit 50 2>/dev/null"
# Kinds of words beside paths.
_BESIDE_PATHS = ("units", "targets")
_UNITS = "systemctl list-unit-files --no-legend --no-pager 2>/dev/null | cut -d' ' -f1"

WORDS = {
    "updates": f'{_HISTORY} | grep -o \'"update_id": "[0-9a-f]*"\' | cut -d\'"\' -f4',
    "configs": f'{_HISTORY} | grep -o \'"to_name": "[^"]*"\' | cut -d\'"\' -f4 | sort -u',
    "units": _UNITS,
}
"""Commands that print the words of a kind, one on each line. The shells run them when they complete."""

KINDS = {"ID": "updates", "OTHER": "updates", "CONFIG": "configs", "PATH|UNIT": "units", "PATH|UNIT|REASON": "targets"}
"""Metavars of arguments that are such words."""


def preamble(reasons: Iterable[str]) -> dict[str, str]:
    """Return the functions for each kind. Words beside paths are completed for what does not begin like one."""
    bash, zsh, fish = [], [], []
    targets = f"{_UNITS}; printf '%s\\n' {' '.join(sorted(reasons))}"
    for kind, command in {**WORDS, "targets": targets}.items():
        paths = 'case "$1" in /* | .*) compgen -f -- "$1" ;; *) ' if kind in _BESIDE_PATHS else ""
        bash.append(f'_nodeagent_{kind}() {{ {paths}compgen -W "$({command})" -- "$1"{" ;; esac" if paths else ""}; }}')
        files = "_files; " if kind in _BESIDE_PATHS else ""
        zsh.append(f'_nodeagent_{kind}() {{ {files}compadd -- ${{(f)"$({command})"}} }}')
        paths = "__fish_complete_path (commandline -ct); " if kind in _BESIDE_PATHS else ""
        fish.append(f"function _nodeagent_{kind}; {paths}{command}; end")
    return {"bash": "\n".join(bash), "zsh": "\n".join(zsh), "fish": "\n".join(fish)}


def completion_of(kind: str) -> dict[str, str]:
    return {
        "bash": f"_nodeagent_{kind}",
        "zsh": f"_nodeagent_{kind}",
        # shtab puts this between double quotes as it is, so a command with quotes would end them.
        "fish": f"(_nodeagent_{kind})",
    }


def completed_parser() -> argparse.ArgumentParser:
    from nodeagent.cli.main import build_parser

    parser = build_parser()
    stack = [parser]
    while stack:
        # argparse has no public access to the arguments.
        for action in stack.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                stack += action.choices.values()
            elif action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in KINDS:
                action.complete = completion_of(KINDS[action.metavar])  # type: ignore[attr-defined]
    return parser


def write(root: Path) -> list[Path]:
    """Return the written files. The same parser gives the same bytes."""
    # The environment has the package of its own checkout, which may be another one.
    sys.path.insert(0, str(SOURCE))
    from nodeagent.reasons import known_reasons

    words = preamble(map(str, known_reasons()))
    written = []
    for shell, place in PLACES.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shtab.complete(completed_parser(), shell=shell, preamble=words.get(shell, "")))
        written.append(path)
    return written


if __name__ == "__main__":
    write(Path(sys.argv[1]))
