"""Checks that domains declare, by a program of the host over a candidate tree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent import domains
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.core.plan.sides import Sides
from nodeagent.errors import Problem
from nodeagent.host.checkers import SEARCH_PATH, HostValidator, run_check
from tests.support.configs import config

PROGRAM = """#!/bin/sh
echo made > "$2/made"
for file in $(find "$1" -type f | sort); do
    grep -q bad "$file" && echo "$file: $(cat "$file")" && bad=1
done
exit ${bad:-0}
"""


def judge(result: ProgramResult) -> Iterator[Problem]:
    if result.status:
        for line in result.lines:
            path, _, why = line.partition(": ")
            yield Problem(path, why)


def check(**tree: bytes) -> ProgramCheck:
    files = {f"/etc/{name}": content for name, content in tree.items()}
    return ProgramCheck("check-k", (f"{TREE}/etc", SCRATCH), files, judge)


@pytest.fixture
def search_path(tmp_path: Path) -> str:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/check-k").write_text(PROGRAM)
    (tmp_path / "bin/check-k").chmod(0o755)
    return f"{tmp_path}/bin:{SEARCH_PATH}"


async def test_a_finding_names_the_path_of_the_host(search_path: str) -> None:
    assert await run_check(check(a=b"good", b=b"bad key"), Path("/"), search_path) == (Problem("/etc/b", "bad key"),)
    assert await run_check(check(a=b"good"), Path("/"), search_path) == ()


async def test_a_problem_of_the_old_tree_is_no_finding(search_path: str) -> None:
    control = check(a=b"bad before")
    both = replace(check(a=b"bad before", b=b"bad now"), control=control)
    assert await run_check(both, Path("/"), search_path) == (Problem("/etc/b", "bad now"),)
    assert await run_check(replace(check(a=b"bad before"), control=control), Path("/"), search_path) == ()


async def test_a_program_that_is_missing_late_or_no_program_finds_nothing(search_path: str, tmp_path: Path) -> None:
    assert await run_check(check(a=b"bad"), Path("/"), "/nowhere") == ()
    (tmp_path / "bin/check-k").write_text("#!/bin/sh\nexec sleep 60\n")
    assert await run_check(replace(check(a=b"bad"), deadline=0.2), Path("/"), search_path) == ()
    (tmp_path / "bin/check-k").write_text("#!/no/such/interpreter\n")
    assert await run_check(check(a=b"bad"), Path("/"), search_path) == ()


async def test_no_path_leaves_the_private_directory(search_path: str, caplog: pytest.LogCaptureFixture) -> None:
    escaping = replace(check(), tree={"/etc/../../../tmp/escaped": b"bad"})
    with caplog.at_level(logging.WARNING):
        assert await run_check(escaping, Path("/"), search_path) == ()
    assert "is not an absolute path" in caplog.text


async def test_the_validator_runs_the_checks_of_the_domains(
    search_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Checked(Domain):
        def reads(self, _sides: Sides) -> set[str]:
            return {"/etc/k.d/"}

        def programs(self, sides: Sides) -> list[ProgramCheck]:
            return [ProgramCheck("check-k", (f"{TREE}/etc", SCRATCH), sides.after, judge)]

    monkeypatch.setattr(domains, "DOMAINS", (Checked("k", "k"),))
    (tmp_path / "etc/k.d").mkdir(parents=True)
    (tmp_path / "etc/k.d/host.conf").write_text("bad on the host")
    host = HostValidator(search_path=search_path, root=tmp_path)
    new = config(files={"/etc/k.d/new.conf": b"bad in the config"})
    assert await host.check(config(), new) == (
        Problem("/etc/k.d/host.conf", "bad on the host"),
        Problem("/etc/k.d/new.conf", "bad in the config"),
    )
