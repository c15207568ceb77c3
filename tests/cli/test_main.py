# SPDX-License-Identifier: Apache-2.0
"""The frame of every command: errors, exit statuses, streams, and what may be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nodeagent.cli import main as cli
from nodeagent.cli.main import COMMANDS, build_parser, listed, main
from nodeagent.commands import Command
from nodeagent.errors import AgentError, InvalidInput, Problem, Refused, Unreachable, Unreconcilable
from nodeagent.reasons import Reason, documentation

Raising = Callable[[BaseException], None]


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Raising:
    """Makes every command fail in a given way."""

    def arm(error: BaseException) -> None:
        def run(words: list[str]) -> int:
            raise error

        monkeypatch.setattr(cli, "_run", run)

    return arm


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AgentError("x"), 1),
        (InvalidInput("x"), 2),
        (Unreconcilable("x"), 3),
        (Refused("x"), 4),
        (Unreachable("x"), 5),
        (RuntimeError("x"), 1),
        (RecursionError(), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_status(error: BaseException, status: int, raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(error)
    assert main(["plan"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    if status != 130:
        assert printed.err.startswith("nodeagent: ")


def test_error_lines(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("spec.a", "is bad"), Problem("", "is worse")]
    raising(InvalidInput("two things", problems=problems, hint="do this\nor that"))
    assert main(["plan"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "nodeagent: InvalidInput: two things",
        "  spec.a: is bad",
        "  is worse",
        "hint: do this",
        "hint: or that",
    ]


def test_error_object(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(InvalidInput("bad", reason=Reason.INVALID_CONTENT, problems=[Problem("spec.a", "is bad")]))
    assert main(["plan", "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert json.loads(printed.err) == {
        "schema": "nodeagent/error/v1",
        "reason": "InvalidContent",
        "message": "bad",
        "errors": [{"path": "spec.a", "message": "is bad"}],
        "documentation": documentation("InvalidContent"),
    }


def test_control_characters_never_reach_the_terminal(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(InvalidInput("a\x1b[31m\nnodeagent: forged"))
    main(["plan"])
    assert capsys.readouterr().err == "nodeagent: InvalidInput: a\\x1b[31m\\nnodeagent: forged\n"


def test_times_of_errors_are_local(
    raising: Raising, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        raising(Refused("jane holds the lease since 2020-01-01T12:00:00.000Z"))
        main(["plan"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert capsys.readouterr().err.startswith("nodeagent: Refused: jane holds the lease since 2020-01-01 14:00:00")


def test_secrets_never_reach_the_terminal(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(ValueError('{"auth": "c2VjcmV0OnNlY3JldA=="}'))
    main(["plan"])
    assert "c2Vj" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["nonsense"], ["plan"], ["plan", "--from"], ["explain"], ["plan", "--frob"]])
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("nodeagent: Usage: ")
    assert "hint: nodeagent" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("words", [["--help"], *(["explain", "--help"], ["plan", "-h"])])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "usage: nodeagent" in capsys.readouterr().out


def test_every_command_is_complete() -> None:
    parser = build_parser()
    for command in COMMANDS:
        assert command.name in parser.format_help()
        assert not command.help.endswith(".")


def test_commands_of_features_follow_the_commands_that_they_name() -> None:
    base = [Command("logs", "show", "base"), Command("verify", "compare", "base")]
    added = [
        Command("report", "write", "one", after="logs"),
        Command("extra", "do", "two"),
        Command("x", "y", "z", "gone"),
    ]
    assert [command.name for command in listed(base, added)] == ["logs", "report", "verify", "extra", "x"]


def _nodeagent(*words: str, stdout: int | None = subprocess.PIPE, code: str = "") -> subprocess.CompletedProcess[str]:
    program = ["-c", code] if code else ["-m", "nodeagent"]
    return subprocess.run(
        [sys.executable, *program, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )


def test_a_closed_pipe_is_no_error(configs: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = _nodeagent("plan", "--from", str(configs / "a.json"), "--to", str(configs / "b.json"), stdout=write)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


def test_a_full_disk_is_an_error(configs: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = _nodeagent("explain", "/etc/hosts", stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "nodeagent: AgentFailed: No space left on device\n"


# What takes an operator's time: the daemon, the store and the settings, and the client of the API server.
HEAVY = ("nodeagent.agent", "nodeagent.cli._offline", "nodeagent.settings", "nodeagent.kube", "kubernetes", "structlog")
# For the help of all commands, also what each of them needs.
OF_COMMANDS = ("asyncio", "dbus_next", "msgspec", "nodeagent.core.plan", "nodeagent.domains", "yaml")


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], HEAVY + OF_COMMANDS),
        (["no-such-command"], HEAVY + OF_COMMANDS),
        (["status", "--help"], HEAVY),
        (["plan", "--from", "a.json", "--to", "b.json"], HEAVY),
        (["plan", "--from", "a.json", "--to", "b.json", "--json"], HEAVY),
    ],
)
def test_nothing_heavy_is_imported(words: list[str], heavy: Sequence[str], configs: Path) -> None:
    code = (
        "import sys; from nodeagent.cli.main import main; main(sys.argv[1:]);"
        f"print('heavy:', *[m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = _nodeagent(*(str(configs / word) if word.endswith(".json") else word for word in words), code=code)
    assert done.stderr.splitlines()[-1] == "heavy:"


@pytest.mark.mistake("`aply`", "no suggestion", "`hint: did you mean nodeagent apply?`")
@pytest.mark.mistake("`apply --dry-rn FILE`", "the help of another command", "`hint: did you mean --dry-run?`")
@pytest.mark.mistake("`status -o json`", "an error", "`hint: --json gives one JSON object, where a command has it`")
@pytest.mark.mistake(
    "`history --limit abc`", "the name of a Python function", "`argument --limit: must be a number from 1 to 1000`"
)
@pytest.mark.finding(
    "commands: usage errors and hints",
    "Usage errors name the command, close names, and what there is instead of foreign options.",
)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aply", "x"], ["there is no command 'aply'", "hint: did you mean nodeagent apply?"]),
        (["frobnicate"], ["there is no command 'frobnicate'", "hint: nodeagent --help"]),
        (["lease", "shw"], ["nodeagent lease has no command 'shw', only show", "hint: did you mean show?"]),
        (["lease", "frob"], ["nodeagent lease has no command 'frob'", "hint: nodeagent lease --help"]),
        (["config"], ["nodeagent config needs a command: current, desired and show", "hint: nodeagent config --help"]),
        (["apply", "--dry-rn", "x"], ["--dry-rn", "hint: did you mean --dry-run?", "nodeagent apply --help"]),
        (["history", "--limt=3"], ["hint: did you mean --limit?"]),
        (["plan", "--max-disruption", "restrt", "x"], ["there is no WORD 'restrt'", "hint: did you mean restart?"]),
        (["status", "-o", "json"], ["-o json", "hint: --json", "hint: nodeagent status --help"]),
        (["logs", "--since", "x"], ["hint: nodeagent history", "hint: nodeagent logs --help"]),
        (["cancel", "--force"], ["hint: no check is skipped", "hint: nodeagent cancel --help"]),
        (["apply", "-f", "x"], ["hint: name the file without an option: nodeagent apply FILE"]),
        (["apply", "--diff", "x"], ["hint: nodeagent plan --diff FILE"]),
        (["status", "-w"], ["hint: nodeagent status --watch", "hint: nodeagent status --help"]),
        (["diff"], ["there is no command 'diff'", "hint: nodeagent plan --diff FILE"]),
        (["explain", "kubelet"], ["'kubelet' is no path", "hint: did you mean kubelet.service?"]),
        (["settings", "check", "x"], ["unrecognized arguments: x", "hint: nodeagent settings check --help"]),
        (["help", "nope"], ["there is no command 'nope'", "nodeagent --help"]),
        (["help", "aply"], ["there is no command 'aply'", "did you mean nodeagent apply?"]),
        (["--version", "x"], ["unrecognized arguments: x", "nodeagent version --help"]),
        (
            ["history", "--limit", "abc"],
            ["argument --limit: must be a number from 1 to 1000", "nodeagent history --help"],
        ),
        (["history", "--limit", "0"], ["argument --limit: must be a number from 1 to 1000"]),
    ],
)
def test_usage_errors_have_a_hint(words: list[str], said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr().err
    for words_of_hint in said:
        assert words_of_hint in printed
    assert "_count" not in printed


@pytest.mark.finding("commands: usage errors and hints", "`--version` and `help` work.")
@pytest.mark.mistake("`--version`, `help`", "an error", "the version, the help")
def test_arguments_of_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nodeagent ")
    assert main(["help"]) == 0
    assert "commands:" in capsys.readouterr().out
    assert "--version" in build_parser().format_help()
    assert main(["help", "apply"]) == 0
    assert "usage: nodeagent apply" in capsys.readouterr().out
    assert main(["help", "settings", "check"]) == 0
    assert "usage: nodeagent settings check" in capsys.readouterr().out
