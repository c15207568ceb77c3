# SPDX-License-Identifier: Apache-2.0
"""The image layer: by the Containerfile and by `make image` it is the same, and skopeo takes the archive."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.package import provisioning
from integration.package.conftest import SOURCE, Package, cannot
from integration.trees.toolbox import scratch

pytestmark = pytest.mark.long

TIMEOUT = 300.0  # seconds
PAGE = SOURCE / "docs/usage/install-image.md"
VERSION_LABEL = "org.nodeagent.version"
LINK = "usr/lib/systemd/system/multi-user.target.wants/nodeagent.service"
# What the Containerfile runs, and what these need.
OF_THE_BASE = ("usr/bin/dash", "usr/bin/mkdir", "usr/bin/ln")
# As root of a container, this machine may have lower limits than buildah sets by default.
ULIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
HOME = "https://github.com/nodeagent/nodeagent"
LABELS = {"ostree.bootable": "true", "org.opencontainers.image.version": "42"}
# The builder of the package in a process of its own: a base of a few files, and images from the tar.
PROGRAM = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import build_image
from bundle import oci
tar, out, base, files = (Path(each) for each in sys.argv[2:6])
labels = dict(each.split("=") for each in sys.argv[6:])
machine = tar.name.split("-")[2]
with tempfile.TemporaryDirectory() as scratch:
    oci.write(oci.Image(files, machine, labels, "base", 0), base, Path(scratch))
build_image.build(tar, out)
build_image.build(tar, out, base)
"""


class Built(NamedTuple):
    directory: Path
    base: Path
    alone: Path
    on_base: Path
    version: str


@pytest.fixture(scope="module")
def tools() -> Iterator[Path]:
    image = provisioning.tools()
    with scratch(image) as root:
        yield root
    image.close()


