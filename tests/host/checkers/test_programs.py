# SPDX-License-Identifier: Apache-2.0
"""Checks that domains declare, by a program of the host over a candidate tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent import domains
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.core.plan.sides import Sides
from nodeagent.errors import InvalidInput, Problem, Refused, ServiceUnavailable
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


async def test_a_program_that_is_not_installed_finds_nothing() -> None:
    assert await run_check(check(a=b"bad"), Path("/"), "/nowhere") == ()


@pytest.mark.finding(
    "attack: programs that check a config", "A file whose checker does not end is refused before the lease."
)
@pytest.mark.parametrize("changed", [frozenset({"/etc/b", "/etc/other"}), frozenset[str]()])
async def test_a_late_program_refuses_the_changed_files_of_its_tree(
    search_path: str, tmp_path: Path, changed: frozenset[str]
) -> None:
    (tmp_path / "bin/check-k").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(Refused) as caught:
        await run_check(replace(check(a=b"x", b=b"x"), deadline=0.2), Path("/"), search_path, changed)
    assert caught.value.reason == "CheckerLate"
    assert [each.path for each in caught.value.problems] == (["/etc/b"] if changed else ["/etc/a", "/etc/b"])


@pytest.mark.finding(
    "attack: programs that check a config", "An update waits for a checker that is installed and cannot be started."
)
async def test_a_program_that_cannot_be_started_is_waited_for(search_path: str, tmp_path: Path) -> None:
    (tmp_path / "bin/check-k").write_text("#!/no/such/interpreter\n")
    with pytest.raises(ServiceUnavailable, match="check-k cannot be started"):
        await run_check(check(a=b"bad"), Path("/"), search_path)


async def test_no_path_leaves_the_private_directory(search_path: str) -> None:
    escaping = replace(check(), tree={"/etc/../../../tmp/escaped": b"bad"})
    with pytest.raises(InvalidInput, match="is not an absolute path"):
        await run_check(escaping, Path("/"), search_path)


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
