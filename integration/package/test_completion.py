# SPDX-License-Identifier: Apache-2.0
"""The completion of zsh and fish in the real shells, on a terminal as far as the shell needs one.

bash is in every environment of the tests, so its tests are in ring 1.
"""

from __future__ import annotations

import os
import pty
import runpy
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.hosts.errors import Unavailable
from integration.hosts.requirements import install
from integration.package.conftest import SOURCE, cannot

PATIENCE = 240.0
UPDATES = '{"updates": [{"update_id": "6d89", "to_name": "w-2"}, {"update_id": "aaaa", "to_name": "w-1"}]}'
STAND_INS = {
    "nodeagent": f"echo '{UPDATES}'",
    "systemctl": "printf 'kubelet.service enabled enabled\\ncrio.service enabled enabled\\n'",
}
CASES = [
    ("ma", {"maintenance"}),
    ("maintenance st", {"start", "status", "stop"}),
    ("apply --no", {"--no-reboot"}),
    ("apply --max-disruption re", {"reload", "restart", "reboot"}),
    ("history show ", {"6d89", "aaaa"}),
    ("history diff 6d89 a", {"aaaa"}),
    ("logs 6", {"6d89"}),
    ("config show w", {"w-1", "w-2"}),
    ("explain kubelet.s", {"kubelet.service"}),
    ("explain UnitNot", {"UnitNotFound"}),
    ("explain {files}/wor", {"worker.yaml"}),
    ("apply {files}/wor", {"worker.yaml"}),
    ("report --html {files}/wor", {"worker.yaml"}),
]

# Prints what each call adds to the list of matches, and leaves when the key ^X follows the key that completes.
ZSH = """
autoload -Uz compinit && compinit -u -D
compadd() {
    local -a found
    if (( ! ${@[(I)-[AOD]*]} )); then
        builtin compadd -O found "$@"
        print -rl -- $found >> $FOUND
    fi
    builtin compadd "$@"
}
leave() { exit }
zle -N leave
bindkey '^X' leave
bindkey '^I' complete-word
print -r -- READY
"""

Complete = Callable[[str], set[str]]


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        install(print, "zsh", "fish")
    except Unavailable as error:
        cannot(f"zsh and fish cannot be run here: {error}")
    root = tmp_path_factory.mktemp("root")
    runpy.run_path(str(SOURCE / "packaging/completion.py"))["write"](root)
    return root / "usr/share"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Programs of the test's own, in a home without settings of a shell."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "worker.yaml").touch()
    path = f"{programs}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_fish(share: Path, environment: dict[str, str], tmp_path: Path, words: str, expected: set[str]) -> None:
    script = share / "fish/vendor_completions.d/nodeagent.fish"
    line = f"nodeagent {words.format(files=tmp_path)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; and complete -C '{line}'"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    assert {Path(match.partition("\t")[0]).name for match in done.stdout.splitlines()} == expected


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_zsh(share: Path, environment: dict[str, str], tmp_path: Path, words: str, expected: set[str]) -> None:
    found = tmp_path / "found"
    (tmp_path / ".zshrc").write_text(f"fpath=({share}/zsh/site-functions $fpath)\n{ZSH}")
    control, terminal = pty.openpty()
    # Files like /etc/zsh/zshrc of this machine are not read.
    shell = subprocess.Popen(
        ["zsh", "--no-global-rcs", "-i"],
        env=environment | {"FOUND": str(found)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        screen = _read(control, "READY")
        os.write(control, f"nodeagent {words.format(files=tmp_path)}\t\x18".encode())
        screen += _read(control, "")
        assert shell.wait(PATIENCE) == 0, screen
    finally:
        shell.kill()
        shell.wait()
        os.close(control)
    assert set(found.read_text().split()) == expected, screen


def _read(control: int, until: str) -> str:
    """Read the terminal until these letters, or until the shell has left it."""
    deadline, seen = time.monotonic() + PATIENCE, ""
    while time.monotonic() < deadline and not (until and until in seen):
        if not select.select([control], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(control, 4096)
        except OSError:
            # The other side is closed.
            break
        if not data:
            break
        seen += data.decode(errors="replace")
    return seen