@pytest.fixture(scope="module")
def built(package: Package, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    directory = tmp_path_factory.mktemp("image")
    files = directory / "base.tar"
    with tarfile.open(files, "w") as archive:
        for name in ("bin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
        libraries: set[str] = set()
        for program in (*OF_THE_BASE, "usr/lib/x86_64-linux-gnu/libm.so.6"):
            listed = subprocess.run(
                ["chroot", tools, "/lib64/ld-linux-x86-64.so.2", "--list", f"/{program}"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            libraries |= set(re.findall(r"(/\S+) \(", listed))
        for name in (*OF_THE_BASE, *(f"usr/{each.lstrip('/').removeprefix('usr/')}" for each in sorted(libraries))):
            archive.add((tools / name).resolve(), name)
        for name in ("libm.so.6", "libpthread.so.0", "libdl.so.2"):
            archive.add(tools / "usr/lib/x86_64-linux-gnu" / name, f"usr/lib/x86_64-linux-gnu/{name}")
        shell = tarfile.TarInfo("usr/bin/sh")
        shell.type, shell.linkname = tarfile.SYMTYPE, "dash"
        archive.addfile(shell)
    base = directory / "base.oci.tar"
    write(package, directory, base, files)
    name = f"{package.version}-{package.machine}-testing.oci.tar"
    version = f"{package.version}-testing"
    return Built(directory, base, directory / f"nodeagent-{name}", directory / f"nodeagent-os-{name}", version)


def write(package: Package, directory: Path, base: Path, files: Path) -> None:
    argv: list[str | Path] = [sys.executable, "-c", PROGRAM, SOURCE / "packaging", package.tar, directory, base, files]
    argv += [f"{key}={value}" for key, value in LABELS.items()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if "missing: " in done.stderr:
        cannot(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def entries(archive: Path) -> dict[str, tuple[object, ...]]:
    """Return kind, mode, owner and content of every entry of an image, with its layers laid over each other."""
    found: dict[str, tuple[object, ...]] = {}
    with tarfile.open(archive) as image:

        def document(name: str) -> dict[str, list[dict[str, str]]]:
            file = image.extractfile(name)
            assert file is not None
            loaded: dict[str, list[dict[str, str]]] = json.load(file)
            return loaded

        (manifest,) = document("index.json")["manifests"]
        for layer in document(f"blobs/sha256/{manifest['digest'][7:]}")["layers"]:
            with tarfile.open(fileobj=image.extractfile(f"blobs/sha256/{layer['digest'][7:]}")) as members:
                for member in members:
                    file = members.extractfile(member) if member.isreg() else None
                    content = hashlib.sha256(file.read()).hexdigest() if file else member.linkname
                    name = member.name.rstrip("/")
                    found[name] = (member.type, oct(member.mode & 0o7777), member.uid, member.gid, content)
    return found


def inspect(tools: Path, archive: Path) -> dict[str, object]:
    argv = ["skopeo", "inspect", f"oci-archive:{archive}"]
    answer: dict[str, object] = json.loads(provisioning.box(tools, archive.parent).said(*argv))
    return answer


def test_the_archives_are_valid_and_only_in_usr(package: Package, tools: Path, built: Built, tmp_path: Path) -> None:
    alone, on_base = inspect(tools, built.alone), inspect(tools, built.on_base)
    assert alone["Labels"] == {
        VERSION_LABEL: built.version,
        "org.opencontainers.image.title": "nodeagent",
        "org.opencontainers.image.version": built.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.url": HOME,
        "org.opencontainers.image.source": HOME,
        "org.opencontainers.image.documentation": f"{HOME}/tree/main/docs",
    }
    assert on_base["Labels"] == {**LABELS, VERSION_LABEL: built.version}
    found = entries(built.alone)
    assert all(name == "usr" or name.startswith("usr/") for name in found)
    assert all((uid, gid) == (0, 0) for _kind, _mode, uid, gid, _content in found.values())
    assert found[LINK][-1] == "../nodeagent.service"
    manifest = (package.tree / "usr/lib/nodeagent/manifest").read_text().splitlines()
    directories = {name for name, about in found.items() if about[0] == tarfile.DIRTYPE}
    assert found.keys() - directories == {*manifest, LINK}
    # Twice the same bytes.
    write(package, tmp_path, tmp_path / "base.oci.tar", built.directory / "base.tar")
    for path in (built.alone, built.on_base):
        # A plain yes or no: pytest takes minutes to show where such bytes differ.
        again = (tmp_path / path.name).read_bytes() == path.read_bytes()
        assert again, f"{path.name} has other bytes"


def damaged(archive: Path, target: Path, *, largest: bool) -> Path:
    """Write a copy of an archive in which the layer, or a document, has another content."""
    with tarfile.open(archive) as source, tarfile.open(target, "w") as copy:
        files = [member for member in source if member.isreg() and "sha256" in member.name]
        files.sort(key=lambda member: member.size)
        bad = files[-1 if largest else 0].name
        for member in source:
            content = source.extractfile(member) if member.isreg() else None
            if content is not None and member.name == bad:
                content = io.BytesIO(bytes([content.read(1)[0] ^ 1]) + content.read())
            copy.addfile(member, content)
    return target


REFUSED = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bundle import errors, oci
for base in sys.argv[4:]:
    with tempfile.TemporaryDirectory() as scratch:
        image = oci.Image(Path(sys.argv[2]), sys.argv[3], {}, "tag", 0)
        try:
            oci.write(image, Path(scratch, "target"), Path(scratch), Path(base))
        except errors.BuildError as error:
            print(str(error).splitlines()[-1])
"""


def test_a_base_that_is_damaged_or_for_another_machine_is_refused(
    package: Package, built: Built, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("no tar")
    bases = [damaged(built.base, tmp_path / str(largest), largest=largest) for largest in (True, False)]
    argv: list[str | Path] = [sys.executable, "-c", REFUSED, SOURCE / "packaging", built.directory / "base.tar"]

    def refused(machine: str, *paths: Path) -> list[str]:
        called: list[str | Path] = [*argv, machine, *paths]
        done = subprocess.run(called, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        return done.stdout.splitlines()

    assert len(refused(package.machine, *bases, text, tmp_path / "absent")) == 4
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[package.machine]
    (message,) = refused(other, built.base)
    assert re.fullmatch(r"base\.oci\.tar is an image for \w+, not for \w+", message)
    assert refused(package.machine, built.base) == []


def test_the_containerfile_makes_the_same_image(package: Package, tools: Path, built: Built) -> None:
    """The command of the page by buildah, which podman uses, on the same base."""
    page = PAGE.read_text()
    found = re.search(r"^ +podman build (.*)$", page, re.MULTILINE)
    assert found is not None
    released = built.on_base.name.replace("-testing", "")
    assert all(command in page for command in ("make image BASE=fcos.oci.tar", released))
    dist = built.directory / "dist"
    dist.mkdir()
    shutil.copy(package.tar, dist / package.tar.name.replace("-testing", ""))
    shutil.copy(SOURCE / "packaging/Containerfile", built.directory)
    arguments = found[1].replace("packaging/Containerfile", f"{built.directory}/Containerfile").split()
    arguments = [
        {"dist": str(dist), "BASE=quay.io/fedora/fedora-coreos@sha256:DIGEST": "BASE=localhost/base"}.get(each, each)
        for each in arguments
    ]
    assert f"VERSION={package.version}" in arguments
    arguments[arguments.index("--tag") + 1] = "localhost/os"
    box = provisioning.box(tools, built.directory, Path("/dev"))
    store = [f"--root={built.directory}/store", f"--runroot={built.directory}/run", "--storage-driver=vfs"]
    storage = f"containers-storage:[vfs@{built.directory}/store+{built.directory}/run]"
    made = built.directory / "made.oci.tar"
    box.run("skopeo", "copy", "--quiet", f"oci-archive:{built.base}", f"{storage}localhost/base")
    box.run(
        "buildah",
        *store,
        "build",
        "--isolation=chroot",
        "--network=host",
        *ULIMITS,
        "--pull=never",
        "--layers=false",
        *arguments,
    )
    box.run("skopeo", "copy", "--quiet", f"{storage}localhost/os", f"oci-archive:{made}")
    labels = inspect(tools, made)["Labels"]
    assert isinstance(labels, dict)
    assert {key: labels[key] for key in (*LABELS, VERSION_LABEL)} == {**LABELS, VERSION_LABEL: package.version}
    by_engine, by_us = entries(made), entries(built.on_base)
    different = {name for name in by_us.keys() | by_engine.keys() if by_us.get(name) != by_engine.get(name)}
    assert not {name for name in different if name.startswith("usr/")}
