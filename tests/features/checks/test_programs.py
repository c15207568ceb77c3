# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin: which of them run, in which order, and what is kept of their output.

Stand-ins for systemd-run and systemctl start the program themselves. The ring of the hosts has the real ones.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import pytest

from nodeagent.errors import Refused, ServiceUnavailable
from nodeagent.features.checks.decide import AdminCheck, CheckStage
from nodeagent.features.checks.programs import MAX_CHECKS, HostAdminChecks, run_check_unit
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.host import programs as host_programs
from nodeagent.host.admin_programs import MAX_SHOWN
from nodeagent.host.clock import SystemClock
from tests.host.test_programs import LACKS
from tests.support.transient import SYSTEMCTL, SYSTEMD_RUN

JOURNALCTL = """#!/bin/sh
here=$(dirname "$0")
echo "journalctl $*" >> "$here/calls"
cat "$here/journal" 2>/dev/null
exit 0
"""
STAGE = CheckStage.BEFORE_DRAIN


@dataclass
class Checks:
    """A host with checks below ``root``."""

    tmp: Path
    timeout: float = 60.0

    @property
    def root(self) -> Path:
        return self.tmp / "checks"

    @property
    def port(self) -> HostAdminChecks:
        return HostAdminChecks(self.timeout, self.root)

    def add(self, name: str, script: str = "", *, mode: int = 0o755, folder: str = "required.d") -> Path:
        path = self.root / f"{STAGE}.d" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in (path.parent, path.parent.parent, self.root):
            parent.chmod(0o755)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
        return path

    def add_unit(self, name: str, script: str, *, text: str = "") -> Path:
        """A service that runs `script`, and the entry of a check that names it."""
        path = self.add(name, mode=0o644)
        path.write_text(text)
        program = self.tmp / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return path

    async def found(self) -> list[str]:
        return [check.name for check in await self.port.found(STAGE)]

    async def run(self, name: str = "a") -> str:
        (check,) = [check for check in await self.port.found(STAGE) if check.name == name]
        return await self.port.run(check, "worker-2")

    async def refused(self) -> str:
        with pytest.raises(Refused) as caught:
            await self.port.found(STAGE)
        assert caught.value.reason == CheckReason.CHECK_UNSAFE
        return caught.value.message.removeprefix(f"{self.root}/{STAGE}.d/")

    def calls(self) -> list[str]:
        return (self.tmp / "bin/calls").read_text().splitlines()


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", f"{tmp_path}/bin:{host_programs.ENVIRONMENT['PATH']}")
    (tmp_path / "bin").mkdir()
    for name, script in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    return Checks(tmp_path)


async def test_a_host_without_checks_has_none(checks: Checks) -> None:
    assert await checks.found() == []
    (checks.root / f"{STAGE}.d").mkdir(parents=True)
    assert await checks.found() == []


async def test_required_checks_come_first_each_in_the_order_of_names(checks: Checks) -> None:
    for name, folder in (("20-b", "required.d"), ("10-a", "required.d"), ("05-w", "wanted.d"), (".x", "required.d")):
        checks.add(name, folder=folder)
    checks.add("10-a~")
    found = await checks.port.found(STAGE)
    assert [(check.name, check.required) for check in found] == [("10-a", True), ("20-b", True), ("05-w", False)]
    assert await checks.port.found(CheckStage.AFTER_BOOT) == ()


@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("a", 0o775, "required.d/a is writable for users other than root"),
        ("a", 0o757, "required.d/a is writable for users other than root"),
        ("a", 0o644, "required.d/a is not executable"),
        ("a b", 0o755, "required.d/a b has a name with other characters than letters"),
        ("a$b", 0o755, "required.d/a$b has a name with other characters than letters"),
    ],
)
async def test_an_unsafe_program_is_refused(checks: Checks, name: str, mode: int, why: str) -> None:
    checks.add(name, mode=mode)
    assert (await checks.refused()).startswith(why)


