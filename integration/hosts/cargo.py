# SPDX-License-Identifier: Apache-2.0
"""Real programs of hosts that only the registry of Rust crates has, each built once by cargo into a cache.

No test begins a build: it takes minutes of a core. A program is known in the cache by what decides the result, and
cargo verifies each crate by a lock file.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from integration.hosts import overlay, process, requirements
from integration.hosts.container.image import cache_directory, digest
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.requirements import Say

TIMEOUT: Final = 3600.0
# Link-time optimization doubles the time, and the symbols of bootupd take 80 MB.
BUILD_ENV: Final = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_STRIP": "symbols"}
KEPT: Final = 3  # builds of one program, for other checkouts


@dataclass(frozen=True, slots=True)
class Program:
    """One program: where its source is, and what to report where it is missing."""

    name: str  # of the file, of `make NAME`, and of the directory in the cache
    version: str
    source: tuple[str, ...]  # arguments of `cargo install`
    content: bytes  # of the source and its lock file, as far as the version does not decide it
    takes: str  # how long a build takes
    tools: tuple[str, ...]  # of packaging/tools.txt
    rust: str  # the first version that builds it

    def find(self) -> Path:
        """Raises Unavailable with how to get it."""
        path = self._directory() / "bin" / self.name
        if not path.is_file():
            how = f"`make {self.name}` builds it ({self.takes}, once)"
            raise Unavailable(f"no {self.name} {self.version} in {path.parent}; {how}")
        return path

    def build(self, say: Say) -> Path:
        """Return the program of `find`, and build it if it is missing. Raises Unavailable where it cannot be built."""
        target = self._directory()
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                self._compile(target, say)
            os.utime(target)
            _prune(target.parent)
        return self.find()

    def main(self) -> None:
        """Fill the cache, and print how long that took and the path."""
        try:
            print(self.build(print))
        except Unavailable as error:
            raise SystemExit(f"{self.name}: {error}") from None

    def _directory(self) -> Path:
        settings = (f"{name}={value}" for name, value in sorted(BUILD_ENV.items()))
        about = (self.version, platform.machine(), *settings)
        return cache_directory().with_name(self.name) / digest(self.content, *(text.encode() for text in about))

    def _compile(self, target: Path, say: Say) -> None:
        requirements.install(say, *self.tools)
        unfinished = target.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        say(f"building {self.name} {self.version}: {self.takes}, once")
        started = time.monotonic()
        install = ["install", *self.source, "--locked", "--jobs", "1", "--root", str(unfinished)]
        try:
            process.run(
                ["nice", "-n", "19", "cargo", *install],
                timeout=TIMEOUT,
                env={**os.environ, **BUILD_ENV, "CARGO_TARGET_DIR": str(unfinished / "target")},
            )
        except CommandFailed as error:
            about = f"{self.name} {self.version} cannot be built, which needs Rust {self.rust}"
            raise Unavailable(f"{about}: {error}") from None
        shutil.rmtree(unfinished / "target")
        unfinished.rename(target)
        say(f"built in {(time.monotonic() - started) / 60:.1f} minutes")


def _prune(directory: Path) -> None:
    """Remove all builds but the newest few."""
    builds = sorted((path for path in directory.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in builds[:-KEPT]:
        overlay.remove_tree(path)
