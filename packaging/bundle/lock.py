# SPDX-License-Identifier: Apache-2.0
"""Read `packaging/interpreter.toml`, the origins of the interpreter and its libraries."""

from __future__ import annotations

import json
import platform
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle.errors import BuildError

SOURCE, STANDALONE, TESTING = "source", "standalone", "testing"
# Those that users may get.
RELEASED = (SOURCE, STANDALONE)
ORIGINS = (*RELEASED, TESTING)


@dataclass(frozen=True, slots=True)
class Cpython:
    """A relocatable CPython inside a Maven artifact, under the folder `root` of its archive.

    `prefix` is the folder that it was built for. `rebind` has, by symbol, its version and the one to use.
    """

    maven: str
    sha256: str
    root: str
    prefix: str
    rebind: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library `file` inside a wheel, shipped under the name `soname` that CPython's modules require.

    `drop` are libraries that it is linked to and does not use.
    """

    pypi: str
    sha256: str
    file: str
    soname: str
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TestingLock:
    cpython: Cpython
    libraries: dict[str, Library]


@dataclass(frozen=True, slots=True)
class StandaloneLock:
    """A file of python-build-standalone, below the address of its releases."""

    archive: str
    sha256: str


@dataclass(frozen=True, slots=True)
class SourcePackage:
    """A source package of Debian. `files` has the sha256 of each of its files."""

    package: str
    version: str
    upstream: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class SourceLock:
    """The packages by component, the suites of Debian that list them, and the suite of the tree to build in."""

    packages: dict[str, SourcePackage]
    suites: tuple[str, ...]
    tree: str


Details = TestingLock | StandaloneLock | SourceLock


@dataclass(frozen=True, slots=True)
class InterpreterLock:
    """The part of one origin and one architecture. `text` has all of it, for keys of the cache."""

    text: str
    machine: str
    origin: str
    python: str
    glibc: str
    wheels: str
    details: Details

    @property
    def short(self) -> str:
        """Return a version such as 3.14, as in the names of the executable and of the standard library."""
        return ".".join(self.python.split(".")[:2])


def load(path: Path, machine: str = platform.machine(), origin: str = SOURCE) -> InterpreterLock:
    """Return the part for `machine`, named as by uname. Raises BuildError if there is none."""
    whole: dict[str, Any] = tomllib.loads(path.read_text())
    common: dict[str, Any] = whole[origin]
    if machine not in common:
        others = [name for name in RELEASED if machine in whole[name]]
        remedy = f"; --interpreter {' or '.join(others)} has one" if others else ""
        raise BuildError(f"{path.name} locks no interpreter of the origin {origin} for {machine}{remedy}")
    part: dict[str, Any] = common[machine]
    shared = {key: value for key, value in common.items() if key not in ("x86_64", "aarch64")}
    return InterpreterLock(
        text=json.dumps([whole["glibc"], shared, part], sort_keys=True),
        machine=machine,
        origin=origin,
        python=common["python"],
        glibc=whole["glibc"],
        wheels=part["wheels"],
        details=_details(origin, common, part),
    )


def _details(origin: str, common: dict[str, Any], part: dict[str, Any]) -> Details:
    if origin == SOURCE:
        packages = {name: SourcePackage(**each) for name, each in common["packages"].items()}
        return SourceLock(packages, tuple(common["suites"]), common["tree"])
    if origin == TESTING:
        libraries = {name: Library(**part[name]) for name in ("sqlite", "zlib")}
        return TestingLock(Cpython(**part["cpython"]), libraries)
    return StandaloneLock(part["archive"], part["sha256"])
