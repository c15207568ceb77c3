# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal (a pty), and what an operator would see of it.

with Terminal(["bash", "--norc", "-i"], env={"PS1": "node# "}) as terminal:
    terminal.wait(lambda: terminal.line == "node# ", "the prompt")
    terminal.type("ls\r")
"""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import selectors
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from integration.hosts.errors import HostGone, HostTimeout

TYPE: Final = "xterm-256color"
COLUMNS: Final = 180
ROWS: Final = 50
END_TIMEOUT: Final = 10.0  # seconds
PROMPT_TIMEOUT: Final = 60.0
# An escape sequence of ECMA-48, or what ends a command of the operating system (a title); the rest is one character.
SEQUENCE: Final = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]|[^\x1b]"
)


class Picture:
    """The lines of a terminal that is as long as its output: nothing scrolls away.

    It knows what nodeagent, bash, make and systemd-run write: colours and titles count for nothing, lines may be drawn
    over.
    """

    def __init__(self, columns: int = COLUMNS) -> None:
        self.lines: list[str] = [""]
        # Rows whose text goes on in the next one, because the terminal wrapped it.
        self.wrapped: set[int] = set()
        # What was drawn over: the row, the text, and the seconds for which it could be read.
        self.replaced: list[tuple[int, str, float]] = []
        self._columns = columns
        self._row = self._column = 0
        self._wraps = True
        self._pending = ""
        self._drawn: dict[int, float] = {}

    @property
    def row(self) -> int:
        return self._row

    @property
    def line(self) -> str:
        """The line of the cursor, up to it."""
        return self.lines[self._row][: self._column]

    def feed(self, text: str, now: float) -> None:
        """Draw. A sequence that is not complete is kept for the next call. ``now`` is in seconds."""
        text = self._pending + text
        position = 0
        while match := SEQUENCE.match(text, position):
            self._draw(match, now)
            position = match.end()
        self._pending = text[position:]

    def text(self, first: int, last: int) -> list[str]:
        """Return the lines of some rows, joined where the terminal wrapped them."""
        lines: list[str] = []
        for row in range(first, last):
            if lines and row - 1 in self.wrapped:
                lines[-1] += self.lines[row]
            else:
                lines.append(self.lines[row])
        return [line.rstrip() for line in lines]

    def _draw(self, match: re.Match[str], now: float) -> None:
        if final := match["final"]:
            self._control(final, match["parameters"], now)
            return
        match match[0]:
            case "\n":
                self._down()
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(self._column - 1, 0)
            case character if character.isprintable():
                self._put(character, now)
            case _:
                pass

    def _control(self, final: str, parameters: str, now: float) -> None:
        number = int(parameters) if parameters.isdecimal() else 0
        match final:
            case "F":
                self._row, self._column = max(self._row - (number or 1), 0), 0
                self._replace(self._row, now)
            case "K" if number == 0:
                self.lines[self._row] = self.line
            case "J" if number == 0:
                self.lines[self._row :] = [self.line]
            case "C":
                self._column += number or 1
            case "D":
                self._column = max(self._column - (number or 1), 0)
            case "P":
                line = self.lines[self._row]
                self.lines[self._row] = line[: self._column] + line[self._column + (number or 1) :]
            case "h" | "l" if parameters == "?7":
                self._wraps = final == "h"

    def _replace(self, first: int, now: float) -> None:
        """Keep the lines that are about to be drawn over."""
        for row in range(first, len(self.lines)):
            if self.lines[row]:
                self.replaced.append((row, self.lines[row].rstrip(), now - self._drawn.get(row, now)))

    def _put(self, character: str, now: float) -> None:
        if self._column >= self._columns:
            if not self._wraps:
                return
            self.wrapped.add(self._row)
            self._down()
            self._column = 0
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
        self._drawn[self._row] = now
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")


class Terminal:
    """A program whose terminal this is. Leaving the context hangs up and kills what does not end then."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        columns: int = COLUMNS,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.picture = Picture(columns)
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        # setsid makes the terminal that of the new session, so that Ctrl-C reaches the program.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", "--", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**(os.environ if env is None else env), "TERM": TYPE},
            cwd=cwd,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._master)
        try:
            self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    @property
    def line(self) -> str:
        return self.picture.line

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait(self, holds: Callable[[], bool], what: str, timeout: float) -> None:
        """Draw what the program writes until ``holds``.

        Raises ``HostTimeout`` after ``timeout`` seconds, ``HostGone`` if the program ended before.
        """
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._master, selectors.EVENT_READ)
            while not holds():
                if self.ended:
                    raise HostGone(f"the program on the terminal ended before: {what}{self._evidence()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise HostTimeout(f"not within {timeout:g} s: {what}{self._evidence()}")
                if selector.select(left):
                    self._read()

    def wait_end(self, timeout: float) -> int:
        """Wait until the program has ended, and return its exit status."""
        self.wait(lambda: self.ended, "the program has ended", timeout)
        return self._process.wait(END_TIMEOUT)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: no process has the terminal open any more
            data = b""
        self.ended = not data
        self.picture.feed(self._decoder.decode(data), time.monotonic())

    def _evidence(self) -> str:
        return "\n--- end of the terminal:\n" + "\n".join(self.picture.lines[-ROWS:])


@dataclass(frozen=True, slots=True)
class Output:
    """What a command left on the terminal, and what was drawn over: the index of its line, the text, the seconds."""

    lines: list[str]
    replaced: list[tuple[int, str, float]]


class Shell:
    """A shell on a terminal, which prompts with ``prompt``. Questions of its commands are answered."""

    QUESTION: Final = re.compile(r"\[y/N\] $")

    def __init__(self, terminal: Terminal, prompt: str, *, timeout: float = PROMPT_TIMEOUT) -> None:
        self.terminal = terminal
        self._prompt = prompt
        terminal.wait(lambda: terminal.line == prompt, "the prompt", timeout)

    def run(self, command: str, answers: Sequence[str] = (), *, timeout: float, ends: bool = False) -> Output:
        """Type a command and answer its questions, with ``answers`` and then with ``y``. Return at the next prompt; if
        the command ends the shell (``ends``), at the end of the shell."""
        terminal, picture = self.terminal, self.terminal.picture
        begin = asked = picture.row
        replaced, remaining = len(picture.replaced), [*answers]

        def at_question() -> bool:
            return picture.row > asked and self.QUESTION.search(picture.line) is not None

        def rests() -> bool:
            at_prompt = picture.row > begin and picture.line == self._prompt
            return at_question() or (terminal.ended if ends else at_prompt)

        terminal.type(f"{command}\r")
        terminal.wait(rests, f"the end of {command}", timeout)
        while at_question():
            asked = picture.row
            terminal.type(f"{remaining.pop(0) if remaining else 'y'}\r")
            terminal.wait(rests, f"the end of {command}", timeout)
        first, prompt = begin + 1, self._prompt.rstrip()
        # A shell that is ended by a reboot prompts once more.
        rows = range(first, len(picture.lines))
        last = next((row for row in rows if picture.lines[row].startswith(prompt)), len(picture.lines))
        return Output(
            picture.text(first, last),
            [(row - first, text, seconds) for row, text, seconds in picture.replaced[replaced:]],
        )
