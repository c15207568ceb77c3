"""What CRI-O logs at a reload, read by a stand-in of journalctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.plan.domain import ReloadProof
from nodeagent.host import health
from nodeagent.host.health import read_result, reload_problem

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


async def test_silence_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 0.5)
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert await reload_problem(PROOF, 0.0, str(program)) is None
    assert await reload_problem(PROOF, 0.0, str(tmp_path / "missing")) is None
