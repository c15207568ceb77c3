# SPDX-License-Identifier: Apache-2.0
"""The package as files: reproducible, complete, fit for every host of the bound, and safe to put over an older one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from integration.hosts import requirements
from integration.package.conftest import EPOCH, Package, cannot, run_build
from tests.support.cyclonedx import violations

HOME = "usr/lib/nodeagent"
TOP = {"usr"}
# As `matchpathcon` of Fedora's targeted policy has them; without bin_t an enforcing host refuses to start the agent.
LABELS = {
    "usr": "usr_t",
    "usr/bin/nodeagent": "bin_t",
    f"{HOME}/bin/python3": "bin_t",
    f"{HOME}/manifest": "lib_t",
    "usr/share/licenses": "usr_t",
}
# Of every glibc system; the manylinux policies allow the same ones. Everything else must be in the tree.
GLIBC = re.compile(r"lib(c|m|pthread|dl|rt|util)\.so\.[0-9]+|ld-linux.*")


def sums(folder: Path) -> dict[str, str]:
    names = ("nodeagent.raw", "install.sh", "sbom.cdx.json", *(path.name for path in folder.glob("*.tar.gz")))
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.long
def test_same_sources_give_the_same_bytes(package: Package, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(package.source, tmp_path / "somewhere" / "else", symlinks=True)
    for path in elsewhere.rglob("*"):
        path.chmod(0o700 if path.is_dir() or path.suffix == ".sh" else 0o600)  # another umask
        path.touch()
    run_build(elsewhere, tmp_path / "dist")
    assert sums(tmp_path / "dist") == sums(package.out)


@pytest.mark.long
def test_what_a_killed_build_left_is_removed_and_nothing_else(package: Package, tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(package.source / "packaging")!r})
import build, pathlib
with build.scratch_folder(pathlib.Path(sys.argv[1])) as scratch:
    print(scratch.name, flush=True)
    sys.stdin.read()
"""
    argv = [sys.executable, "-c", program, str(tmp_path)]
    with (
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive,
    ):
        assert killed.stdout is not None
        assert alive.stdout is not None
        left, other = killed.stdout.readline().strip(), alive.stdout.readline().strip()
        killed.kill()
        killed.wait()
        assert {path.name for path in tmp_path.iterdir()} == {left, other}
        done = subprocess.run(argv, input="", capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() not in ("", left, other)
        assert [path.name for path in tmp_path.iterdir()] == [other]
        alive.communicate("")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_unchanged_sources_are_not_built_again(package: Package) -> None:
    before = package.raw.stat().st_mtime_ns
    assert "nothing changed" in run_build(package.source, package.out)
    assert package.raw.stat().st_mtime_ns == before


def test_checksums_are_listed(package: Package) -> None:
    listed = "".join(f"{value}  {name}\n" for name, value in sorted(sums(package.out).items()))
    assert (package.out / "SHA256SUMS").read_text() == listed


def test_members_are_plain_owned_by_root_and_below_usr(package: Package) -> None:
    with tarfile.open(package.tar) as archive:
        members = archive.getmembers()
    assert {member.name.split("/")[0] for member in members} == TOP
    for member in members:
        assert member.isreg() or member.isdir() or member.issym(), member.name
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "root", "root"), member.name
        assert member.mtime == EPOCH, member.name
        assert ".." not in member.name.split("/"), member.name
        if not member.issym():
            assert member.mode == (0o755 if member.isdir() or member.mode & stat.S_IXUSR else 0o644), member.name
    assert [member.name for member in members] == sorted(member.name for member in members)
    programs = [member.name for member in members if member.isreg() and member.mode & stat.S_IXUSR]
    assert programs == ["usr/bin/nodeagent", f"{HOME}/bin/python3"]


def test_holds_everything_of_the_systemd_tree(package: Package) -> None:
    top = package.source / "systemd"
    for path in (path for path in top.rglob("*") if path.is_file()):
        assert (package.tree / path.relative_to(top)).read_bytes() == path.read_bytes()
    assert {path.name for path in top.iterdir()} <= TOP


def test_holds_the_cockpit_page(package: Package) -> None:
    found = {path.name: path.read_bytes() for path in (package.tree / "usr/share/cockpit/nodeagent").iterdir()}
    assert found == {path.name: path.read_bytes() for path in (package.source / "packaging/cockpit").iterdir()}


def test_no_folder_of_a_build_machine_is_left_in_any_file(package: Package) -> None:
    folders = [str(package.source.parent), str(Path.home() / ".cache"), "/home/runner", "/opt/python/"]
    for path in package.tree.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [folder for folder in folders if folder.encode() in content], path


