# SPDX-License-Identifier: Apache-2.0
"""The interpreter of python-build-standalone, as uv installs it.

The locked uv has the sha256 of each archive, which is also in interpreter.toml, and refuses another one. Machines that
do not reach the publisher can name a mirror of the releases in UV_PYTHON_INSTALL_MIRROR.
"""

from __future__ import annotations

from pathlib import Path

from bundle import cache, tools
from bundle.elf import Elf
from bundle.errors import BuildError
from bundle.lock import InterpreterLock, StandaloneLock
from bundle.origins.base import PYTHON, Files, Part, Wanted, library_of

DOWNLOAD_TIMEOUT = 600.0  # seconds
INSIDE = ("python", "openssl", "sqlite", "zlib", "expat", "libffi", "mpdecimal")
KEPT = 2  # versions


def files(lock: InterpreterLock, wanted: Wanted) -> Files:
    installed = _installed(lock)
    library = library_of(lock)
    program = installed / "bin" / f"python{lock.short}"
    elf = Elf.read(program)
    if elf is None:
        raise BuildError(f"{_name(lock)} has no program for Linux")
    yield PYTHON, bytes(elf.data)
    # Most releases have the library in the program, and a copy of it for programs that embed Python.
    for name in elf.needed():
        if name.startswith("libpython"):
            yield library.parent / name, (installed / "lib" / name).read_bytes()
    for path in sorted((installed / library).rglob("*")):
        place = library / path.relative_to(installed / library)
        if path.is_file() and wanted(place):
            yield place, path.read_bytes()


def parts(lock: InterpreterLock) -> list[Part]:
    if not isinstance(lock.details, StandaloneLock):
        raise TypeError("this is the lock of another origin")
    release, _, name = lock.details.archive.partition("/")
    purl = f"pkg:github/astral-sh/python-build-standalone@{release}#{name.replace('+', '%2B')}"
    return [Part(each, lock.python if each == "python" else "", purl, (lock.details.sha256,)) for each in INSIDE]


def _name(lock: InterpreterLock) -> str:
    return f"cpython-{lock.python}-linux-{lock.machine}-gnu"


def _installed(lock: InterpreterLock) -> Path:
    name = _name(lock)

    def make(target: Path) -> None:
        tools.log(f"fetching {name} of python-build-standalone")
        command: list[str | Path] = [
            tools.uv(),
            "python",
            "install",
            "--no-bin",
            "--no-progress",
            "--install-dir",
            target,
        ]
        tools.run([*command, name], timeout=DOWNLOAD_TIMEOUT)

    found = cache.directory("standalone", cache.digest([name, tools.run([tools.uv(), "--version"], timeout=60)]), make)
    cache.bound("standalone", KEPT)
    installed = found / name
    if not (installed / "bin").is_dir():
        raise BuildError(f"uv did not install {name}")
    return installed
