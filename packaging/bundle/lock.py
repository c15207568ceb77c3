"""`packaging/interpreter.toml`, typed: where the parts of the interpreter come from."""

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

    `prefix` is the folder it was built for; `rebind` gives, by symbol, the version it is bound to and the one to use.
    """

    maven: str
    sha256: str
    root: str
    prefix: str
    rebind: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library `file` inside a wheel, shipped under the name `soname` that CPython's modules ask for.

    `drop` names libraries that it is linked to and uses nothing of.
    """

    pypi: str
    sha256: str
    file: str
    soname: str
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InterpreterLock:
    """One architecture's part of the lock. `text` is the whole file, for keys of the cache."""

    text: str
    machine: str
    python: str
    glibc: str
    wheels: str
    cpython: Cpython
    libraries: tuple[Library, ...]

    @property
    def short(self) -> str:
        """Such as 3.14: names the executable and the folder of the standard library."""
        return ".".join(self.python.split(".")[:2])


def load(path: Path, machine: str = platform.machine()) -> InterpreterLock:
    """The lock for `machine`, in the spelling of uname. Raises BuildError for one that it has no interpreter for."""
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
