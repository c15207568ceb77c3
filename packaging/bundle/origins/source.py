# SPDX-License-Identifier: Apache-2.0
"""The interpreter of Debian's source packages, built here: what releases have.

Which of Debian's files, and their sha256, is in interpreter.toml; packaging/interpreter/build.sh has the commands. What
was built is in the cache, under the hash of all that it depends on.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from bundle import cache, debian, sandbox, tools
from bundle.errors import BuildError
from bundle.lock import InterpreterLock, SourceLock
from bundle.origins.base import HOME, Files, Part, Wanted

RECIPE = Path(__file__).parents[2] / "interpreter" / "build.sh"
TIMEOUT = 3600.0  # seconds for all of it, on two cores that do other work
KIND = "built"  # of directories in the cache
KEPT = 2  # interpreters
KEPT_SOURCES = 14  # two versions of each
# Libraries first: Python is linked with them.
ORDER = ("zlib", "expat", "libffi", "mpdecimal", "sqlite", "openssl", "python")
COMPILER = "compiler"  # the versions of the programs that built it


def files(lock: InterpreterLock, wanted: Wanted) -> Files:
    top = build(lock)
    for path in sorted(top.rglob("*")):
        place = PurePosixPath(path.relative_to(top))
        if path.is_file() and str(place) != COMPILER and wanted(place):
            yield place, path.read_bytes()


def parts(lock: InterpreterLock) -> list[Part]:
    found = []
    for name, each in _details(lock).packages.items():
        purl = f"pkg:deb/debian/{quote(each.package)}@{quote(each.version)}?arch=source"
        found.append(Part(name, each.upstream, purl, tuple(each.files.values())))
    return found


def build(lock: InterpreterLock) -> Path:
    """Return the cached directory with the interpreter and its licences. It must not be changed. Raises BuildError."""
    found = cache.directory(KIND, key(lock), lambda to: make(lock, to, len(os.sched_getaffinity(0))))
    cache.bound(KIND, KEPT)
    return found


def built(lock: InterpreterLock) -> bool:
    """Return whether the interpreter is in the cache."""
    return (cache.root() / f"{KIND}-{key(lock)}").is_dir()


def key(lock: InterpreterLock) -> str:
    """Return a name for all that the result depends on."""
    return cache.digest([lock.text, lock.machine, HOME, RECIPE.read_bytes(), sandbox.ENTER, *sandbox.PACKAGES])


def make(lock: InterpreterLock, target: Path, jobs: int) -> None:
    """Build the interpreter into the empty directory `target`."""
    begun, details = time.monotonic(), _details(lock)
    tree = sandbox.tree(details.tree)
    work = target / "work"
    for name, fetched in debian.fetch_sources(details.packages, details.suites).items():
        shutil.copytree(fetched, work / "sources" / name)
    cache.bound("debian", KEPT_SOURCES)
    shutil.copyfile(RECIPE, work / RECIPE.name)
    work.chmod(0o755)
    sandbox.give(work)
    for name in ORDER:
        tools.log(f"building {name} {details.packages[name].version}")
        argv = ["bash", f"{sandbox.WORK}/{RECIPE.name}", lock.machine, str(jobs), HOME, name]
        sandbox.run(tree, work, argv, max(1.0, TIMEOUT - (time.monotonic() - begun)))
    _take(work / "out", target)
    shutil.rmtree(work)
    tools.log(f"the interpreter was built in {time.monotonic() - begun:.0f} s")


def _take(out: Path, target: Path) -> None:
    """Move regular files and folders out of the reach of the programs that made them."""
    for path in sorted(out.rglob("*")):
        place = target / path.relative_to(out)
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise BuildError(f"the build made {path.name}, which is neither a file nor a folder")
        if path.is_dir():
            place.mkdir()
        else:
            shutil.copyfile(path, place)


def compare(first: Path, second: Path) -> list[str]:
    """Return the names of the files that differ, or that only one of two built interpreters has."""
    found = [{str(path.relative_to(top)): path for path in top.rglob("*") if path.is_file()} for top in (first, second)]
    one, other = found
    return sorted(
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or one[name].read_bytes() != other[name].read_bytes()
    )


def _details(lock: InterpreterLock) -> SourceLock:
    if not isinstance(lock.details, SourceLock):
        raise TypeError("this is the lock of another origin")
    return lock.details
