# SPDX-License-Identifier: Apache-2.0
"""Checks that would never run: in a config, and in the directory of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.config.machineconfig import FileEntry
from nodeagent.core.plan.policy import NONE
from nodeagent.domains import default_policy
from nodeagent.host.drop_in_names import unread_names
from tests.domains.test_own import refusals
from tests.host.test_drop_in_names import write

CHECK = "/etc/nodeagent/checks/after-boot.d/required.d/10-x"


@pytest.mark.parametrize(
    ("path", "mode", "words"),
    [
        (CHECK, 0o755, ""),
        (CHECK.replace("required", "wanted"), 0o700, ""),
        (CHECK, 0o644, "must be executable"),
        (CHECK, 0o775, "writable for root only"),
        (CHECK.replace("/required.d", ""), 0o755, "in none of the directories"),
        (CHECK.replace("after-boot", "after-lunch"), 0o755, "in none of the directories"),
    ],
)
def test_a_check_that_would_never_run_is_refused(path: str, mode: int, words: str) -> None:
    found = refusals(FileEntry(path, b"#!/bin/sh\n", mode=mode))
    assert words in found[0] if words else not found


def test_a_change_of_a_check_needs_nothing() -> None:
    assert default_policy().files["/etc/nodeagent/checks"].actions == (NONE,)


@pytest.mark.finding("policy: misspelt names", "A misspelt name in a drop-in tree is a problem in the status.")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("checks/after-aply.d/required.d/x", "did you mean after-apply.d?"),
        ("checks/after-boot/required.d/x", "is no stage of the checks"),
        ("checks/10-x", "is no stage of the checks"),
    ],
)
def test_a_name_that_nothing_reads_is_a_problem(tmp_path: Path, name: str, words: str) -> None:
    write(tmp_path, name)
    (problem,) = unread_names(tmp_path)
    assert words in problem.message
    assert problem.path == str(tmp_path / "/".join(name.split("/")[:2]))


def test_names_that_are_read_are_none(tmp_path: Path) -> None:
    write(tmp_path, "checks/after-apply.d/required.d/x", "checks/before-drain.d/wanted.d/x", "checks/README")
    assert unread_names(tmp_path) == []
