# SPDX-License-Identifier: Apache-2.0
"""Hooks that would never run: in a config, and in the directory of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.config.machineconfig import FileEntry
from nodeagent.core.plan.policy import NONE
from nodeagent.domains import default_policy
from nodeagent.host.drop_in_names import unread_names
from tests.domains.test_own import refusals
from tests.host.test_drop_in_names import write

HOOK = "/etc/nodeagent/hooks/finished.d/10-x"


@pytest.mark.parametrize(
    ("path", "mode", "words"),
    [
        (HOOK, 0o755, ""),
        (HOOK, 0o700, ""),
        (HOOK, 0o644, "must be executable"),
        (HOOK, 0o775, "writable for root only"),
        (HOOK.replace("/finished.d", ""), 0o755, "in none of the directories"),
        (HOOK.replace("finished", "done"), 0o755, "in none of the directories"),
    ],
)
def test_a_hook_that_would_never_run_is_refused(path: str, mode: int, words: str) -> None:
    found = refusals(FileEntry(path, b"#!/bin/sh\n", mode=mode))
    assert words in found[0] if words else not found


def test_a_change_of_a_hook_needs_nothing() -> None:
    assert default_policy().files["/etc/nodeagent/hooks"].actions == (NONE,)


def test_a_name_that_nothing_reads_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, "hooks/begn.d/x", "hooks/finished.d/x")
    (problem,) = unread_names(tmp_path)
    assert "did you mean begun.d?" in problem.message
