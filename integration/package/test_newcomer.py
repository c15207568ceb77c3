# SPDX-License-Identifier: Apache-2.0
"""A newcomer's way from a clone to a first config, typed on a terminal: the sources, `make demo-shell`, the first steps
of the tutorial. `make demo` is a step of its own in CI, the rest of the tutorial has a test of its own, and the tests
of each way of installing end with `newcomer.first_week` on a fresh host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from integration.demo_shell import PROMPT
from integration.hosts.container.container_host import Host
from integration.package.conftest import BUILD_TIMEOUT, SOURCE, cannot
from integration.terminal import Shell, Terminal

TIMEOUT = 120.0  # seconds
OUTER = "clone$ "
# What a run of the tests gives its children, and a newcomer's shell does not have.
INHERITED = ("MAKE", "MFLAGS", "PYTEST", "NODEAGENT", "VIRTUAL_ENV", "SOURCE_DATE_EPOCH")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("host")  # skipped where hosts cannot be booted
def test_from_a_clone_to_a_first_config(tmp_path: Path, host: Host) -> None:
    if subprocess.run(["git", "-C", SOURCE, "rev-parse", "HEAD"], capture_output=True, check=False).returncode:
        cannot("the sources are no clone")
    host.close()
    env = {name: value for name, value in os.environ.items() if not name.startswith(INHERITED)}
    with Terminal(["bash", "--norc", "-i"], {**env, "PS1": OUTER}, cwd=tmp_path) as terminal:
        outer = Shell(terminal, OUTER)
        outer.run(f"git clone --quiet {SOURCE} nodeagent && cd nodeagent", timeout=TIMEOUT)
        assert "make demo-shell" in "\n".join(outer.run("make help", timeout=TIMEOUT).lines)
        terminal.type("make demo-shell\r")
        inner = Shell(terminal, PROMPT, timeout=BUILD_TIMEOUT)
        assert "worker-2.yaml" in "\n".join(inner.run("ls", timeout=TIMEOUT).lines)
        for name in ("worker-1", "worker-2"):
            lines = inner.run(f"nodeagent apply --wait {name}.yaml", timeout=TIMEOUT).lines
            assert lines[-1].startswith(f"done: {name} is the current config"), lines
        terminal.type("\x04")
        terminal.wait(lambda: terminal.line == OUTER, "the host is removed", TIMEOUT)
        assert "Error" not in "\n".join(terminal.picture.lines)
