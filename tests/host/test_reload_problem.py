# SPDX-License-Identifier: Apache-2.0
"""What CRI-O logs at a reload, read by a stand-in of journalctl."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import ReloadProof
from nodeagent.host import health
from nodeagent.host.health import read_result, reload_problem, running_problem

PROOF = ReloadProof("crio.service", "Configuration reload completed", "Unable to reload configuration")
DONE = 'time="2026-01-01T00:00:00Z" level=info msg="Configuration reload completed"'
FAILED = 'time="2026-01-01T00:00:00Z" level=error msg="Unable to reload configuration: seccomp: no such file"'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["Reloading"], None),
        ([DONE], ""),
        (["Reloading", FAILED, "later"], "Unable to reload configuration: seccomp: no such file"),
        ([FAILED, DONE], ""),
        ([DONE, FAILED], "Unable to reload configuration: seccomp: no such file"),
    ],
)
def test_the_last_result_counts(lines: list[str], expected: str | None) -> None:
    assert read_result(PROOF, lines) == expected


async def test_it_waits_for_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PERIOD", 0.01)
    program = tmp_path / "journalctl"
    log = tmp_path / "log"
    program.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/arguments\ncat {log}\necho '{DONE}' >>{log}\n")
    program.chmod(0o755)
    log.write_text("Reloading\n")
    assert await reload_problem(PROOF, 1700000000.25, str(program)) == ""
    assert "--since=@1700000000.250 _SYSTEMD_UNIT=crio.service" in (tmp_path / "arguments").read_text()


RUNNING = """[crio]
[crio.runtime]
log_level = "{level}"
pinned = ["a", "b"]
default_runtime = "crun"
"""


def change(key: str, before: str, after: str) -> KeyChange:
    return KeyChange("/etc/crio/crio.conf.d/x", f"crio.runtime.{key}", before, after, ())


LEVEL = change("log_level", '"info"', '"error"')


@pytest.mark.parametrize(
    ("level", "keys", "expected"),
    [
        ("error", [LEVEL], ""),
        ("info", [LEVEL], "it still runs with the previous value of crio.runtime.log_level"),
        # A form that the program changed, a default, and a key that the program does not print.
        ("ERROR", [LEVEL], None),
        ("error", [LEVEL, change("default_runtime", '"crun"', "")], None),
        ("error", [LEVEL, change("default_runtime", "", '"runc"')], None),
        ("error", [LEVEL, change("unknown", "1", "2")], None),
        ("error", [LEVEL, change("pinned", '["a"]', '["a", "b"]')], ""),
        ("error", [change("auth", "(not shown)", "(not shown)")], None),
        ("error", [], None),
    ],
)
async def test_the_running_configuration_is_a_proof(
    tmp_path: Path, level: str, keys: list[KeyChange], expected: str | None
) -> None:
    program = tmp_path / "crio"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "status config" ] || exit 1\ncat <<EOF\n{RUNNING.format(level=level)}EOF\n'
    )
    program.chmod(0o755)
    proof = replace(PROOF, running=("crio", "status", "config"))
    assert await running_problem(proof, keys, str(tmp_path)) == expected
    assert await running_problem(proof, keys, "/nowhere") is None
    assert await running_problem(PROOF, keys, str(tmp_path)) is None


async def test_silence_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 0.5)
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert await reload_problem(PROOF, 0.0, str(program)) is None
    assert await reload_problem(PROOF, 0.0, str(tmp_path / "missing")) is None
