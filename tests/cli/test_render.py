# SPDX-License-Identifier: Apache-2.0
"""Tables, colours and lines that are drawn over."""

from __future__ import annotations

import os

import pytest

from nodeagent.cli import _render
from nodeagent.cli._render import BAD, Screen, paint, table


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_render, "on_terminal", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("terminal")
def test_painted_cells_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table(["A", "B", "N"], [[paint("red", BAD), "x", "1"], ["plain text", paint("y", BAD), "10"]], right=[2])
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b[31;1mred\x1b[0m         x   1" in lines
    assert "plain text  \x1b[31;1my\x1b[0m  10" in lines


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("value", "painted"), [("1", False), ("", True)])
def test_no_color(monkeypatch: pytest.MonkeyPatch, value: str, painted: bool) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    assert (paint("x", BAD) != "x") is painted


@pytest.mark.parametrize(("height", "shown"), [(3, 2), (0, 23)])
def test_a_screen_draws_over_its_lines_and_no_more_than_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], height: int, shown: int
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _fd: os.terminal_size((80, height)))
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    screen = Screen()
    screen.draw([f"line {number}" for number in range(100)])
    assert capsys.readouterr().out.count("\n") == shown
    screen.draw(["last"])
    assert capsys.readouterr().out.startswith(f"\x1b[{shown}F")
    screen.clear()
    assert capsys.readouterr().out == "\x1b[1F\x1b[J"


@pytest.mark.finding("users: words cut at the edge", "Messages of the status are wrapped between words on a terminal.")
def test_messages_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "file:/etc/kubernetes/static-pod-resources/kube-apiserver.yaml has content that differs"
    monkeypatch.setenv("COLUMNS", "80")
    assert _render.wrapped(text, 10) == [text]
    monkeypatch.setattr(_render, "on_terminal", lambda: True)
    assert _render.wrapped(text, 10) == [text[:65], "content that differs"]
    # A name that is longer than the line is kept whole.
    assert _render.wrapped("x" * 200, 10) == ["x" * 200]
    assert _render.wrapped("  of a journal", 10) == ["  of a journal"]
    assert _render.wrapped("", 10) == [""]


def test_a_reason_below_a_row_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the history, where the message of an update is below its row."""
    monkeypatch.setattr(_render, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = [*_render.table_lines(("ID", "TO"), [("1234", "b")], below=[["word " * 30]])]
    assert len(lines) > 3
    assert all(len(line) <= 60 for line in lines)
    assert all(line.startswith(" " * 8) for line in lines[2:])
