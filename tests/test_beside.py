# SPDX-License-Identifier: Apache-2.0
"""`make test` runs two rings at once: their output and their result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("beside.sh")


def run(log: Path, first: str, second: str) -> subprocess.CompletedProcess[str]:
    # Ctrl-C does not reach what was started in the background of a script, as a whole run of tests may be.
    command = ["env", "--default-signal=INT", SCRIPT, log, "sh", "-c", first, "--", "sh", "-c", second]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_output_of_the_first_follows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # The second ends only when the first has begun: they run at once.
    done = run(
        log,
        f"echo from the first; touch {tmp_path}/up",
        f"until [ -e {tmp_path}/up ]; do sleep 0.1; done; echo from the second",
    )
    assert done.returncode == 0
    assert log.read_text() == "from the first\n"
    assert done.stdout.index("\nfrom the second\n") < done.stdout.index("\nfrom the first\n")


@pytest.mark.parametrize(("first", "second"), [("exit 3", "true"), ("true", "exit 3"), ("exit 3", "exit 3")])
def test_it_fails_if_one_of_them_fails(tmp_path: Path, first: str, second: str) -> None:
    assert run(tmp_path / "log", first, second).returncode == 3


def test_the_first_ends_with_an_interrupt_of_the_second(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = f"trap 'echo interrupted; exit 1' INT; touch {tmp_path}/up; while :; do sleep 0.1; done"
    # As Ctrl-C does, which reaches the script and its second command.
    second = f"until [ -e {tmp_path}/up ]; do sleep 0.1; done; kill -INT $PPID; kill -INT $$; sleep 60"
    assert run(log, first, second).returncode != 0
    assert log.read_text() == "interrupted\n"