async def test_a_program_outside_of_both_directories_is_refused(checks: Checks) -> None:
    checks.add("a", folder=".")
    assert await checks.refused() == "a must be in required.d or in wanted.d"


async def test_a_directory_that_others_can_write_is_refused(checks: Checks) -> None:
    path = checks.add("a")
    path.parent.chmod(0o777)
    assert await checks.refused() == "required.d is writable for users other than root"
    path.parent.chmod(0o755)
    checks.root.chmod(0o777)
    assert "checks is writable" in await checks.refused()


async def test_links_stay_in_their_stage(checks: Checks) -> None:
    path = checks.add("a")
    link = path.with_name("b")
    link.symlink_to("a")
    assert await checks.found() == ["a", "b"]
    link.unlink()
    link.symlink_to("/bin/true")
    assert await checks.refused() == "required.d/b is a link to a file outside of its directory"
    link.unlink()
    link.symlink_to("gone")
    assert await checks.refused() == "required.d/b is a link to no file"
    link.unlink()
    (path.parent.parent / "wanted.d").symlink_to("/tmp")
    assert await checks.refused() == "wanted.d must be a directory, and no link"


async def test_a_directory_is_no_program_and_too_many_are_refused(checks: Checks) -> None:
    checks.add("a")
    (checks.root / f"{STAGE}.d/required.d/dir").mkdir()
    assert await checks.refused() == "required.d/dir is no regular file"
    (checks.root / f"{STAGE}.d/required.d/dir").rmdir()
    for number in range(MAX_CHECKS):
        checks.add(f"n{number}")
    assert f"more than {MAX_CHECKS}" in await checks.refused()


async def test_a_check_that_passes_says_nothing(checks: Checks) -> None:
    checks.add("a", 'test "$NODEAGENT_STAGE $NODEAGENT_CONFIG" = "before-drain worker-2" && echo fine')
    assert await checks.run() == ""
    stop, run = checks.calls()
    unit = "nodeagent-check-before-drain-a.service"
    assert stop == f"systemctl stop --quiet {unit}", "of a check that a killed agent left"
    assert f"--unit={unit}" in run


async def test_the_end_of_the_output_is_kept_without_secrets(checks: Checks) -> None:
    checks.add("a", "echo one; echo password=hunter2 >&2; exit 3")
    assert await checks.run() == "the check before-drain/a failed with exit status 3: one; password=[redacted]"
    checks.add("a", "seq 1 200000; echo END; exit 1")
    # Only the first part of an output is read.
    assert len(await checks.run()) < MAX_SHOWN + 100
    checks.add("a", "exit 1")
    assert await checks.run() == "the check before-drain/a failed with exit status 1"


async def test_a_late_check_is_ended(checks: Checks) -> None:
    checks.add("a", "exec sleep 600")
    checks.timeout = 0.3
    assert await checks.run() == "the check before-drain/a did not end within 0.3 s"
    assert [call.split()[0] for call in checks.calls()] == ["systemctl", "run", "systemctl"]


async def test_a_cancelled_check_is_ended(checks: Checks, tmp_path: Path) -> None:
    started = tmp_path / "started"
    checks.add("a", f"touch {started}; exec sleep 600")
    task = asyncio.create_task(checks.run())
    while not started.exists():
        await asyncio.sleep(0.01)
    task.cancel()
    assert await asyncio.gather(task, return_exceptions=True)
    assert [call.split()[0] for call in checks.calls()] == ["systemctl", "run", "systemctl"]


