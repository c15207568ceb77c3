# SPDX-License-Identifier: Apache-2.0
"""A build machine that is like Fedora, as far as one made of Debian can be, with root and without.

It has neither apt nor dpkg, Fedora's os-release, and a dnf that records its calls.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.browser.browser import image_with
from integration.hosts import process
from integration.hosts.container import container_host
from integration.hosts.errors import Unavailable
from integration.package.conftest import SOURCE, cannot
from integration.trees.toolbox import scratch

pytestmark = pytest.mark.long

PACKAGES = ("python3", "python3-venv", "make")
RELEASE = 'NAME="Fedora Linux"\nID=fedora\nVERSION_ID=43\n'
# There is no archive of Fedora here.
DNF = "#!/bin/bash\necho \"dnf $*\" >>/var/dnf-calls\necho 'Error: Failed to download metadata' >&2\nexit 1\n"
CALL = "dnf -y --setopt=install_weak_deps=False install"
NEED_ROOT = "test hosts need root: systemd-nspawn and overlay mounts are for root only; "
FOR_HOSTS = "systemd-container mmdebstrap debian-keyring squashfs-tools maven"
# Of Debian, which Fedora has not.
REMOVED = (
    "usr/bin/apt*",
    "usr/bin/dpkg*",
    "usr/lib/apt",
    "var/lib/dpkg",
    "var/lib/apt",
    "etc/apt",
    "usr/share/keyrings",
)
HOME, CERTIFICATES = "/var/home/core", "/etc/ssl/certs/ca-certificates.crt"
ENTER = """\
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
root=$1 && shift && exec chroot "$root" "$@"
"""
USER = ("setpriv", "--reuid=core", "--regid=core", "--init-groups")
TIMEOUT = 400.0


class Machine:
    """A root with a copy of the sources, in the home of an ordinary user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._project = f"{HOME}/nodeagent"

    def make(self, *words: str, root: bool = False) -> subprocess.CompletedProcess[str]:
        return self.run("make", "--no-print-directory", *words, root=root)

    def run(self, *argv: str, root: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program in the copy of the sources, as an ordinary user or as root. Its status is not checked."""
        enter = ["unshare", "--mount", "--propagation=private", "sh", "-c", ENTER, "sh", str(self.root)]
        user = () if root else USER
        index = {name: value for name, value in os.environ.items() if name.endswith(("_INDEX_URL", "_proxy", "_PROXY"))}
        done = process.run(
            [*enter, *user, "env", f"--chdir={self._project}", *argv],
            timeout=TIMEOUT,
            check=False,
            env={
                **index,
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "LC_ALL": "C.UTF-8",
                "HOME": "/root" if root else HOME,
                "SSL_CERT_FILE": CERTIFICATES,
                "PIP_CERT": CERTIFICATES,
            },
        )
        return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())

    @property
    def dnf_calls(self) -> list[str]:
        """Return the calls of dnf since the last time."""
        path = self.root / "var/dnf-calls"
        calls = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return calls


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    try:
        image = image_with("build-machine", PACKAGES, print, "installing Python and make for the build machine")
    except Unavailable as error:
        cannot(f"the root of a build machine cannot be made here: {error}")
    container_host.sweep()
    with contextlib.closing(image), scratch(image) as root:
        for path in [path for pattern in REMOVED for path in root.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, text, mode in (("etc/os-release", RELEASE, 0o644), ("usr/bin/dnf", DNF, 0o755)):
            (root / name).unlink(missing_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(mode)
        for name in ("/etc/resolv.conf", CERTIFICATES):
            (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / name[1:]).unlink(missing_ok=True)
            shutil.copyfile(name, root / name[1:])
        project = root / HOME[1:] / "nodeagent"
        ignored = shutil.ignore_patterns(".venv", ".git", "dist", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(SOURCE, project, symlinks=True, ignore=ignored)
        process.run(["chroot", str(root), "chown", "-R", "core:core", HOME], timeout=60)
        yield Machine(root)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line before that of make, of a target that failed."""
    assert done.returncode == 2, done
    *_, line, of_make = done.stderr.splitlines()
    assert of_make.startswith("make: *** ")
    return line


@pytest.mark.parametrize(("target", "more"), [("demo", ""), ("demo-vm", " qemu-system-x86-core")])
def test_the_demo_names_all_that_is_missing_before_it_starts(machine: Machine, target: str, more: str) -> None:
    line = last_line(machine.make(target))
    assert line.startswith(f"{NEED_ROOT}missing: systemd-nspawn mmdebstrap debian-archive-keys sqfstar mvn")
    assert f"; install with: sudo {CALL} {FOR_HOSTS}{more}" in line
    assert machine.dnf_calls == []
    line = last_line(machine.make(target, root=True))
    assert line.endswith(" (this failed, see above)")
    (call,) = machine.dnf_calls
    assert call.startswith(f"{CALL} {FOR_HOSTS}{more}")
    assert not (machine.root / HOME[1:] / "nodeagent/.venv").exists()


def test_a_machine_without_python(machine: Machine) -> None:
    (program,) = (machine.root / "usr/bin").glob("python3.??")
    program.rename(program.with_name("away"))
    line = f"missing: python3; install with: sudo {CALL} python3"
    try:
        assert last_line(machine.make("venv", "PYTHON=/usr/bin/python3")) == line
        assert machine.dnf_calls == []
        assert last_line(machine.make("venv", root=True)) == f"{line} (this failed, see above)"
        assert machine.dnf_calls == [f"{CALL} python3"]
    finally:
        program.with_name("away").rename(program)


def test_an_ordinary_user_has_the_environment_and_ring_1(machine: Machine) -> None:
    done = machine.make("venv")
    assert done.returncode == 0, done
    done = machine.make("unit", "RING1=tests/packaging/test_tools.py tests/host/fs/test_files.py tests/core/plan")
    assert done.returncode == 0, done
    assert " passed" in done.stdout
    assert "needs root" in done.stdout
    # Ring 2 skips, each reason with what is missing.
    done = machine.run(".venv/bin/pytest", "-q", "integration/hosts/container/test_reboot.py")
    assert done.returncode == 0, done
    reason = f"{NEED_ROOT}missing: systemd-nspawn; install with: sudo {CALL} systemd-container"
    assert f"the host ring cannot run here: {reason}" in done.stdout
    assert " passed" not in done.stdout
    assert machine.dnf_calls == []
