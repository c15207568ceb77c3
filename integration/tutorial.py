# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/tutorial.md, typed on a terminal of a test host: ``python -m integration.tutorial`` writes what
the terminal shows into it.

A command is an indented line that begins with ``node#``; the indented lines below it, up to the next command or the end
of the block, are its output. A line of progress, which is drawn over and gone at the end, is in its place as it could
be read for longest. A comment ``reboots`` is above a command that reboots the host.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from integration.demo import Story, prepare
from integration.demo_shell import PROMPT, boot, shell_command
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.errors import CommandFailed
from integration.hosts.testhost import GUEST_ENV
from integration.terminal import TYPE, Output, Shell, Terminal

PAGE = Path(__file__).resolve().parent.parent / "docs/tutorial.md"
INDENT: Final = "    "
REBOOTS: Final = "<!-- reboots -->"
TIMEOUT: Final = 90.0
ANSWER: Final = re.compile(r"\[y/N\] (\w*)$", re.MULTILINE)
PROGRESS: Final = re.compile(r"(?P<elapsed>\d+ s|\d+ min( \d+ s)?) {2,}(?P<what>\S.*)")
VARIABLE: Final = (
    (rf"\n{INDENT}{PROGRESS.pattern}", f"\n{INDENT}PROGRESS"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d\d:\d\d:\d\d", "TIME"),
    (r"\b([0-9a-f]{32}|[0-9a-f]{8})\b", "ID"),
    (r"(\d+(\.\d+)? (s|min)( \d+ s)?( ago)?|just now)\b", "DURATION"),
    # How many lines of the journal are before the failure is a matter of milliseconds.
    (rf"; its journal until then:(\n{INDENT} {{12}}.*)*", ""),
    (r" +", " "),  # the width of a column follows its content
)


class Typist:
    """Types commands at the prompt of ``make demo-shell``, which is another one after each reboot."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._terminal.__exit__(kind, error, traceback)

    def output(self, command: str, answers: Sequence[str], *, reboots: bool) -> list[str]:
        if not reboots:
            return shown(self._shell.run(command, answers, timeout=TIMEOUT))
        with self._host.rebooting(TIMEOUT):
            output = self._shell.run(command, answers, timeout=TIMEOUT, ends=True)
        self._host.wait_for(self._at_rest, "the update has ended", TIMEOUT)
        self._terminal.__exit__(None, None, None)
        self._open()
        return shown(output)

    def _open(self) -> None:
        self._terminal = Terminal(shell_command(self._host, TYPE), GUEST_ENV)
        self._shell = Shell(self._terminal, PROMPT)

    def _at_rest(self) -> bool:
        try:
            return agent.status(self._host)["phase"] in ("Idle", "Degraded")
        except CommandFailed:
            return False


def shown(output: Output) -> list[str]:
    """Return the lines of a command, with the line of progress that could be read for longest."""
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    for row, text, duration in output.replaced:
        if line := PROGRESS.fullmatch(text):
            seconds[row, line["what"]] += duration
    if not seconds:
        return output.lines
    row, what = max(seconds, key=lambda key: seconds[key])
    text = next(text for at, text, _ in reversed(output.replaced) if at == row and text.endswith(what))
    return [*output.lines[:row], text, *output.lines[row:]]


def performed(host: Host, page: str) -> str:
    """Type the commands of ``page``, and return the page with what the terminal shows."""
    with Typist(host) as typist:
        return "\n".join(_performed(typist, page.splitlines())) + "\n"


def _performed(typist: Typist, lines: Sequence[str]) -> Iterator[str]:
    after_command = reboots = False
    for number, line in enumerate(lines):
        if line.startswith(f"{INDENT}{PROMPT}"):
            if after_command:
                yield ""
            yield line
            answers = ANSWER.findall("\n".join(_block(lines[number + 1 :])))
            output = typist.output(line.removeprefix(f"{INDENT}{PROMPT}"), answers, reboots=reboots)
            yield from (f"{INDENT}{text}".rstrip() for text in output)
            after_command, reboots = True, False
        elif line and not line.startswith(INDENT):  # the prose after a block
            if after_command:
                yield ""
            yield line
            after_command, reboots = False, line == REBOOTS
        elif not after_command:
            yield line


def _block(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the output that a page has for a command."""
    for line in lines:
        if line.startswith(f"{INDENT}{PROMPT}") or (line and not line.startswith(INDENT)):
            return
        yield line


def stable(page: str) -> str:
    """The page without times, durations, ids and the content of progress."""
    for pattern, word in VARIABLE:
        page = re.sub(pattern, word, page)
    return page


def main() -> int:
    image = prepare(Story())
    try:
        with Host(image) as host:
            boot(host)
            page = PAGE.read_text()
            after = performed(host, page)
    finally:
        image.close()
    if stable(after) != stable(page):
        PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
