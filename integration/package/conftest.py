# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the package ring: the package built for real, from a copy of the sources as they are now.

A copy, because others may edit the sources between two builds that have to be equal. What a machine cannot do is
skipped with the reason; with CI set in the environment that is a failure.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from integration.hosts.container.container_host import Host
from integration.hosts.container.image import base_image, cache_directory
from integration.hosts.errors import Unavailable

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent
INPUTS = ("nodeagent", "systemd", "packaging", "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "uv.lock")
EPOCH = 1_700_000_000
BUILD_TIMEOUT = 1200.0  # seconds; the first build on a machine fetches 150 MB
IMPORT_ALL = """
import importlib, nodeagent, pkgutil
modules = [module.name for module in pkgutil.walk_packages(nodeagent.__path__, "nodeagent.")]
for name in modules:
    if not name.endswith("__main__"):
        importlib.import_module(name)
from nodeagent.kube import _import
_import.load()
"""


class Package(NamedTuple):
    source: Path  # the copy that it was built from
    out: Path
    tar: Path
    raw: Path
    tree: Path  # the tar, unpacked

    @property
    def version(self) -> str:
        return self.tar.name.split("-")[1]

    @property
    def machine(self) -> str:
        return self.tar.name.removesuffix(".tar.gz").split("-")[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.package)
            item.add_marker(pytest.mark.timeout(BUILD_TIMEOUT))


def cached(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return a directory of the cache of package parts. ``make`` fills a new one."""
    # The build runs as a script, so its modules are found from its own folder.
    if (scripts := str(Path(__file__).parents[2] / "packaging")) not in sys.path:
        sys.path.append(scripts)
    from bundle import cache

    return cache.directory(kind, key, make)


def cannot(reason: str) -> NoReturn:
    """Skip with the reason, or fail where a skip would hide that nothing was proven."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def host() -> Iterator[Host]:
    """A host without nodeagent, not booted."""
    try:
        image = base_image(print)
    except Unavailable as error:
        cannot(f"hosts cannot be booted here: {error}")
    with Host(image) as host:
        yield host
    image.close()


def copy_sources(target: Path) -> Path:
    target.mkdir(parents=True)
    for name in INPUTS:
        if (SOURCE / name).is_dir():
            shutil.copytree(SOURCE / name, target / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        elif (SOURCE / name).exists():
            shutil.copy(SOURCE / name, target / name)
    return target


def run_build(source: Path, out: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, source / "packaging" / "build.py", "--interpreter", "testing", "--out", out],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
        check=False,
    )
    if done.returncode != 0 and "missing: " in done.stderr:
        cannot(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """One build for all workers of a run, shared with the host ring: it is made again when anything changed."""
    built = cache_directory() / "dist"
    built.mkdir(parents=True, exist_ok=True)
    base = tmp_path_factory.getbasetemp()
    base = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "package"
    base.mkdir(exist_ok=True)
    source, out, tree = base / "source", base / "dist", base / "tree"
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tree.exists():
            shutil.rmtree(source, ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)
            copy_sources(source)
            with (built / "lock").open("w") as others:
                fcntl.flock(others, fcntl.LOCK_EX)
                run_build(source, built)
                out.mkdir()
                listed = (built / "SHA256SUMS").read_text().splitlines()
                for name in (*(line.split("  ", 1)[1] for line in listed), "SHA256SUMS", ".inputs"):
                    shutil.copy2(built / name, out)
            with tarfile.open(next(out.glob("nodeagent-*-testing.tar.gz"))) as archive:
                # The 3.11.2 of Debian 12 has none.
                archive.extraction_filter = getattr(tarfile, "tar_filter", None)
                archive.extractall(base / "unpacked")
            (base / "unpacked").rename(tree)
    (tar,) = out.glob("nodeagent-*-testing.tar.gz")
    return Package(source, out, tar, out / "nodeagent.raw", tree)
