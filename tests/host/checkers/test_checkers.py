# SPDX-License-Identifier: Apache-2.0
"""Checkers of the host: with the real program where it is installed, else with one that talks like it."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.errors import Problem, Refused, ServiceUnavailable
from nodeagent.host.checkers import HostValidator, sshd
from nodeagent.host.checkers.sudoers import ignored_by_sudo
from nodeagent.host.checkers.units import unit_of, verdicts
from tests.support.needs import needs
from tests.support.stalls import MAX_STALL, Stalls

EMPTY = MachineConfig("old")
GOOD = "[Service]\nExecStart=/bin/true\n"


def with_units(*units: UnitEntry) -> MachineConfig:
    return MachineConfig("new", units={unit.name: unit for unit in units})


def with_files(files: dict[str, str]) -> MachineConfig:
    return MachineConfig("new", files={path: FileEntry(path, text.encode()) for path, text in files.items()})


def fake(directory: Path, name: str, script: str) -> str:
    """A program in a directory of its own, to be used as the search path."""
    program = directory / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program.parent)


# --- accounts


async def test_owners_that_this_host_lacks(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("core:x:1000:1000::/home/core:/bin/sh\n")
    (tmp_path / "etc/group").write_text("wheel:x:10:\n")
    good = [FileEntry("/etc/a", b"", user="core", group="wheel"), FileEntry("/etc/b", b"", user=77, group=88)]
    kept = FileEntry("/etc/kept", b"", user="gone")
    bad = [FileEntry("/etc/c", b"", user="coer"), FileEntry("/etc/d", b"", user="core", group="whele")]
    old = MachineConfig("old", files={kept.path: kept})
    new = MachineConfig("new", files={entry.path: entry for entry in (*good, kept, *bad)})
    found = await HostValidator(root=tmp_path).check(old, new)
    assert [(problem.path, problem.message) for problem in found] == [
        ("/etc/c", "this host has no user 'coer'"),
        ("/etc/d", "this host has no group 'whele'"),
    ]


@pytest.mark.finding(
    "updates: large configs", "The checks before an update hold the event loop for less than 100 ms, with 20,000 files."
)
async def test_a_config_of_the_largest_size_leaves_the_loop_its_turn(tmp_path: Path) -> None:
    config = with_files({f"/etc/quiet/{number}": "1" for number in range(20_000)})
    validator = HostValidator(root=tmp_path)
    stalls = Stalls()
    assert await validator.check(EMPTY, config) == ()
    assert stalls.stop() < MAX_STALL


# --- systemd-analyze

needs_systemd = needs("systemd-analyze")

BAD_UNITS = {
    "no-exec.service": ("[Service]\nRestart=always\n", "no ExecStart="),
    "relative.service": ("[Service]\nExecStart=bin/x\n", "line 2: Neither a valid executable name"),
    "twice.service": ("[Service]\nExecStart=/bin/true\nExecStart=/bin/false\n", "more than one ExecStart="),
    "section.service": ("[Service\nExecStart=/bin/true\n", "line 1: Invalid section header"),
    "empty.socket": ("[Socket]\nListenStream=\n", "no Listen setting"),
    "never.timer": ("[Timer]\nOnCalendar=nonsense\n", "lacks value setting"),
    "mnt-a.mount": ("[Mount]\nWhat=/dev/x\nWhere=/mnt/other\n", "doesn't match unit name"),
}
GOOD_UNITS = {
    "plain.service": GOOD,
    "missing-program.service": "[Service]\nExecStart=/opt/comes/with/the/config\n",
    "newer-systemd.service": f"{GOOD}KeyOfTheFuture=1\nMemoryMax=lots\nType=frob\n",
    "missing-unit.service": "[Unit]\nRequires=no-such.service\nAfter=no-exec.service\n" + GOOD,
    "unknown-user.service": f"{GOOD}User=nobody-here\n",
    "template@.service": "[Service]\nExecStart=/bin/echo %i\n",
    "masked-by-nothing.service": "",
}


@needs_systemd
@pytest.mark.parametrize("name", BAD_UNITS)
async def test_bad_unit(name: str) -> None:
    contents, reason = BAD_UNITS[name]
    problems = await HostValidator().check(EMPTY, with_units(UnitEntry(name, contents)))
    assert [p.path for p in problems] == [f"/etc/systemd/system/{name}"]
    assert reason in problems[0].message


@needs_systemd
async def test_good_units_are_not_refused_for_what_is_around_them() -> None:
    units = [UnitEntry(name, contents) for name, contents in GOOD_UNITS.items()]
    units.append(UnitEntry("masked.service", mask=True))
    units.append(UnitEntry("not-on-this-host.service", dropins={"10-x.conf": "[Service]\nNice=5\n"}))
    units.append(UnitEntry("user-.slice", dropins={"10-x.conf": "[Slice]\nTasksMax=5\n"}))
    found = await HostValidator().check(EMPTY, with_units(*units))
    assert {problem.path.rpartition("/")[2] for problem in found} == {"newer-systemd.service"}
    assert all(problem.warning for problem in found)


@needs_systemd
async def test_bad_among_good() -> None:
    units = [UnitEntry(name, contents) for name, contents in GOOD_UNITS.items()]
    units += [UnitEntry(name, contents) for name, (contents, _) in BAD_UNITS.items()]
    problems = [p for p in await HostValidator().check(EMPTY, with_units(*units)) if not p.warning]
    assert {p.path.removeprefix("/etc/systemd/system/") for p in problems} == set(BAD_UNITS)


UNKNOWN = "[Unit]\nDescriptoin=x\n[Service]\nExecStart=/bin/true\nEnvironmnet=A=hunter2\n[Servcie]\nNice=5\n"


@pytest.mark.finding(
    "units: ignored lines", "Lines of units and drop-ins that systemd ignores are warnings, and no more."
)
@needs_systemd
async def test_lines_that_systemd_ignores() -> None:
    dropin = UnitEntry("systemd-journald.service", dropins={"1.conf": "[Service]\nExecStrat=/x\n"})
    path = "/etc/systemd/system/file.service"
    new = MachineConfig("new", with_files({path: UNKNOWN}).files, with_units(dropin).units)
    found = await HostValidator().check(EMPTY, new)
    assert all(problem.warning for problem in found)
    texts = {(problem.path, problem.message.partition(":")[0]): problem.message for problem in found}
    assert set(texts) == {
        ("/etc/systemd/system/systemd-journald.service.d/1.conf", "line 2"),
        *((path, f"line {line}") for line in (2, 5, 6)),
    }
    assert "Environmnet" in texts[path, "line 5"]
    assert not any("hunter2" in text for text in texts.values())
    assert await HostValidator().check(new, new) == (), "what does not change is no matter of this update"


@pytest.mark.finding("units: ignored lines", "A warning about a line has no value of it.")
@needs_systemd
async def test_values_of_lines_that_systemd_ignores_are_not_quoted() -> None:
    unit = UnitEntry("a.service", f"{GOOD}Type=hunter2\nMemoryMax=hunter2\nEnvironment=hunter2\n")
    found = await HostValidator().check(EMPTY, with_units(unit))
    assert len(found) >= 2
    assert not any("hunter2" in problem.message for problem in found)


@pytest.mark.finding("units: ignored lines", "A timer whose time is in the past is a warning.")
@needs_systemd
async def test_a_time_that_never_comes() -> None:
    times = ["2020-01-01 00:00:00", "2020-05-05", "daily", "2020-02-02 00:00:00"]
    lines = [f"OnCalendar={time}" for time in times[:3]]
    timer = UnitEntry("a.timer", "\n".join(["[Timer]", f"OnCalendar={times[3]}", "OnCalendar=", *lines, ""]))
    found = await HostValidator().check(EMPTY, with_units(UnitEntry("a.service", GOOD), timer))
    assert [(problem.message, problem.warning) for problem in found] == [
        (f"OnCalendar={time} is in the past: it never elapses", True) for time in times[:2]
    ]


@needs_systemd
async def test_a_dropin_is_checked_with_its_unit() -> None:
    unit = UnitEntry("own.service", GOOD, dropins={"10-x.conf": "[Service]\nExecStart=/bin/false\n"})
    (problem,) = await HostValidator().check(EMPTY, with_units(unit))
    assert "more than one ExecStart=" in problem.message
    resets = UnitEntry("own.service", GOOD, dropins={"10-x.conf": "[Service]\nExecStart=\nExecStart=/bin/false\n"})
    assert await HostValidator().check(EMPTY, with_units(resets)) == ()


@needs_systemd
async def test_a_dropin_for_a_unit_of_the_os() -> None:
    unit = UnitEntry("systemd-journald.service", dropins={"10-x.conf": "[Service]\nExecStart=/bin/false\n"})
    (problem,) = await HostValidator().check(EMPTY, with_units(unit))
    assert problem.path == "/etc/systemd/system/systemd-journald.service.d/10-x.conf"


@needs_systemd
async def test_units_that_come_as_files() -> None:
    path = "/etc/systemd/system/no-exec.service"
    (problem,) = await HostValidator().check(EMPTY, with_files({path: "[Service]\nRestart=always\n"}))
    assert problem.path == path


@needs_systemd
async def test_what_does_not_change_is_not_checked() -> None:
    bad = UnitEntry("no-exec.service", "[Service]\nRestart=always\n")
    good = UnitEntry("plain.service", GOOD)
    assert await HostValidator().check(with_units(bad), with_units(bad, good)) == ()


def test_unit_of() -> None:
    assert unit_of("/etc/systemd/system/a.service") == "a.service"
    assert unit_of("/etc/systemd/system/a@.service.d/10-x.conf") == "a@.service"


def test_no_reason_is_still_a_verdict() -> None:
    lines = ["Unit a.service has a bad unit file setting.", "Unit a.service has a bad unit file setting."]
    assert list(verdicts(lines, "/tmp/x")) == [("a.service", "", "systemd cannot load it")]


# --- sshd and visudo

SSHD = """
main=$3
grep -q '^Port 22$' "$main" || exit 9
for file in "$main" $(sed -n 's/^Include //p' "$main"); do
  line=$(grep -n Frob "$file" | cut -d: -f1)
  [ -z "$line" ] && continue
  echo "$file: line $line: Bad configuration option: Frob" >&2
  echo "$file: terminating, 1 bad configuration options" >&2
  exit 255
