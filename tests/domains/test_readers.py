# SPDX-License-Identifier: Apache-2.0
"""Files that their program ignores because of mode or owner, and programs that a unit cannot start."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry
from nodeagent.domains import validate, warnings

PROFILE = "/etc/NetworkManager/system-connections/bond0.nmconnection"
KEYFILE = b"[connection]\nid=bond0\ntype=bond\n"
AUTHORIZED = "/home/core/.ssh/authorized_keys"
EMPTY = MachineConfig("old")


def with_files(*files: FileEntry, units: Mapping[str, UnitEntry] | None = None) -> MachineConfig:
    return MachineConfig("new", {file.path: file for file in files}, units or {})


def messages(new: MachineConfig, old: MachineConfig = EMPTY) -> list[str]:
    return [problem.message for problem in validate(old, new)]


IGNORED = {
    "mode of a profile": (FileEntry(PROFILE, KEYFILE), "has mode 0644, so that NetworkManager ignores it"),
    "group of a profile": (FileEntry(PROFILE, KEYFILE, 0o640), "give it 0600 (384 in JSON)"),
    "profile with another ending": (FileEntry(PROFILE.removesuffix(".nmconnection"), KEYFILE), "mode 0644"),
    "owner of a profile": (FileEntry(PROFILE, KEYFILE, 0o600, user="core"), "belongs to core"),
    "owner by number": (FileEntry(PROFILE, KEYFILE, 0o600, user=1000), "belongs to 1000"),
    "host key": (FileEntry("/etc/ssh/ssh_host_ed25519_key", b"x", 0o644), "sshd ignores it"),
    "key of root": (FileEntry("/root/.ssh/id_ed25519", b"x"), "ssh ignores it"),
    "keys of root only": (FileEntry(AUTHORIZED, b"x", 0o600), "mode 0600, and sshd reads it as core"),
    "keys of another user": (FileEntry(AUTHORIZED, b"x", 0o600, user="bob"), "belongs to bob"),
    "keys that others may change": (FileEntry(f"/var{AUTHORIZED}", b"x", 0o666, user="core"), "sshd ignores it"),
    "keys of the root user": (FileEntry("/root/.ssh/authorized_keys", b"x", 0o664), "sshd ignores it"),
    "cron": (FileEntry("/etc/cron.d/job", b"x", 0o664), "cron ignores it: give it 0644"),
    "logrotate": (FileEntry("/etc/logrotate.d/app", b"x", 0o666), "logrotate ignores it"),
    "sudo": (FileEntry("/etc/sudoers.d/admins", b"x", 0o440, user=1000), "sudo ignores it"),
}


@pytest.mark.finding(
    "files: ignored for mode or owner",
    "A file that its program ignores because of mode or owner is refused before the lease.",
)
@pytest.mark.parametrize("case", IGNORED)
def test_a_file_that_its_program_ignores(case: str) -> None:
    file, words = IGNORED[case]
    (message,) = messages(with_files(file))
    assert words in message
    assert not messages(with_files(file), with_files(file)), "what does not change is no matter of this update"


@pytest.mark.parametrize(
    "file",
    [
        FileEntry(PROFILE, KEYFILE, 0o600),
        FileEntry(PROFILE, KEYFILE, 0o400, user="root"),
        FileEntry("/etc/NetworkManager/system-connections/.hidden", b"x"),
        FileEntry("/etc/NetworkManager/conf.d/x.conf", b""),
        FileEntry("/etc/ssh/ssh_host_rsa_key", b"x", 0o640, group="ssh_keys"),
        FileEntry("/etc/ssh/ssh_host_rsa_key.pub", b"x"),
        FileEntry("/root/.ssh/id_rsa.pub", b"x"),
        FileEntry(AUTHORIZED, b"x", 0o600, user="core", group="core"),
        FileEntry(AUTHORIZED, b"x", 0o644),
        FileEntry(AUTHORIZED, b"x", 0o640, group="core"),
        FileEntry(AUTHORIZED, b"x", 0o600, user=1000),
        FileEntry("/root/.ssh/authorized_keys", b"x", 0o600),
        FileEntry("/etc/cron.d/job", b"x"),
        FileEntry("/etc/crontab.other", b"x", 0o666),
        FileEntry("/etc/sudoers.d/admins", b"x", 0o440),
    ],
)
def test_a_file_that_its_program_reads(file: FileEntry) -> None:
    assert not messages(with_files(file))


@pytest.mark.finding("files: ignored for mode or owner", "A changed mode is judged, too.")
def test_a_mode_that_changes() -> None:
    assert messages(with_files(FileEntry(PROFILE, KEYFILE, 0o644)), with_files(FileEntry(PROFILE, KEYFILE, 0o600)))


@pytest.mark.finding("files: ignored for mode or owner", "A profile that is no keyfile is refused before the lease.")
@pytest.mark.parametrize("content", [b"connection]\nid=bond0\n", b"", b"# nothing\n", b"\0"])
def test_a_profile_that_is_no_keyfile(content: bytes) -> None:
    (message,) = messages(with_files(FileEntry(PROFILE, content, 0o600)))
    assert "no keyfile" in message


@pytest.mark.finding(
    "files: ignored for mode or owner", "A script that the dispatcher of NetworkManager does not run is a warning."
)
@pytest.mark.parametrize(
    ("file", "words"),
    [
        (FileEntry("/etc/NetworkManager/dispatcher.d/30-x.sh", b"#!/bin/sh\n"), "without an x bit"),
        (FileEntry("/etc/NetworkManager/dispatcher.d/pre-up.d/x", b"#!/bin/sh\n", 0o775), "others may change it"),
        (FileEntry("/etc/NetworkManager/dispatcher.d/x", b"#!/bin/sh\n", 0o755, user="core"), "belongs to core"),
        (FileEntry("/etc/NetworkManager/dispatcher.d/x", b"#!/bin/sh\n", 0o755), ""),
        (FileEntry("/etc/NetworkManager/dispatcher.d/README", b"text\n"), ""),
    ],
)
def test_a_script_of_the_dispatcher(file: FileEntry, words: str) -> None:
    found = [problem.message for problem in warnings(EMPTY, with_files(file))]
    assert [words in message for message in found] == ([True] if words else [])


# --- programs of units

SCRIPT = "/usr/local/bin/run.sh"
UNIT = "run.service"


def service(*lines: str, **more: object) -> dict[str, UnitEntry]:
    text = "[Service]\n" + "".join(f"{line}\n" for line in lines)
    return {UNIT: UnitEntry(UNIT, text, **more)}  # type: ignore[arg-type]


def script(mode: int = 0o644, content: bytes = b"#!/bin/sh\nexit 0\n", path: str = SCRIPT, **more: object) -> FileEntry:
    return FileEntry(path, content, mode, **more)  # type: ignore[arg-type]


STARTED = {
    "plain": ((script(),), service(f"ExecStart={SCRIPT}"), "has mode 0644, and run.service starts it (ExecStart=)"),
    "arguments": ((script(),), service(f"ExecStart={SCRIPT} --all"), "x bit"),
    "prefixes": ((script(),), service(f"ExecStart=-@{SCRIPT} name"), "x bit"),
    "quotes": ((script(path="/opt/a b/run"),), service('ExecStart="/opt/a b/run" x'), "x bit"),
    "before the start": ((script(),), service("ExecStart=/bin/true", f"ExecStartPre=+{SCRIPT}"), "(ExecStartPre=)"),
    "reload": ((script(),), service("ExecStart=/bin/true", f"ExecReload={SCRIPT}"), "(ExecReload=)"),
    "stop": ((script(),), service("ExecStart=/bin/true", f"ExecStopPost={SCRIPT}"), "(ExecStopPost=)"),
    "continued line": ((script(),), service("ExecStart=\\", f"  {SCRIPT}"), "x bit"),
    "second command": ((script(),), service(f"ExecStart=/bin/true ; {SCRIPT}"), "x bit"),
    "name without a slash": ((script(),), service("ExecStart=run.sh"), "x bit"),
    "other name of the directory": (
        (script(path="/var/usrlocal/bin/run.sh"),),
        service(f"ExecStart={SCRIPT}"),
        "x bit",
    ),
    "no interpreter": ((script(0o755, b"echo hello\n"),), service(f"ExecStart={SCRIPT}"), "has no #!"),
    "empty": ((script(0o755, b""),), service(f"ExecStart={SCRIPT}"), "has no #!"),
    "blank before the interpreter": ((script(0o755, b"\n#!/bin/sh\n"),), service(f"ExecStart={SCRIPT}"), "has no #!"),
    "another user": ((script(0o744),), service(f"ExecStart={SCRIPT}", "User=core"), "as core, who may not"),
    "drop-in": ((script(),), {UNIT: UnitEntry(UNIT, dropins={"10.conf": f"[Service]\nExecStart={SCRIPT}\n"})}, "x bit"),
    "unit as a file": (
        (script(), FileEntry("/etc/systemd/system/run.service", f"[Service]\nExecStart={SCRIPT}\n".encode())),
        {},
        "x bit",
    ),
    "drop-in as a file": (
        (script(), FileEntry("/etc/systemd/system/run.service.d/1.conf", f"[Service]\nExecStart={SCRIPT}\n".encode())),
        {},
        "x bit",
    ),
    "socket": ((script(),), {"a.socket": UnitEntry("a.socket", f"[Socket]\nExecStartPre={SCRIPT}\n")}, "a.socket"),
    "template": ((script(),), {"a@.service": UnitEntry("a@.service", f"[Service]\nExecStart={SCRIPT} %i\n")}, "a@"),
}


@pytest.mark.finding(
    "units: scripts that cannot start",
    "A script that a unit of the same config cannot start is refused before the lease.",
)
@pytest.mark.parametrize("case", STARTED)
def test_a_program_that_cannot_be_started(case: str) -> None:
    files, units, words = STARTED[case]
    new = with_files(*files, units=units)
    found = [problem for problem in validate(EMPTY, new) if problem.path == files[0].path]
    assert len(found) == 1
    assert words in found[0].message
    assert not messages(new, new), "what does not change is no matter of this update"


@pytest.mark.parametrize(
    ("files", "units"),
    [
        ((script(0o755),), service(f"ExecStart={SCRIPT}")),
        ((script(0o755, b"\x7fELF\0\0"),), service(f"ExecStart={SCRIPT}")),
        ((script(),), service(f"ExecStart=/bin/bash {SCRIPT}")),
        ((script(),), service(f"ExecStart={SCRIPT}", "ExecStart=", "ExecStart=/bin/true")),
        (
            (script(),),
            service(f"ExecStart={SCRIPT}", dropins={"1.conf": "[Service]\nExecStart=\nExecStart=/bin/true\n"}),
        ),
        ((script(),), service(f"ExecStart={SCRIPT}", mask=True)),
        ((script(),), service(f"ExecStart=|{SCRIPT}")),
        ((script(),), service("ExecStart=/usr/local/bin/%p.sh")),
        ((script(0o744, user="core"),), service(f"ExecStart={SCRIPT}", "User=core")),
        ((script(0o755),), service(f"ExecStart={SCRIPT}", "User=core")),
        ((script(),), service("ExecStart=/usr/local/bin/other.sh")),
    ],
)
def test_programs_that_can_be_started(files: tuple[FileEntry, ...], units: dict[str, UnitEntry]) -> None:
    assert not messages(with_files(*files, units=units))


@pytest.mark.finding("units: scripts that cannot start", "A unit or a mode that changes is judged, too.")
def test_what_changes_is_judged() -> None:
    units = service(f"ExecStart={SCRIPT}")
    new = with_files(script(), units=units)
    assert messages(new, with_files(script(0o755), units=units))
    assert messages(new, with_files(script(), units=service("ExecStart=/bin/true")))


# --- names


@pytest.mark.finding(
    "users: names and paths by mistake",
    "A name with a placeholder, a blank at its end or typographic quotes is a warning, as is `/ect` for `/etc`.",
)
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/app.conf ", "blank"),
        ("/etc/ app/x", "blank"),
        ("/etc/${POOL}/x.conf", "has ${POOL}, a placeholder"),
        ("/etc/{{ .name }}.conf", "placeholder"),
        ("/etc/<NAME>.conf", "placeholder"),
        ("/etc/“app”.conf", "typographic quotes"),
        ("/etc/app\u00a0x.conf", "invisible"),
        ("/etc/app\u200b.conf", "invisible"),
        ("/var/tmp/x", "systemd-tmpfiles"),
        ("/ect/chrony.conf", "did you mean /etc?"),
        *((f"/{name}/x.conf", "") for name in ("data", "exports", "media", "net", "sysroot", "srv", "ostree")),
        ("/etc/straße/x y.conf", ""),
        ("/etc/a$b(1)<2>", ""),
    ],
)
def test_an_odd_path(path: str, words: str) -> None:
    found = [problem.message for problem in warnings(EMPTY, with_files(FileEntry(path, b"")))]
    assert [words in message for message in found] == ([True] if words else [])


@pytest.mark.finding("users: names and paths by mistake", "A name of a config with a placeholder is a warning.")
@pytest.mark.parametrize("name", ["${POOL}-chrony", "“worker”"])
def test_an_odd_name_of_a_config(name: str) -> None:
    assert [problem.path for problem in warnings(EMPTY, MachineConfig(name))] == ["metadata.name"]


LEFT_OUT = pytest.mark.finding(
    "configs: refused before the question", "A file that its program leaves out for its name is a warning."
)


@LEFT_OUT
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/sudoers.d/90-site.conf", "left out by sudo: its name has a dot"),
        ("/etc/sudoers.d/site~", "left out by sudo"),
        ("/etc/sysctl.d/60-site", "left out by systemd-sysctl: its name has to end with .conf"),
        ("/etc/systemd/journald.conf.d/site.cfg", "left out by systemd: its name has to end with .conf"),
        ("/etc/systemd/network/10-site.conf", "end with .network or .netdev or .link"),
        ("/etc/containers/registries.d/site.yml", "end with .yaml"),
    ],
)
def test_a_file_that_its_program_leaves_out_for_its_name(path: str, words: str) -> None:
    (problem,) = warnings(EMPTY, with_files(FileEntry(path, b"")))
    assert problem.path == path
    assert words in problem.message


@LEFT_OUT
@pytest.mark.parametrize(
    "path",
    [
        "/etc/sudoers.d/90-site",
        "/etc/sysctl.d/60-site.conf",
        "/etc/sysctl.d/README",
        "/etc/sysctl.d/below/x",
        "/etc/systemd/network/10-site.network",
        "/etc/systemd/system/a.service.d/x.conf",
        "/etc/app.d/x",
    ],
)
def test_a_name_that_its_program_reads(path: str) -> None:
    assert not warnings(EMPTY, with_files(FileEntry(path, b"")))
