# SPDX-License-Identifier: Apache-2.0
"""bootupd itself, built once from the registry of Rust crates.

    python -m integration.hosts.container.real_bootupd    fills the cache, and prints how long that took and where it is

A build compiles some 200 crates, which takes ten minutes of a core, so no test begins one. The cache is known by what
decides the result. cargo verifies each crate by the lock file of bootupd.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Final

from integration.hosts import process
from integration.hosts.container.image import cache_directory, digest
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.requirements import Say

VERSION: Final = "0.3.2"
# bootupd 0.3.2 needs it, and cargo reports an older one only after the download.
RUST: Final = "1.90"
TIMEOUT: Final = 3600.0
# Link-time optimization doubles the time, and the symbols take 80 MB.
BUILD_ENV: Final = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_STRIP": "symbols"}


def _directory() -> Path:
    about = (VERSION, platform.machine(), *(f"{name}={value}" for name, value in sorted(BUILD_ENV.items())))
    return cache_directory().with_name("bootupd") / digest(*(text.encode() for text in about))


def find() -> Path:
    """Raises Unavailable with how to get it."""
    path = _directory() / "bin/bootupd"
    if not path.is_file():
        raise Unavailable(f"no bootupd {VERSION} in {path.parent}; `make bootupd` builds it (ten minutes, once)")
    return path


def build(say: Say) -> Path:
    """Return the program of `find`, and build it if it is missing. Raises Unavailable where it cannot be built."""
    target = _directory()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _compile(target, say)
    return find()


def _compile(target: Path, say: Say) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Unavailable(f"no cargo: bootupd {VERSION} needs Rust {RUST}, libssl-dev and pkg-config to be built")
    unfinished = target.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    say(f"building bootupd {VERSION}: ten minutes, once")
    started = time.monotonic()
    install = ["install", "bootupd", "--version", VERSION, "--locked", "--jobs", "1", "--root", str(unfinished)]
    try:
        process.run(
            ["nice", "-n", "19", cargo, *install],
            timeout=TIMEOUT,
            env={**os.environ, **BUILD_ENV, "CARGO_TARGET_DIR": str(unfinished / "target")},
        )
    except CommandFailed as error:
        raise Unavailable(f"bootupd {VERSION} cannot be built: {error}") from None
    shutil.rmtree(unfinished / "target")
    unfinished.rename(target)
    say(f"built in {(time.monotonic() - started) / 60:.1f} minutes")


if __name__ == "__main__":
    try:
        print(build(print))
    except Unavailable as error:
        raise SystemExit(f"bootupd: {error}") from None