done
"""
MAIN = "/etc/ssh/sshd_config"


@pytest.fixture
def ssh_host(tmp_path: Path) -> HostValidator:
    """A host with a main file that includes its drop-ins, one of which is broken already."""
    (tmp_path / "etc/ssh/sshd_config.d").mkdir(parents=True)
    (tmp_path / "etc/ssh/sshd_config").write_text("Port 22\nInclude sshd_config.d/*.conf # ours\n")
    return HostValidator(search_path=fake(tmp_path, "sshd", SSHD) + ":/usr/bin:/bin", root=tmp_path)


async def test_sshd_dropin_is_checked_inside_the_main_file(ssh_host: HostValidator) -> None:
    path = f"{MAIN}.d/10-x.conf"
    (problem,) = await ssh_host.check(EMPTY, with_files({path: "# comment\nFrob yes\n"}))
    assert (problem.path, problem.message) == (path, "line 2: Bad configuration option")
    assert await ssh_host.check(EMPTY, with_files({path: "PermitRootLogin no\n"})) == ()


async def test_sshd_main_file(ssh_host: HostValidator) -> None:
    (problem,) = await ssh_host.check(EMPTY, with_files({MAIN: "Port 22\nFrob yes\n"}))
    assert (problem.path, problem.message) == (MAIN, "line 2: Bad configuration option")


async def test_sshd_complaints_about_other_files_do_not_count(ssh_host: HostValidator, tmp_path: Path) -> None:
    (tmp_path / "etc/ssh/sshd_config.d/00-host.conf").write_text("Frob yes\n")
    assert await ssh_host.check(EMPTY, with_files({f"{MAIN}.d/10-x.conf": "PermitRootLogin no\n"})) == ()


async def test_sshd_file_that_leaves_the_config_is_left_out(ssh_host: HostValidator, tmp_path: Path) -> None:
    leaving = f"{MAIN}.d/00-old.conf"
    (tmp_path / leaving[1:]).write_text("Frob yes\n")
    old, new = with_files({leaving: "Frob yes\n"}), with_files({f"{MAIN}.d/10-x.conf": "Frob no\n"})
    (problem,) = await ssh_host.check(old, new)
    assert problem.path == f"{MAIN}.d/10-x.conf"


@pytest.mark.finding(
    "secrets: quotes in messages of other programs",
    "What sshd and the TOML parser quote of a file is cut out of their messages.",
)
@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("line 2: Bad configuration option: hunter2", "line 2: Bad configuration option"),
        ('line 2: unsupported option "hunter2".', "line 2: unsupported option (not shown)."),
        ("line 2: Bad SSH2 cipher spec 'hunter2,hunter2'.", "line 2: Bad SSH2 cipher spec (not shown)."),
        ("line 2: bad address: hunter2", "line 2: bad address"),
    ],
)
async def test_words_of_the_file_are_not_quoted(said: str, message: str, tmp_path: Path) -> None:
    host = HostValidator(search_path=fake(tmp_path, "sshd", f"cat >&2 <<EOF\n$3: {said}\nEOF\nexit 255"), root=tmp_path)
    (problem,) = await host.check(EMPTY, with_files({MAIN: "Port 22\n"}))
    assert problem.message == message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("$3:2:8: syntax error\nfoo BAR\n       ^", "line 2: syntax error"),
        (">>> $3: syntax error near line 2 <<<", "syntax error near line 2"),
        ("/etc/sudoers.d/other:1:1: syntax error", None),
    ],
)
async def test_visudo(said: str, message: str | None, tmp_path: Path) -> None:
    script = f'grep -q BAR "$3" || exit 0\ncat >&2 <<EOF\n{said}\nEOF\nexit 1'
    host = HostValidator(search_path=fake(tmp_path, "visudo", script))
    path = "/etc/sudoers.d/foo"
    problems = await host.check(EMPTY, with_files({path: "root ALL=(ALL) ALL\nfoo BAR\n"}))
    assert [(p.path, p.message) for p in problems] == ([(path, message)] if message else [])
    assert await host.check(EMPTY, with_files({path: "root ALL=(ALL) ALL\n"})) == ()


def test_files_that_sudo_does_not_read() -> None:
    assert not ignored_by_sudo("/etc/sudoers")
    assert not ignored_by_sudo("/etc/sudoers.d/foo")
    assert ignored_by_sudo("/etc/sudoers.d/foo.rpmsave")
    assert ignored_by_sudo("/etc/sudoers.d/foo~")


@needs("sshd")
async def test_real_sshd() -> None:
    path = f"{MAIN}.d/10-x.conf"
    (problem,) = await HostValidator().check(EMPTY, with_files({path: "Frob yes\n"}))
    assert problem.path == path
    assert await HostValidator().check(EMPTY, with_files({path: "PermitRootLogin no\n"})) == ()


@needs("visudo")
async def test_real_visudo() -> None:
    path = "/etc/sudoers.d/foo"
    (problem,) = await HostValidator().check(EMPTY, with_files({path: "foo BAR\n"}))
    assert (problem.path, problem.message) == (path, "line 1: syntax error")
    assert await HostValidator().check(EMPTY, with_files({path: "OPS ALL=(ALL) NOPASSWD: ALL\n"})) == ()


# --- a host in trouble

SUDOERS = with_files({"/etc/sudoers.d/foo": "x\n"})


async def test_an_absent_checker_is_said_at_debug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert await HostValidator(search_path=str(tmp_path)).check(EMPTY, SUDOERS) == ()
    assert [record.levelname for record in caplog.records if record.name.startswith("nodeagent")] == ["DEBUG"]
    assert "visudo is not on this host" in caplog.text


@pytest.mark.finding(
    "attack: programs that check a config", "A file whose checker does not end is refused before the lease."
)
@pytest.mark.finding("attack: reads beside others", "A plan refuses a file with which its checker hangs.")
@pytest.mark.parametrize("ends", ["exec sleep 600", "kill -9 $$"])
async def test_a_checker_without_a_result_is_run_again_and_refuses_its_file(tmp_path: Path, ends: str) -> None:
    script = f"echo run >>{tmp_path}/runs; {ends}"
    host = HostValidator(search_path=fake(tmp_path, "visudo", script), deadline=0.2)
    two = with_files({"/etc/sudoers.d/foo": "x\n", "/etc/sudoers.d/later": "x\n"})
    with pytest.raises(Refused) as caught:
        await host.check(EMPTY, two)
    assert caught.value.reason == "CheckerLate"
    assert [problem.path for problem in caught.value.problems] == ["/etc/sudoers.d/foo"]
    assert (tmp_path / "runs").read_text().split() == ["run", "run"]


async def test_a_checker_that_is_late_once_has_twice_the_time(tmp_path: Path) -> None:
    late = f"test -e {tmp_path}/again || {{ touch {tmp_path}/again; exec sleep 600; }}"
    host = HostValidator(search_path=fake(tmp_path, "visudo", f'{late}; echo "$3:2:8: syntax error"; exit 1'))
    found = await replace(host, deadline=3).check(EMPTY, SUDOERS)
    assert found == (Problem("/etc/sudoers.d/foo", "line 2: syntax error"),)


@pytest.mark.finding("attack: reads beside others", "A plan refuses a file with which its checker hangs.")
@pytest.mark.parametrize(
    ("checker", "path"),
    [
        ("sshd", "/etc/ssh/sshd_config.d/10-x.conf"),
        ("visudo", "/etc/sudoers.d/x"),
        ("systemd-analyze", "/etc/systemd/system/x.service"),
    ],
)
async def test_each_checker_that_hangs_refuses_its_file(tmp_path: Path, checker: str, path: str) -> None:
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "group"):
        (tmp_path / "etc" / name).write_text("root:x:0:\n" if name == "group" else "root:x:0:0::/:/bin/sh\n")
    host = HostValidator(search_path=fake(tmp_path, checker, "exec sleep 600"), deadline=0.1, root=tmp_path)
    new = MachineConfig("new", files={"/etc/other": FileEntry("/etc/other", b""), path: FileEntry(path, b"x")})
    with pytest.raises(Refused) as caught:
        await host.check(EMPTY, new)
    assert (caught.value.reason, [each.path for each in caught.value.problems]) == ("CheckerLate", [path])


@pytest.mark.finding("attack: reads beside others", "A plan refuses a file with which its checker hangs.")
@needs("sshd")
async def test_an_include_of_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    name = "/etc/ssh/sshd_config.d/10-fifo.conf"
    with pytest.raises(Refused) as caught:
        await HostValidator(deadline=0.5).check(EMPTY, with_files({name: f"Include {tmp_path}/fifo\n"}))
    assert (caught.value.reason, [each.path for each in caught.value.problems]) == ("CheckerLate", [name])


async def test_a_checker_that_talks_without_end_is_bounded(tmp_path: Path) -> None:
    host = HostValidator(search_path=fake(tmp_path, "visudo", "head -c 10000000 /dev/zero; exit 1"), deadline=20)
    assert await host.check(EMPTY, SUDOERS) == ()


@pytest.mark.finding(
    "attack: programs that check a config",
    "A file of the host that cannot be read for a moment is not left out of a check.",
)
@pytest.mark.parametrize(("fault", "waits"), [(errno.EMFILE, True), (errno.ENOMEM, True), (errno.EISDIR, False)])
async def test_a_drop_in_of_the_host_that_cannot_be_read_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, waits: bool
) -> None:
    def read(_path: Path, _limit: int) -> bytes:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(sshd, "read_regular", read)
    with pytest.raises(OSError, match=os.strerror(fault)) if waits else nullcontext():
        assert sshd._read(tmp_path / "10-host.conf") is None


@pytest.mark.finding(
    "attack: programs that check a config", "An update waits for a checker that is installed and cannot be started."
)
async def test_a_checker_that_cannot_be_run_is_waited_for(tmp_path: Path) -> None:
    path = fake(tmp_path, "visudo", "")
    (tmp_path / "bin/visudo").write_text("#!/no/such/interpreter\n")
    with pytest.raises(ServiceUnavailable) as caught:
        await HostValidator(search_path=path).check(EMPTY, SUDOERS)
    assert (caught.value.reason, caught.value.service) == ("ProgramNotStarted", "visudo")


@pytest.mark.finding(
    "attack: programs that check a config", "An update waits for a checker that is installed and cannot be started."
)
async def test_a_checker_without_a_place_for_its_copies_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_options: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(ServiceUnavailable, match="No space left"):
        await HostValidator(search_path=fake(tmp_path, "visudo", "")).check(EMPTY, SUDOERS)


async def test_the_copy_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    script = (
        f'stat -c %a "$3" "$(dirname "$3")" > {tmp_path}/modes; env > {tmp_path}/env; dirname "$3" > {tmp_path}/dir'
    )
    os.environ["LD_LIBRARY_PATH"] = "/usr/lib/nodeagent/lib"
    try:
        await HostValidator(search_path=fake(tmp_path, "visudo", script)).check(EMPTY, SUDOERS)
    finally:
        del os.environ["LD_LIBRARY_PATH"]
    assert (tmp_path / "modes").read_text().split() == ["600", "700"]
    assert not Path((tmp_path / "dir").read_text().strip()).exists()
    assert "LD_LIBRARY_PATH" not in (tmp_path / "env").read_text()
