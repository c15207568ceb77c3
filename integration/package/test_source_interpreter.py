# SPDX-License-Identifier: Apache-2.0
"""The interpreter of releases, built from Debian's source packages, and the package with it: `make interpreter-tests`.

Not in `make test` or `make long`, because a build takes too long for them. CI runs it where it has the time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from integration.package.conftest import BUILD_TIMEOUT, EPOCH, SOURCE, Package, cannot
from integration.package.test_bare_host import (
    BareHost,
    host,
    test_every_module_of_the_agent_is_imported,
    test_neither_the_environment_nor_the_working_directory_has_a_say,
    test_nothing_is_written_to_the_tree,
    test_the_command_runs,
)

# The same rules for this interpreter.
__all__ = [
    "host",
    "test_every_module_of_the_agent_is_imported",
    "test_neither_the_environment_nor_the_working_directory_has_a_say",
    "test_nothing_is_written_to_the_tree",
    "test_the_command_runs",
]

pytestmark = pytest.mark.long
HOME = "usr/lib/nodeagent"
# Of every glibc system.
LIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The package with the interpreter of the cache. Nothing is built from source here."""
    packaging = SOURCE / "packaging"
    built = subprocess.run([sys.executable, packaging / "build_interpreter.py", "--cached"], check=False)
    if built.returncode:
        cannot("the interpreter of these sources is not in the cache: make interpreter")
    top = tmp_path_factory.mktemp("source")
    argv: list[str | Path] = [sys.executable, packaging / "build.py", "--interpreter", "source", "--out", top / "dist"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run(argv, env=environment, timeout=BUILD_TIMEOUT, check=True, stdout=subprocess.DEVNULL)
    (tar,) = (top / "dist").glob("nodeagent-*.tar.gz")
    with tarfile.open(tar) as archive:
        # The 3.11.2 of Debian 12 has none.
        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
        archive.extractall(top / "tree")
    return Package(SOURCE, top / "dist", tar, top / "dist" / "nodeagent.raw", top / "tree")


def binaries(package: Package) -> Iterator[tuple[Path, ELFFile]]:
    for path in package.tree.rglob("*"):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            with path.open("rb") as file:
                yield path, ELFFile(file)


@pytest.fixture
def tree() -> Path:
    """The tree of the compilers. None is made here."""
    if os.geteuid() != 0:
        cannot("the sandbox of the compilers needs root (mount, chroot)")
    if (scripts := str(SOURCE / "packaging")) not in sys.path:
        sys.path.append(scripts)
    from bundle import cache

    found = sorted(cache.root().glob("buildtree-*"))
    return found[-1] if found else cannot("the tree of the compilers is not in the cache: make interpreter")


def test_a_program_of_the_build_ends_with_its_time(tree: Path, tmp_path: Path) -> None:
    from bundle import errors, sandbox

    sandbox.give(tmp_path)
    begun = time.monotonic()
    with pytest.raises(errors.BuildError, match="longer than 3 s"):
        sandbox.run(tree, tmp_path, ["sleep", "100"], 3.0)
    assert time.monotonic() - begun < 50, "the program was waited for"


def test_a_program_of_the_build_has_one_folder_and_no_network(tree: Path, tmp_path: Path) -> None:
    from bundle import sandbox

    sandbox.give(tmp_path)
    script = """
id -u && id -G
for folder in /usr /etc /root /dev /proc/sys; do touch "$folder/new" 2>/dev/null && echo "wrote to $folder"; done
tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
ls -d /proc/[0-9]* | wc -l
"""
    sandbox.run(tree, tmp_path, ["bash", "-c", f"{{ {script} }} >/srv/answer"], 60.0)
    user, groups, interface, processes = (tmp_path / "answer").read_text().split()
    assert (user, groups, interface) == ("65534", "65534", "lo")
    # Those of the sandbox.
    assert int(processes) < 10


def test_the_package_names_its_sources(host: BareHost, package: Package) -> None:
    done = host.run("/usr/bin/nodeagent", "version", "--verbose", "--json")
    shown = json.loads(done.stdout)
    assert shown["interpreter"] == "source"
    listed = {each["name"]: each for each in shown["components"]}
    locked = tomllib.loads((SOURCE / "packaging/interpreter.toml").read_text())["source"]["packages"]
    for name, each in locked.items():
        assert listed[name]["version"] == each["upstream"], name
        assert listed[name]["origin"].startswith(f"pkg:deb/debian/{each['package']}@"), name
    document = json.loads((package.out / "sbom.cdx.json").read_text())
    entries = {each["name"]: each for each in document["components"]}
    for name, each in locked.items():
        hashes = {h["content"] for ref in entries[name]["externalReferences"] for h in ref["hashes"]}
        assert hashes == set(each["files"].values()), name
        assert (package.tree / "usr/share/licenses/nodeagent" / name / "LICENSE").stat().st_size > 100, name
    assert "built from Debian's source packages" in host.run("/usr/bin/nodeagent", "version", "--verbose").stdout


def test_the_libraries_work(host: BareHost) -> None:
    answer = host.python(
        "import contextlib, ctypes, decimal, hashlib, sqlite3, ssl, sys, xml.parsers.expat, zlib, yaml\n"
        "assert ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)() == 7\n"
        "assert decimal.Decimal('0.1') + decimal.Decimal('0.2') == decimal.Decimal('0.3')\n"
        "assert decimal.HAVE_CONTEXTVAR and decimal.__libmpdec_version__\n"
        "assert hashlib.sha256(b'').hexdigest().startswith('e3b0c442')\n"
        "with contextlib.closing(sqlite3.connect(':memory:')) as database:\n"
        "    assert database.execute('pragma synchronous').fetchone() == (2,)\n"
        "assert sqlite3.threadsafety == 3\n"
        "context = ssl.create_default_context()\n"
        "assert context.minimum_version == ssl.TLSVersion.TLSv1_2 and ssl.HAS_TLSv1_3 and not ssl.HAS_SSLv3\n"
        "assert zlib.decompress(zlib.compress(b'a' * 999)) == b'a' * 999\n"
        "assert yaml.load('a: 1', yaml.CSafeLoader) == {'a': 1}\n"
        "assert sys.prefix == '/usr/lib/nodeagent'\n"
        "paths = ssl.get_default_verify_paths()\n"
        "print(paths.openssl_cafile, paths.openssl_capath, sep='\\n')"
    )
    assert answer.split() == ["/etc/pki/tls/cert.pem", "/etc/ssl/certs"]


def test_binaries_are_hardened_and_need_only_an_old_glibc(package: Package) -> None:
    bound = tuple(map(int, tomllib.loads((SOURCE / "packaging/interpreter.toml").read_text())["glibc"].split(".")))
    found = 0
    for path, elf in binaries(package):
        own = "site-packages" not in path.parts
        found += own
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection), path
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        assert {name for name in needed if not name.startswith("ld-linux-")} <= LIBC, path
        assert not own or not list(dynamic.iter_tags("DT_RPATH")) + list(dynamic.iter_tags("DT_RUNPATH")), path
        needs = elf.get_section_by_name(".gnu.version_r")
        assert isinstance(needs, GNUVerNeedSection), path
        versions = [version.name for _need, listed in needs.iter_versions() for version in listed]
        wanted = [tuple(map(int, each[6:].split("."))) for each in versions if re.fullmatch(r"GLIBC_[0-9.]+", each)]
        assert max(wanted, default=(2,)) <= bound, path
        if own:
            assert elf.header.e_type == "ET_DYN", f"{path} is loaded at a fixed address"
            kinds = {segment.header.p_type for segment in elf.iter_segments()}
            assert "PT_GNU_RELRO" in kinds, path
            assert list(dynamic.iter_tags("DT_FLAGS_1")), f"{path} is not bound at its start"
            stack = next(each for each in elf.iter_segments() if each.header.p_type == "PT_GNU_STACK")
            assert not stack.header.p_flags & 1, f"{path} has an executable stack"
    assert found >= 6


def test_no_folder_of_the_build_is_left_in_any_file(package: Package) -> None:
    for path in (package.tree / HOME).rglob("*"):
        if path.is_file() and "site-packages" not in path.parts:
            content = path.read_bytes()
            found = [each for each in (b"/srv/out", b"/srv/python", b"/srv/static", b"/srv/openssl") if each in content]
            assert not found, path


def test_the_tree_is_within_its_size(package: Package) -> None:
    assert sum(path.stat().st_size for path in package.tree.rglob("*") if path.is_file()) <= 50_000_000
    assert package.tar.stat().st_size <= 17_000_000
