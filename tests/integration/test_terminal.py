# SPDX-License-Identifier: Apache-2.0
"""The terminal on which tests type shows what an operator would see."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration import tutorial
from integration.hosts.errors import HostGone, HostTimeout
from integration.terminal import Output, Picture, Shell, Terminal

TIMEOUT = 30.0
ASK = """read -r -p 'Go on? [y/N] ' answer; echo "<$answer>"\n"""
PROGRESS = r"""printf '0 s  one\n'
printf '\033[1F\033[?7l1 s  two\033[K\n\033[?7h\033[J'
printf '\033[1F\033[J'
echo end
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("progress 1\rprogress 2", ["progress 2"]),
        ("abc\b\bX", ["aXc"]),
        ("long\r\x1b[Ks", ["s"]),
        ("a\r\nb\r\n\x1b[2FX\x1b[J", ["X"]),
        ("\x1b[31;1mred\x1b[0m \x1b]0;title\x07end", ["red end"]),
        ("\x1b]3008;start=1\x1b\\x", ["x"]),
        ("12345678901", ["12345678901"]),
        ("\x1b[?7l12345678901\x1b[?7h", ["1234567890"]),
    ],
    ids=["lines", "over a line", "back", "erase", "up", "colours and titles", "a string", "wrapped", "cut off"],
)
def test_what_is_drawn(text: str, lines: list[str]) -> None:
    whole, pieces = Picture(columns=10), Picture(columns=10)
    whole.feed(text, 0.0)
    for character in text:
        pieces.feed(character, 0.0)
    for picture in (whole, pieces):
        assert picture.text(0, len(picture.lines)) == lines


@pytest.fixture
def shell() -> Shell:
    return Shell(Terminal(["bash", "--norc", "--noprofile", "-i"], {"PS1": "$ ", "PATH": "/usr/bin:/bin"}), "$ ")


@pytest.fixture(autouse=True)
def closed(request: pytest.FixtureRequest) -> None:
    if "shell" in request.fixturenames:
        terminal = request.getfixturevalue("shell").terminal
        request.addfinalizer(lambda: terminal.__exit__(None, None, None))


def test_a_question_is_answered(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "ask").write_text(ASK * 2)
    assert shell.run(f"bash {tmp_path}/ask", ["no"], timeout=TIMEOUT).lines == [
        "Go on? [y/N] no",
        "<no>",
        "Go on? [y/N] y",
        "<y>",
    ]


def test_what_was_drawn_over_is_known(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "progress").write_text(PROGRESS)
    output = shell.run(f"bash {tmp_path}/progress", timeout=TIMEOUT)
    assert output.lines == ["end"]
    assert [(row, text) for row, text, _ in output.replaced] == [(0, "0 s  one"), (0, "1 s  two")]


def test_the_shell_ends(shell: Shell) -> None:
    assert shell.run("echo bye; exit 3", timeout=TIMEOUT, ends=True).lines[0] == "bye"
    assert shell.terminal.wait_end(TIMEOUT) == 3
    with pytest.raises(HostGone, match="bye"):
        shell.run("echo again", timeout=TIMEOUT)


def test_a_command_that_does_not_end(shell: Shell) -> None:
    with pytest.raises(HostTimeout, match="sleep"):
        shell.run("sleep 60", timeout=1.0)


def test_the_progress_of_a_page() -> None:
    """The line that could be read for longest, whatever its times."""
    replaced = [(1, "0 s    Writing", 0.2), (1, "1 s    Acting", 0.3)]
    replaced += [(1, "2 s    Writing", 0.4)]
    assert tutorial.shown(Output(["y", "done"], replaced)) == ["y", "2 s    Writing", "done"]
    assert tutorial.shown(Output(["y", "done"], [])) == ["y", "done"]


def test_what_differs_between_two_runs() -> None:
    first = "    3 s           Verifying: the units run\n    done: a in 3.2 s\n    since 09:24:28, just now\n"
    again = "    12 s          ███ 50 %  Acting: 1/2 stop\n    done: a in 12 s\n    since 10:00:00, 1.2 s ago\n"
    assert tutorial.stable(f"\n{first}") == tutorial.stable(f"\n{again}")
    assert tutorial.stable(f"\n{first}") != tutorial.stable(f"\n{first.replace('done: a', 'done: b')}")
