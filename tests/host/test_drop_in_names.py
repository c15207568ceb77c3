# SPDX-License-Identifier: Apache-2.0
"""Misspelt names in the drop-in trees of an admin."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.host.drop_in_names import unread_names


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


@pytest.mark.finding("policy: misspelt names", "A misspelt name in a drop-in tree is a problem in the status.")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.d/50-x.yml", "must end with .yaml"),
        ("config.d/50-x", "must end with .yaml"),
        ("policy.d/50-x.YAML", "must end with .yaml"),
        ("policy.d/50-x.json", "must end with .yaml"),
    ],
)
def test_a_name_that_nothing_reads_is_a_problem(tmp_path: Path, name: str, words: str) -> None:
    write(tmp_path, name)
    (problem,) = unread_names(tmp_path)
    assert words in problem.message
    assert problem.path == str(tmp_path / "/".join(name.split("/")[:2]))


def test_names_that_are_read_and_those_of_no_interest_are_none(tmp_path: Path) -> None:
    write(tmp_path, "config.d/50-x.yaml", "config.d/.50-x.yaml.swp", "config.d/50-x.yml~", "config.d/50-x.yaml.rpmsave")
    write(tmp_path, "config.d/README")
    assert unread_names(tmp_path) == []
    assert unread_names(tmp_path / "missing") == []
