# SPDX-License-Identifier: Apache-2.0
"""Read the inputs of a command, and write its answer and its errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from nodeagent.cli._render import change_name, local_now, local_times
from nodeagent.core.config.text.limits import MAX_BYTES
from nodeagent.core.redact import redact
from nodeagent.errors import AgentError, InvalidInput
from nodeagent.reasons import Reason, documentation

STDIN: Final = "-"

# Exit status after a no at a prompt.
DECLINED: Final = 6
ERROR_SCHEMA: Final = "nodeagent/error/v1"


def name_of(path: str) -> str:
    return "standard input" if path == STDIN else path


def read(path: str) -> bytes:
    """Return the content of a file, at most one byte more than a document may have: the parser rejects that."""
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the name.
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot read {name_of(path)}: {cause}", reason=Reason.CANNOT_READ) from None


def is_interactive() -> bool:
    """Return whether an operator can answer a question."""
    # Python has None for a stream that was closed when the process started.
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Return the answer of the operator. Anything but yes means no, also the end of the input and Ctrl-C."""
    try:
        answer = input(f"{printable(question)} [y/N] ")
    except (EOFError, KeyboardInterrupt):
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


def printable(text: str) -> str:
    """Return ``text`` on one line, without control characters: a path must not be able to control the terminal."""
    # ascii() escapes in quotes, which are cut off.
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def emit(answer: Mapping[str, Any]) -> None:
    """Write one JSON object on one line, and flush it: a reader of ``--watch`` waits for it."""
    print(_line(answer), flush=True)


def _line(answer: Mapping[str, Any]) -> str:
    return json.dumps(answer, ensure_ascii=False)


def warn(text: str) -> None:
    print(f"warning: {_shown(text)}", file=sys.stderr, flush=True)


def print_error(error: AgentError, *, as_json: bool, words: Sequence[str] = ()) -> None:
    """``words`` are those of the command line, which the operator knows."""
    data = _error_to_dict(error, words)
    if as_json:
        # On stderr, so that stdout has an answer or nothing.
        print(json.dumps(data), file=sys.stderr)
        return
    lines = [f"nodeagent: {data['reason']}: {data['message']}"]
    problems = data["errors"]
    # The message of most errors contains their only problem.
    if len(problems) > 1 or any(text not in data["message"] for problem in problems for text in problem.values()):
        lines += [f"  {change_name(p['path'])}: {p['message']}" if p["path"] else f"  {p['message']}" for p in problems]
    lines += [f"hint: {hint}" for hint in error.hint.splitlines()]
    print("\n".join(map(_shown, lines)), file=sys.stderr)


def _shown(line: str) -> str:
    """Return a line for an operator, with times as in all other output."""
    return local_times(printable(line), local_now())


def _error_to_dict(error: AgentError, words: Sequence[str]) -> dict[str, Any]:
    names = [*(word.partition("=")[2] if word.startswith("--") else word for word in words)]
    names += [problem.path for problem in error.problems]
    return {
        "schema": ERROR_SCHEMA,
        "reason": error.reason,
        "message": redact(error.message, names),
        "errors": [{"path": p.path, "message": redact(p.message, names)} for p in error.problems],
        **({"hint": error.hint} if error.hint else {}),
        **({"documentation": address} if (address := documentation(error.reason)) else {}),
    }


def flush() -> None:
    """Write the buffered output while an error can still be handled. The interpreter would flush it at its exit."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard(stream: TextIO | None) -> None:
    """Send the buffered output to /dev/null. Otherwise the interpreter fails once more at its exit."""
    try:
        if stream is not None:
            # The descriptor is replaced and not the stream, because the interpreter flushes the stream at its exit.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    except (OSError, ValueError):
        # A stream without a descriptor has no buffer that could fail.
        pass
