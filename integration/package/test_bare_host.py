# SPDX-License-Identifier: Apache-2.0
"""The package on a host that has nothing: a root with the four files of glibc and not even a shell.

This is harder than any real host: what runs here runs on Fedora CoreOS and RHEL CoreOS, which have no Python either.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from integration.package.conftest import IMPORT_ALL, Package, cannot

HOME = Path("/usr/lib/nodeagent")
TIMEOUT = 30.0  # seconds
# What glibc consists of for us; where this machine has it is asked from its loader's cache.
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2")

# Runs in a mount namespace of its own, so that nothing stays mounted. The loader needs /proc for $ORIGIN; a user
# namespace may not mount one of its own.
ENTER = 'mount --rbind /proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"'
NAMESPACES = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


class BareHost:
    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*NAMESPACES, "sh", "-c", ENTER, "sh", self.root, *argv],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def python(self, program: str) -> str:
        site = next((self.root / "usr/lib/nodeagent/lib").glob("python3.*/site-packages"))
        setup = f"import sys; sys.path.append('/{site.relative_to(self.root)}')\n"
        done = self.run(f"{HOME}/bin/python3", "-BIS", "-W", "error", "-c", setup + program)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def host(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareHost]:
    probe = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if probe.returncode:
        cannot(f"a root of its own needs root, or a kernel that allows user namespaces: {probe.stderr.strip()}")
    root = shutil.copytree(package.tree, tmp_path_factory.mktemp("bare") / "root", symlinks=True)
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in LIBRARIES:
        # The first of a name is the native one; the others are for 32 bit.
        found = re.search(rf"^\s*{re.escape(name)} .*=> (\S+)$", cache, re.MULTILINE)
        assert found, name
        _put(root, found[1])
    for loader in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
        if Path(loader).exists():
            _put(root, loader)
    (root / "proc").mkdir()
    yield BareHost(root)


def _put(root: Path, name: str) -> None:
    target = root / name.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(name).resolve(), target)


def test_the_command_runs(host: BareHost, package: Package) -> None:
    done = host.run("/usr/bin/nodeagent", "version")
    version = tomllib.loads((package.source / "pyproject.toml").read_text())["project"]["version"]
    assert (done.returncode, done.stderr) == (0, "")
    assert version in done.stdout


def test_lists_what_is_bundled(host: BareHost) -> None:
    done = host.run("/usr/bin/nodeagent", "version", "--verbose", "--json")
    shown = json.loads(done.stdout)
    listed = {each["name"]: each for each in shown["components"]}
    answer = host.python(
        "import ssl, sqlite3, yaml; print(ssl.OPENSSL_VERSION.split()[1], sqlite3.sqlite_version, yaml.__version__)"
    )
    assert [listed[name]["version"] for name in ("openssl", "sqlite", "pyyaml")] == answer.split()
    assert listed["pyudev"]["license"] == "LGPL-2.1-or-later"
    assert shown["interpreter"] == "testing"
    assert listed["sqlite"]["origin"].startswith("pkg:pypi/")
    text = host.run("/usr/bin/nodeagent", "version", "--verbose").stdout
    assert "openssl" in text
    assert "for tests only" in text


@pytest.mark.long
def test_every_module_of_the_agent_is_imported(host: BareHost) -> None:
    """The standard library of the package lacks modules that nodeagent and its packages do not use."""
    # The Kubernetes client reads it, and this root has no /etc/passwd.
    home = "import os\nos.environ['HOME'] = '/'\n"
    check = "import dbus_next, msgspec, structlog, yaml\nassert yaml.CSafeLoader and yaml.CSafeDumper\n"
    assert int(host.python(f"{home}{IMPORT_ALL}{check}print(len(modules))")) > 200


def test_the_shipped_libraries_are_used(host: BareHost) -> None:
    host.python("""
import contextlib, ctypes, hashlib, sqlite3, ssl, sys, zlib
assert sqlite3.sqlite_version_info >= (3, 50) and sqlite3.threadsafety == 3
with contextlib.closing(sqlite3.connect(':memory:')) as database:
    assert database.execute('pragma synchronous').fetchone() == (2,)
assert zlib.decompress(zlib.compress(b'x' * 1000)) == b'x' * 1000
assert abs(3 + 4j) == 5  # by libm's hypot, which is bound to an older version
try:
    abs(complex(1.5e308, 1.5e308))
except OverflowError:
    pass
else:
    raise AssertionError('no OverflowError')
assert hashlib.sha256(b'').hexdigest().startswith('e3b0c442')
paths = ssl.get_default_verify_paths()
assert (paths.openssl_cafile, paths.openssl_capath) == ('/etc/pki/tls/cert.pem', '/etc/ssl/certs')
assert sys.prefix == '/usr/lib/nodeagent'
""")


@pytest.mark.long
def test_neither_the_environment_nor_the_working_directory_has_a_say(host: BareHost) -> None:
    evil = host.root / "evil"
    evil.mkdir(exist_ok=True)
    for name in ("nodeagent.py", "json.py", "sitecustomize.py", "startup.py"):
        (evil / name).write_text("raise SystemExit('evil')")
    variables = {"PYTHONPATH": "/evil", "PYTHONHOME": "/evil", "PYTHONSTARTUP": "/evil/startup.py"}
    variables |= {"PYTHONINSPECT": "1", "PYTHONVERBOSE": "1", "PYTHONWARNINGS": "error", "HOME": "/evil"}
    done = host.run("/usr/bin/nodeagent", "version", env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "evil" not in done.stdout


def test_nothing_is_written_to_the_tree(host: BareHost) -> None:
    before = set((host.root / "usr").rglob("*"))
    shutil.rmtree(next((host.root / "usr/lib/nodeagent/lib").glob("python3.*/site-packages/nodeagent/__pycache__")))
    host.run("/usr/bin/nodeagent", "version")
    assert set((host.root / "usr").rglob("*")) < before
