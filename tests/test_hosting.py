# SPDX-License-Identifier: Apache-2.0
"""What the hosting platform and a contributor's tools read: it calls the project's own checks, and nothing floating."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


@pytest.mark.parametrize("name", ["ci", "release"])
def test_actions_are_pinned_by_hash_with_their_version(name: str) -> None:
    uses = re.findall(r"uses: *(\S+)(.*)", (ROOT / f".github/workflows/{name}.yml").read_text())
    assert uses
    for action, comment in uses:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


@pytest.mark.parametrize(
    ("name", "commands"),
    [("ci", {"make check", "make unit", ".ci/run"}), ("release", {"make interpreter-tests", "make release"})],
)
def test_jobs_may_only_read_and_call_the_checks_of_the_project(name: str, commands: set[str]) -> None:
    workflow = read(f".github/workflows/{name}.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in workflow["jobs"].values())
    runs = {step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step}
    assert commands <= runs
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for run in runs if run.startswith("make ") for word in run.split()[1:]} <= set(targets)


def test_hooks_are_local_and_run_the_tools_of_the_environment() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert hook["language"] == "system", hook["id"]
        assert hook["entry"].startswith((".venv/bin/", "make ")), hook["id"]


def test_forms_send_a_vulnerability_to_the_private_advisory() -> None:
    (private, *_) = read(".github/ISSUE_TEMPLATE/config.yml")["contact_links"]
    assert private["url"].endswith("/security/advisories/new")
    assert {read(f".github/ISSUE_TEMPLATE/{name}.yml")["name"] for name in ("bug", "feature")} == {"Fault", "Wish"}