def test_binaries_need_no_newer_glibc_than_the_bound_and_no_library_of_the_host(package: Package) -> None:
    if without := requirements.missing("objdump"):
        cannot(without)
    lock = tomllib.loads((package.source / "packaging" / "interpreter.toml").read_text())
    bound = tuple(map(int, lock["glibc"].split(".")))
    binaries = [path for path in package.tree.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert len(binaries) > 30
    shipped = {path.name for path in binaries}
    for path in binaries:
        headers = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        # Of the version references only: our libsqlite3 would define none, and others define their own.
        wanted = {tuple(map(int, each.split("."))) for each in re.findall(r"\bGLIBC_(2[0-9.]+)", headers)}
        assert max(wanted, default=(2,)) <= bound, path
        needed = set(re.findall(r"NEEDED\s+(\S+)", headers))
        assert {name for name in needed if not GLIBC.fullmatch(name)} <= shipped, path


def test_the_tree_is_small_and_has_no_debug_information(package: Package) -> None:
    assert sum(path.stat().st_size for path in package.tree.rglob("*") if path.is_file()) <= 55_000_000
    # That of users has a smaller interpreter, and its bound in test_source_interpreter.py.
    assert package.tar.stat().st_size <= 19_000_000
    for path in (path for path in package.tree.rglob("*.so*") if path.is_file()):
        with path.open("rb") as file:
            assert not ELFFile(file).has_dwarf_info(strict=True), path


def test_every_component_is_listed_with_its_licence_text(package: Package) -> None:
    document = json.loads((package.out / "sbom.cdx.json").read_text())
    assert violations(json.dumps(document).encode()) == []
    listed = {each["name"] for each in document["components"]}
    packages = {path.name.split("-")[0].lower().replace("_", "-") for path in package.tree.rglob("*.dist-info")}
    assert listed == packages | {
        "python",
        "openssl",
        "sqlite",
        "zlib",
        "expat",
        "mpdecimal",
        "libyaml",
        "libffi",
        "llhttp",
    }
    references = [each["bom-ref"] for each in document["components"]]
    assert len(set(references)) == len(references)
    assert document["dependencies"][0]["dependsOn"] == references
    licenses = package.tree / "usr/share/licenses/nodeagent"
    assert {path.name for path in licenses.iterdir() if path.is_dir()} == listed


def test_every_module_has_bytecode_that_is_never_compared_with_its_source(package: Package) -> None:
    sources = list((package.tree / HOME).rglob("*.py"))
    assert len(sources) > 500
    for path in sources:
        (compiled,) = (path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")
        assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", path  # PEP 552: hash-based, unchecked


def test_bytecode_names_the_files_of_the_host(package: Package) -> None:
    (compiled,) = (package.tree / HOME).rglob("nodeagent/__pycache__/errors.cpython-*.pyc")
    assert f"/{compiled.relative_to(package.tree).parent.parent}/errors.py".encode() in compiled.read_bytes()


def test_an_upgrade_leaves_no_file_of_the_old_version(package: Package, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin").chmod(0o711)
    (root / "usr" / "bin" / "theirs").write_text("kept")
    install = [package.out / "install.sh", package.tar, root]
    subprocess.run(install, check=True)
    manifest = root / HOME / "manifest"
    ours = set(manifest.read_text().splitlines())
    for gone in (f"{HOME}/lib/gone/__pycache__/old.pyc", "usr/lib/systemd/system/gone.service"):
        (root / gone).parent.mkdir(parents=True, exist_ok=True)
        (root / gone).write_text("of an older version")
        manifest.write_text(manifest.read_text() + f"{gone}\n")
    subprocess.run(install, check=True)
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}
    assert found == ours | {"usr/bin/theirs"}
    assert not (root / HOME / "lib" / "gone").exists()
    assert stat.S_IMODE((root / "usr" / "bin").stat().st_mode) == 0o711


def test_the_image_is_a_system_extension_with_the_content_of_the_tar(package: Package, tmp_path: Path) -> None:
    if without := requirements.missing("unsquashfs"):
        cannot(without)
    root = tmp_path / "root"
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", root, package.raw], check=True)
    release = root / "usr/lib/extension-release.d/extension-release.nodeagent"
    fields = dict(line.split("=", 1) for line in release.read_text().splitlines())
    assert fields["ID"] == "_any"  # of the system extension specification: any distribution
    assert fields["ARCHITECTURE"] == {"x86_64": "x86-64", "aarch64": "arm64"}[package.machine]
    assert not {"VERSION_ID", "SYSEXT_LEVEL"} & set(fields)  # either would bind the image to one release of a host
    assert {path.name for path in root.iterdir()} == TOP  # /etc and /var of an extension are not merged
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert int(root.stat().st_mtime) == EPOCH
    if os.geteuid() == 0:  # unsquashfs sets labels for root only
        for name, label in LABELS.items():
            found = os.getxattr(root / name, "security.selinux").rstrip(b"\0")
            assert found.decode() == f"system_u:object_r:{label}:s0", name
    release.unlink()
    release.parent.rmdir()
    start = root / "usr/lib/systemd/system/systemd-sysext.service.d/10-nodeagent.conf"  # an extension alone needs it
    start.unlink()
    start.parent.rmdir()
    assert _content(root) == _content(package.tree)


def test_the_tar_carries_no_name_or_time_of_its_making(package: Package) -> None:
    header = package.tar.read_bytes()[:10]
    assert header[3] == 0, "gzip header has optional fields"
    assert int.from_bytes(header[4:8], "little") == EPOCH


@pytest.mark.skipif(not (Path(__file__).parents[2] / "README.md").exists(), reason="the sources have no README yet")
def test_the_wheel_has_the_package_and_its_entry_point(package: Package, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path, package.source], check=True)
    (wheel,) = tmp_path.glob("nodeagent-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        listed = archive.namelist()
        (entry,) = (archive.read(name).decode() for name in listed if name.endswith("/entry_points.txt"))
    assert "nodeagent = nodeagent.cli.main:entry" in entry.splitlines()
    assert {"nodeagent/__main__.py", "nodeagent/py.typed"} <= set(listed)
    assert not [name for name in listed if name.startswith(("tests/", "integration/", "packaging/"))]


def _content(root: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.lstat().st_mode),
            str(path.readlink()) if path.is_symlink() else _hash(path),
        )
        for path in root.rglob("*")
    }


def _hash(path: Path) -> str:
    return "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
