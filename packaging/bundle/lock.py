"""Read `packaging/interpreter.toml`, the sources of the interpreter and its libraries."""

from __future__ import annotations

import platform
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle.errors import BuildError


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
class InterpreterLock:
    """The section of one architecture. `text` is the whole file, for keys of the cache."""

    text: str
    machine: str
    python: str
    glibc: str
    wheels: str
    cpython: Cpython
    libraries: tuple[Library, ...]

    @property
    def short(self) -> str:
        """Return a version such as 3.14, as in the names of the executable and of the standard library."""
        return ".".join(self.python.split(".")[:2])


def load(path: Path, machine: str = platform.machine()) -> InterpreterLock:
    """Return the section for `machine`, named as by uname. Raises BuildError if there is none."""
    text = path.read_text()
    whole: dict[str, Any] = tomllib.loads(text)
    if machine not in whole:
        raise BuildError(f"{path.name} locks no interpreter for {machine}")
    part: dict[str, Any] = whole[machine]
    return InterpreterLock(
        text=text,
        machine=machine,
        python=whole["python"],
        glibc=whole["glibc"],
        wheels=part["wheels"],
        cpython=Cpython(**part["cpython"]),
        libraries=tuple(Library(**part[name]) for name in ("sqlite", "zlib")),
    )