async def test_a_host_without_systemd_run_has_failing_checks(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", str(checks.tmp))
    check = AdminCheck(STAGE, "a", True, "/bin/true")
    assert await checks.port.run(check, "x") == "the check before-drain/a cannot run: this host has no systemd-run"


async def test_a_service_passes_if_its_start_succeeds(checks: Checks) -> None:
    checks.add_unit("raid.service", "exit 0")
    (check,) = await checks.port.found(STAGE)
    assert (check.id, check.required) == ("before-drain/raid.service", True)
    assert await checks.run("raid.service") == ""
    # One that is active already would not be started again.
    assert checks.calls() == ["systemctl restart --quiet -- raid.service"]


async def test_a_service_that_fails_is_reported_with_its_journal_and_not_left_failed(checks: Checks) -> None:
    checks.add_unit("raid.service", "echo Job for raid.service failed. >&2; exit 1")
    about = "the check before-drain/raid.service failed"
    assert await checks.run("raid.service") == f"{about}: Job for raid.service failed."
    (checks.tmp / "bin/journal").write_text("from the journal, password=hunter2\n")
    begun = datetime.fromisoformat(SystemClock().now()).timestamp()
    assert await checks.run("raid.service") == f"{about}: from the journal, password=[redacted]"
    *_, journal, last = checks.calls()
    # Lines of a program that ended at once have no invocation.
    found = re.fullmatch(r"journalctl .* --since=@([0-9.]+) _SYSTEMD_UNIT=raid\.service", journal)
    assert found is not None
    assert begun <= float(found[1]) < begun + 60
    assert last == "systemctl reset-failed --quiet -- raid.service"


async def test_a_service_that_does_not_end_its_start_is_stopped(checks: Checks) -> None:
    checks.add_unit("raid.service", "exec sleep 600")
    checks.timeout = 0.3
    assert await checks.run("raid.service") == "the check before-drain/raid.service did not end within 0.3 s"
    assert [call.split()[1] for call in checks.calls()] == ["restart", "stop", "reset-failed"]


async def test_a_cancelled_service_is_stopped(checks: Checks, tmp_path: Path) -> None:
    started = tmp_path / "started"
    checks.add_unit("raid.service", f"touch {started}; exec sleep 600")
    task = asyncio.create_task(checks.run("raid.service"))
    while not started.exists():
        await asyncio.sleep(0.01)
    task.cancel()
    assert await asyncio.gather(task, return_exceptions=True)
    assert [call.split()[1] for call in checks.calls()] == ["restart", "stop", "reset-failed"]


async def test_a_host_without_systemctl_has_failing_services(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host_programs.ENVIRONMENT, "PATH", str(checks.tmp))
    check = AdminCheck(STAGE, "a.service", True, "/x")
    why = "the check before-drain/a.service cannot run: this host has no systemctl"
    assert await checks.port.run(check, "x") == why


async def test_a_link_names_a_service(checks: Checks) -> None:
    link = checks.add("raid@md0.service")
    for target, good in (("/etc/systemd/system/raid@md0.service", True), ("raid@.service", True), ("a.service", False)):
        link.unlink()
        link.symlink_to(target)
        if good:
            assert await checks.found() == ["raid@md0.service"]
        else:
            assert await checks.refused() == "required.d/raid@md0.service is a link to a unit of another name"


@pytest.mark.parametrize(
    ("name", "text", "mode", "why"),
    [
        ("a.service", "[Service]", 0o644, "must be empty, or a link to the unit of this name"),
        ("a.service", "", 0o666, "is writable for users other than root"),
        ("a b.service", "", 0o644, "has a name that no service has"),
        ("-a.service", "", 0o644, "has a name that no service has"),
        ("nodeagent.service", "", 0o644, "is a service of nodeagent"),
        ("nodeagent-boot-complete.service", "", 0o644, "is a service of nodeagent"),
    ],
)
async def test_an_entry_that_names_no_service_is_refused(
    checks: Checks, name: str, text: str, mode: int, why: str
) -> None:
    checks.add_unit(name, "", text=text).chmod(mode)
    assert await checks.refused() == f"required.d/{name} {why}"


@pytest.mark.finding(
    "attack: programs that check a config", "A program that cannot be started is an outage that the update waits for."
)
@pytest.mark.parametrize("lack", LACKS)
async def test_a_host_that_starts_no_program_is_an_outage(lack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise LACKS[lack]

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ServiceUnavailable) as caught:
        await run_check_unit(AdminCheck(CheckStage.AFTER_APPLY, "app.service", True, "/x"), 5.0, SystemClock())
    assert caught.value.reason == "ProgramNotStarted"
