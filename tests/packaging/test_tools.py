# SPDX-License-Identifier: Apache-2.0
"""The script that finds and installs programs, on distributions whose package managers record their calls."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "packaging" / "tools.sh"
TABLE = TOOLS.with_name("tools.txt")
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\n'
UBUNTU = 'ID=ubuntu\nID_LIKE="debian"\n'
FEDORA = "NAME='Fedora Linux'\nID=fedora\n"
RHEL = 'ID="rhel"\nID_LIKE="fedora"\n'
CENTOS = 'ID="centos"\nID_LIKE="rhel fedora"\n'
ARCH = "ID=arch\n"
DNF = "dnf -y --setopt=install_weak_deps=False install"
APT = "apt-get install -y --no-install-recommends"
# Notes the call, and puts a program into PATH for each of the packages that it knows.
MANAGER = """\
#!/bin/bash
echo "${0##*/} $*" >>"$CALLS"
case " $* " in
*" systemd-container "*) echo >"$BIN/systemd-nspawn" && /bin/chmod +x "$BIN/systemd-nspawn" ;;
esac
"""


@dataclass
class Machine:
    """A machine with only the programs that a test gives it."""

    root: Path
    release: str = FEDORA
    uid: int = 0
    managers: tuple[str, ...] = ("dnf",)
    manager: str = MANAGER
    programs: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        (self.root / "bin").mkdir(exist_ok=True)
        (self.root / "os-release").write_text(self.release)
        self._put("id", f"#!/bin/bash\necho {self.uid}\n")
        for name in self.managers:
            self._put(name, self.manager)
        for name in self.programs:
            self._put(name, "#!/bin/bash\n")
        done = subprocess.run(
            # The script adds the directories of the system to PATH, which has too much on this machine.
            ["/bin/bash", self._script(), *arguments],
            env={
                "PATH": str(self.root / "bin"),
                "BIN": str(self.root / "bin"),
                "CALLS": str(self.root / "calls"),
                "NODEAGENT_OS_RELEASE": str(self.root / "os-release"),
                "NODEAGENT_KEYRINGS": str(self.root / "keyrings"),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if (self.root / "calls").exists():
            self.calls = (self.root / "calls").read_text().splitlines()
        return done

    def _script(self) -> Path:
        copy = self.root / "tools.sh"
        if not copy.exists():
            text = TOOLS.read_text()
            assert "\nPATH=$PATH:/usr/sbin:/sbin\n" in text
            (self.root / "tools.txt").write_bytes(TABLE.read_bytes())
            # Renamed, because several workers of one machine start here.
            draft = self.root / f"tools.{os.urandom(4).hex()}"
            draft.write_text(text.replace("\nPATH=$PATH:/usr/sbin:/sbin\n", "\n"))
            draft.rename(copy)
        return copy

    def _put(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        if not path.exists():
            path.write_text(text)
            path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1, done
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("release", "managers", "command"),
    [
        (FEDORA, ("dnf",), f"{DNF} systemd-container util-linux e2fsprogs"),
        (RHEL, ("dnf",), f"{DNF} systemd-container util-linux e2fsprogs"),
        (CENTOS, (), f"{DNF} systemd-container util-linux e2fsprogs"),
        (DEBIAN, ("apt-get",), f"{APT} systemd-container util-linux mount e2fsprogs"),
        (UBUNTU, ("apt-get",), f"{APT} systemd-container util-linux mount e2fsprogs"),
        (FEDORA, ("apt-get", "dnf"), f"{DNF} systemd-container util-linux e2fsprogs"),
        (DEBIAN, ("apt-get", "dnf"), f"{APT} systemd-container util-linux mount e2fsprogs"),
        (ARCH, ("dnf",), f"{DNF} systemd-container util-linux e2fsprogs"),
        ("", ("apt-get",), f"{APT} systemd-container util-linux mount e2fsprogs"),
    ],
)
def test_the_command_is_that_of_the_distribution(
    machine: Machine, release: str, managers: tuple[str, ...], command: str
) -> None:
    """The programs do not decide: mmdebstrap brings apt-get to Fedora, and Debian has a dnf."""
    machine.release, machine.managers = release, managers
    line = refused(machine.run("missing", "hosts"))
    assert line == f"missing: systemd-nspawn nsenter mount chattr; install with: sudo {command}"
    assert machine.calls == []


@pytest.mark.parametrize(("release", "name"), [(DEBIAN, "debian"), (UBUNTU, "debian"), (RHEL, "fedora")])
def test_the_distribution(machine: Machine, release: str, name: str) -> None:
    machine.release = release
    assert machine.run("distribution").stdout == f"{name}\n"


def test_an_unknown_distribution_gets_the_packages_of_both(machine: Machine) -> None:
    machine.release, machine.managers = ARCH, ()
    assert refused(machine.run("install", "images")) == (
        "missing: mmdebstrap tar debian-archive-keys; this system is neither Debian nor Fedora, and has neither "
        "apt-get nor dnf. Packages of Debian: mmdebstrap tar debian-archive-keyring. "
        "Packages of Fedora: mmdebstrap tar debian-keyring"
    )


def test_only_what_is_missing_is_named(machine: Machine) -> None:
    machine.programs = ("nsenter", "mount", "tar")
    assert refused(machine.run("missing", "hosts", "tar")).startswith("missing: systemd-nspawn chattr;")
    machine.programs = ("systemd-nspawn", "nsenter", "mount", "chattr")
    assert machine.run("missing", "hosts").returncode == 0


def test_root_installs_what_is_missing_at_once(machine: Machine) -> None:
    machine.programs = ("nsenter", "mount", "chattr")
    done = machine.run("install", "hosts")
    assert (done.returncode, done.stdout) == (0, "installing with dnf: systemd-container\n")
    assert machine.calls == [f"{DNF} systemd-container"]
    assert machine.run("install", "hosts").stdout == ""
    assert len(machine.calls) == 1


def test_debian_fetches_its_lists_first(machine: Machine) -> None:
    machine.release, machine.managers = DEBIAN, ("apt-get",)
    machine.programs = ("nsenter", "mount", "chattr")
    assert machine.run("install", "hosts").returncode == 0
    assert machine.calls == ["apt-get update -q", f"{APT} systemd-container -o DPkg::Lock::Timeout=300"]


def test_no_other_user_installs(machine: Machine) -> None:
    machine.uid = 1000
    line = refused(machine.run("install", "package"))
    assert line == f"missing: sqfstar; install with: sudo {DNF} squashfs-tools"
    assert machine.calls == []


def test_hosts_need_root_too(machine: Machine) -> None:
    """Both in one message, so that a user does not install packages and learn the rest afterwards."""
    machine.uid, machine.programs = 1000, ("nsenter", "mount", "chattr")
    need = "test hosts need root: systemd-nspawn and overlay mounts are for root only"
    assert refused(machine.run("boot", "hosts")) == (
        f"{need}; missing: systemd-nspawn; install with: sudo {DNF} systemd-container"
    )
    machine.programs = ("systemd-nspawn",)
    assert refused(machine.run("boot", "hosts")) == need
    machine.uid = 0
    machine.root.joinpath("bin/id").unlink()
    assert machine.run("boot", "hosts").returncode == 0


def test_a_package_manager_that_fails(machine: Machine) -> None:
    machine.manager = '#!/bin/bash\necho "Error: Unable to find a match: $4" >&2\nexit 1\n'
    done = machine.run("install", "mmdebstrap")
    assert refused(done) == f"missing: mmdebstrap; install with: sudo {DNF} mmdebstrap (this failed, see above)"
    assert "Unable to find a match: mmdebstrap" in done.stderr


def test_a_package_that_lacks_the_program(machine: Machine) -> None:
    machine.manager = "#!/bin/bash\n"
    assert refused(machine.run("install", "tar")).endswith("install tar (still missing after that)")


def test_a_distribution_without_its_package_manager(machine: Machine) -> None:
    machine.managers = ("apt-get",)
    assert refused(machine.run("install", "tar")) == f"missing: tar; install with: sudo {DNF} tar (there is no dnf)"
    assert machine.calls == []


def test_workers_that_miss_the_same_package_install_it_once(machine: Machine) -> None:
    machine.programs = ("nsenter", "mount", "chattr", "flock")
    (machine.root / "bin").mkdir()
    (machine.root / "bin/flock").symlink_to("/usr/bin/flock")
    machine.run("distribution")
    with ThreadPoolExecutor(4) as workers:
        done = list(workers.map(lambda _: machine.run("install", "hosts"), range(4)))
    assert [each.returncode for each in done] == [0] * 4
    assert machine.calls == [f"{DNF} systemd-container"]


@pytest.mark.parametrize(
    ("release", "file", "found"),
    [
        (DEBIAN, "debian-archive-trixie-stable.gpg", True),
        (DEBIAN, "debian-archive-keyring.gpg", False),
        (FEDORA, "debian-archive-keyring.gpg", True),
        (FEDORA, "fedora.gpg", False),
    ],
)
def test_the_keys_of_debian(machine: Machine, release: str, file: str, found: bool) -> None:
    """Debian 12 had its keyring before the keys of Debian 13 were in it."""
    machine.release = release
    (machine.root / "keyrings").mkdir()
    (machine.root / "keyrings" / file).touch()
    assert (machine.run("missing", "debian-archive-keys").returncode == 0) == found


@pytest.mark.parametrize(
    ("candidate", "status", "good"), [("python3.12", 0, True), ("python3", 0, True), ("python3", 1, False)]
)
def test_the_python(machine: Machine, candidate: str, status: int, good: bool) -> None:
    """One that is too old, or has no venv, ends with a status other than 0 here."""
    (machine.root / "bin").mkdir()
    path = machine.root / "bin" / candidate
    path.write_text(f"#!/bin/bash\nexit {status}\n")
    path.chmod(0o755)
    done = machine.run("python", "python3")
    if good:
        assert (done.returncode, done.stdout) == (0, f"{path}\n")
        assert machine.calls == []
    else:
        assert refused(done) == f"missing: python3; install with: sudo {DNF} python3 (still missing after that)"
        assert done.stdout == ""


def test_a_word_that_is_not_in_the_table(machine: Machine) -> None:
    assert refused(machine.run("install", "hots")) == "hots is neither a program nor a group of tools.txt"
    assert refused(machine.run("instal", "hosts")).startswith("usage: ")


def test_the_list(machine: Machine) -> None:
    machine.programs = ("make", "mvn")
    done = machine.run("list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "  setup          make" in lines
    assert "  rpm            rpmlint               missing" in lines
    assert lines[-1].startswith("missing: python3 sqfstar rpmbuild ")


def test_the_table_is_whole() -> None:
    rows = [line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {4}
    assert len({row[0] for row in rows}) == len(rows)
    groups, programs = {row[3] for row in rows}, {row[0] for row in rows}
    assert not groups & programs, "a name is one of both"


def test_no_other_place_knows_a_package_manager() -> None:
    """A guest is always Debian: apt-get in it is another thing, and dnf a package that a test of the RPM needs."""
    top = TOOLS.parents[1]
    files = [top / "Makefile", *(top / ".ci").iterdir()]
    files += [
        path
        for each in ("packaging", "integration")
        for path in (top / each).rglob("*.py")
        if not path.name.startswith("test_")
    ]
    files += [path for path in (top / "packaging").glob("*.sh") if path != TOOLS]
    looks = re.compile(r"""["']dnf["']|\bdnf -|which\(["']apt|command -v apt""")
    # Those of the bundle and of the guests look for the mirrors of this machine, and install nothing.
    assert {str(path.relative_to(top)) for path in files if looks.search(path.read_text())} == {
        "packaging/bundle/debian.py",
        "integration/hosts/container/apt.py",
        "integration/package/provisioning.py",
    }
