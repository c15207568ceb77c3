# SPDX-License-Identifier: Apache-2.0
"""The package for aarch64: built on this machine, and started under QEMU in a root that has only the libc."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from integration.hosts import requirements
from integration.hosts.errors import Unavailable
from integration.package.conftest import BUILD_TIMEOUT, EPOCH, IMPORT_ALL, Package, cached, cannot

pytestmark = pytest.mark.long

TIMEOUT = 300.0  # seconds; an emulated start takes ten times as long
PYTHON = "/usr/lib/nodeagent/bin/python3"
EMULATOR = "qemu-aarch64-static"
PAGE = 1 << 16  # of the kernel-64k of RHEL
SAMPLES = Path(__file__).parents[2] / "docs" / "examples"
# In a mount namespace of its own, so that nothing stays mounted. The loader needs /proc for $ORIGIN.
ENTER = 'mount -t proc proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"'


def run(*argv: str | Path, **keywords: str) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=TIMEOUT, check=False, env={**os.environ, **keywords}
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def libc() -> Path:
    """The directory with Debian's libc6 for arm64, unpacked."""
    if os.geteuid() != 0:
        cannot("the emulated root needs root (chroot, mount)")
    if requirements.distribution() != "debian":
        cannot("the libc of another architecture comes from Debian's archive, by apt-get of this machine")
    try:
        requirements.install(print, "aarch64")
    except Unavailable as error:
        cannot(str(error))
    return cached("libc6", "arm64", _unpack_libc)


def _unpack_libc(target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        for each in ("state/lists/partial", "cache/archives/partial"):
            (scratch / each).mkdir(parents=True)
        (scratch / "state/status").touch()
        options = ["-o", "APT::Architecture=arm64", "-o", "APT::Architectures::=arm64", "-o", "APT::Sandbox::User=root"]
        options += ["-o", f"Dir::State={scratch}/state", "-o", f"Dir::State::status={scratch}/state/status"]
        options += ["-o", f"Dir::Cache={scratch}/cache"]
        run("apt-get", *options, "update", "-q")
        script = 'cd "$1" && shift && exec apt-get "$@"'
        run("sh", "-c", script, "sh", scratch, *options, "download", "-q", "libc6")
        (package,) = scratch.glob("libc6_*.deb")
        run("dpkg-deb", "--extract", package, target)


@pytest.fixture(scope="module")
def root(package: Package, libc: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("aarch64")
    build: list[str | Path] = [
        sys.executable,
        package.source / "packaging/build.py",
        *("--machine", "aarch64"),
        *("--interpreter", "testing"),
        "--out",
        out / "dist",
    ]
    done = subprocess.run(
        build,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    root = out / "root"
    shutil.copytree(libc, root, symlinks=True)
    (tar,) = (out / "dist").glob("nodeagent-*-aarch64-testing.tar.gz")
    with tarfile.open(tar) as archive:
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)  # not in the 3.11.2 of Debian 12
        archive.extractall(root)
    emulator = shutil.which(EMULATOR)
    assert emulator
    shutil.copy(emulator, root / "emulator")
    shutil.copytree(SAMPLES, root / "examples")
    (root / "proc").mkdir()
    return root


def emulated(root: Path, *arguments: str) -> str:
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/"}
    argv = ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(root), "/emulator", PYTHON, "-BIS", *arguments]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_has_the_same_code_as_the_package_of_this_machine(package: Package, root: Path) -> None:
    def compiled(tree: Path) -> dict[str, bytes]:
        own = tree / "usr/lib/nodeagent/lib/python3.14/site-packages/nodeagent"
        return {str(path.relative_to(own)): path.read_bytes() for path in own.rglob("*.pyc")}

    assert compiled(root) == compiled(package.tree)


def test_kernels_with_pages_of_64_kib_load_it(root: Path) -> None:
    alignments = {}
    for path in sorted((root / "usr/lib/nodeagent").rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            with path.open("rb") as file:
                segments = ELFFile(file).iter_segments("PT_LOAD")
                alignments[path.name] = min(segment["p_align"] for segment in segments)
    assert len(alignments) > 20
    assert {name: found for name, found in alignments.items() if found % PAGE} == {}


def test_version_and_plan(package: Package, root: Path) -> None:
    answer = json.loads(emulated(root, "/usr/bin/nodeagent", "version", "--verbose", "--json"))
    assert answer["version"] == tomllib.loads((package.source / "pyproject.toml").read_text())["project"]["version"]
    assert "openssl" in {each["name"] for each in answer["components"]}
    arguments = ("plan", "--from", "/examples/worker-1.yaml", "--to", "/examples/worker-2.yaml", "--json")
    native = run(sys.executable, "-m", "nodeagent", *(each.replace("/examples", str(SAMPLES)) for each in arguments))
    assert json.loads(emulated(root, "/usr/bin/nodeagent", *arguments)) == json.loads(native)


def test_every_module_is_imported_and_the_libraries_work(root: Path) -> None:
    site = "/usr/lib/nodeagent/lib/python3.14/site-packages"
    program = f"""
import sys
sys.path.append({site!r})
{IMPORT_ALL}
import platform, sqlite3, ssl, zlib, yaml
assert yaml.CSafeLoader and ssl.OPENSSL_VERSION_INFO >= (3, 5) and sqlite3.sqlite_version_info >= (3, 50)
assert abs(3 + 4j) == 5 and zlib.decompress(zlib.compress(b"x")) == b"x"
print(platform.machine())
"""
    assert emulated(root, "-W", "ignore", "-c", program) == "aarch64\n"
