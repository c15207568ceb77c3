"""Read the inputs of a command, and write its answer and its errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from nodeagent.errors import AgentError, InvalidInput, Problem
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from nodeagent.core.plan.policy import Policy

STDIN: Final = "-"

# Exit status after a no at a prompt.
DECLINED: Final = 6
ERROR_SCHEMA: Final = "nodeagent/error/v1"


def name_of(path: str) -> str:
    return "standard input" if path == STDIN else path


def read(path: str) -> bytes:
    """Return the content of a file, at most one byte more than a document may have: the parser rejects that."""
    from nodeagent.core.config.text.document import MAX_BYTES

    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        # The import of pathlib takes longer than this whole module.
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the name.
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot read {name_of(path)}: {why}", reason=Reason.CANNOT_READ) from None


def add_max_disruption(parser: ArgumentParser, more: str = "") -> None:
    """Add the option of the commands that plan an update. The words are ``core.plan.plan.DISRUPTION_WORDS``. ``more``
    is the end of its help."""
    # They are written out, because the module of the plan takes longer to import than the whole parser.
    words = ("none", "reload", "restart", "drain", "reboot")
    help_text = f"refuse (exit status 4) what disrupts more: {', '.join(words[:-1])} or {words[-1]}{more}"
    parser.add_argument("--max-disruption", metavar="WORD", choices=words, help=help_text)


def add_strict(parser: ArgumentParser) -> None:
    """Add the option of the commands that plan an update of this host."""
    parser.add_argument(
        "--strict", action="store_true", help="reject (exit status 2) entries of units that exist nowhere (a warning)"
    )


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


def load_policy(path: str | None) -> Policy:
    """Return the built-in policy with the entries of the file over it."""
    from nodeagent.domains import default_policy

    if path is None:
        return default_policy()
    from nodeagent.core.plan.policy import merge
    from nodeagent.core.plan.policy_parse import parse_policy

    return merge(default_policy(), parse_policy(read(path), name_of(path)))


def load_all(*loads: Callable[[], Any]) -> list[Any]:
    """Return the results. The errors of all inputs are raised as one, so that one run reports all of them."""
    results: list[Any] = []
    errors: list[InvalidInput] = []
    for load in loads:
        try:
            results.append(load())
        except InvalidInput as error:
            errors.append(error)
    if len(errors) > 1:
        problems = [p for error in errors for p in error.problems or (Problem("", error.message),)]
        raise InvalidInput("; ".join(each.message for each in errors), reason=errors[0].reason, problems=problems)
    if errors:
        raise errors[0]
    return results


def printable(text: str) -> str:
    """Return ``text`` on one line, without control characters: a path must not be able to control the terminal."""
    # ascii() escapes in quotes, which are cut off.
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def emit(answer: Mapping[str, Any]) -> None:
    """Write one JSON object on one line, and flush it: a reader of ``--watch`` waits for it."""
    print(json.dumps(answer, ensure_ascii=False), flush=True)


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
        from nodeagent.cli._render import change_name

        lines += [f"  {change_name(p['path'])}: {p['message']}" if p["path"] else f"  {p['message']}" for p in problems]
    lines += [f"hint: {hint}" for hint in error.hint.splitlines()]
    print("\n".join(map(_shown, lines)), file=sys.stderr)


def _shown(line: str) -> str:
    """Return a line for an operator, with times as in all other output."""
    from nodeagent.cli._render import local_now, local_times

    return local_times(printable(line), local_now())


def _error_to_dict(error: AgentError, words: Sequence[str]) -> dict[str, Any]:
    from nodeagent.core.redact import redact
    from nodeagent.reasons import documentation

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
