# SPDX-License-Identifier: Apache-2.0
"""nodeagent's adapter at work in a sandbox, from the test's side."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.sandbox.sandbox import Sandbox
from nodeagent.core.plan.deployment import OsTarget, target_to_dict

ROOT = Path(__file__).parents[3]
TIMING = {
    "call": 20.0,
    "short": 5.0,
    "connect": 1.0,
    "stall": 5.0,
    "cancel": 2.0,
    "leave": 2.0,
    "busy": 6.0,
    "busy_pause": 0.1,
    "busy_pause_max": 0.5,
    "retry_pause": 0.2,
}
"""Seconds; the real ones are made for real disks."""


@dataclass(frozen=True)
class Answer:
    """``kind`` and ``reason`` are "" for a success."""

    result: Any = None
    kind: str = ""
    reason: str = ""
    message: str = ""
    progress: list[list[Any]] = field(default_factory=list)
    services: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> list[str]:
        return [task for task, *_ in self.progress]


def inside(sandbox: Sandbox) -> str:
    """Id of the process that has the sandbox's root: the only child of unshare."""
    pid = sandbox._process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]


class Agent:
    """A process; ``kill`` it in the middle and make another."""

    def __init__(self, sandbox: Sandbox, **timing: float) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "integration.standins.rpmostreed.driver",
                inside(sandbox),
                json.dumps(TIMING | timing),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )

    def ask(self, do: str, **arguments: Any) -> Answer:
        self.begin(do, **arguments)
        return self.answer()

    def begin(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")

    def answer(self) -> Answer:
        assert self._process.stdout is not None
        return Answer(**json.loads(self._process.stdout.readline()))

    def stage(self, target: OsTarget, **arguments: Any) -> Answer:
        self.begin_stage(target, **arguments)
        return self.answer()

    def begin_stage(
        self, target: OsTarget, *, replace: str = "", credentials: str | None = None, cancel_after: float | None = None
    ) -> None:
        self.begin(
            "stage",
            target=target_to_dict(target),
            replace=replace,
            credentials=credentials,
            cancel_after=cancel_after,
        )

    def list(self) -> Any:
        return self.ask("list").result

    def kill(self) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(10)
