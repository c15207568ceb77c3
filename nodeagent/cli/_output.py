"""How a command ends: errors as the contract has them, and streams that nobody reads any more."""

from __future__ import annotations

import os
import sys
from typing import Any, Final, TextIO

from nodeagent.errors import AgentError

__all__ = [
    "ERROR_SCHEMA",
    "discard_stderr",
    "discard_stdout",
    "error_to_dict",
    "flush",
    "print_error",
    "printable",
]

ERROR_SCHEMA: Final = "nodeagent/error/v1"


def printable(text: str) -> str:
    """``text`` on one line and without control characters: a path must not be able to steer the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def error_to_dict(error: AgentError) -> dict[str, Any]:
    from nodeagent.core.report.redact import redact

    return {
        "schema": ERROR_SCHEMA,
        "reason": error.reason,
        "message": redact(error.message),
        "errors": [{"path": p.path, "message": redact(p.message)} for p in error.problems],
        **({"hint": error.hint} if error.hint else {}),
    }


def print_error(error: AgentError, *, as_json: bool) -> None:
    data = error_to_dict(error)
    if as_json:
        import json

        print(json.dumps(data), file=sys.stderr)
        return
    lines = [f"nodeagent: {data['reason']}: {data['message']}"]
    problems = data["errors"]
    # One problem usually is the message.
    if len(problems) > 1 or any(text not in data["message"] for problem in problems for text in problem.values()):
        lines += [f"  {p['path']}: {p['message']}" if p["path"] else f"  {p['message']}" for p in problems]
    lines += [f"hint: {hint}" for hint in error.hint.splitlines()]
    print("\n".join(map(printable, lines)), file=sys.stderr)


def flush() -> None:
    """Now, where the error can still be handled, instead of at the exit of the interpreter."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard_stdout() -> None:
    """Lets the interpreter flush what is left to nowhere instead of failing once more at its exit."""
    _discard(sys.stdout)


def discard_stderr() -> None:
    _discard(sys.stderr)


def _discard(stream: TextIO | None) -> None:
    try:
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    except (OSError, ValueError):
        pass  # no real stream, nothing left to flush
