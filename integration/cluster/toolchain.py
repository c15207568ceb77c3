# SPDX-License-Identifier: Apache-2.0
"""A Go that can build the API server, got from what a bare machine has: its own Go, Debian's or Fedora's.

Since 1.21 Go fetches the release that GOTOOLCHAIN names through the module proxy. An older one, Debian 12
has 1.19, can still download that release as the module it is; only the modes of its programs are lost on the way.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Final

from integration.hosts import process
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.requirements import Say, install

RELEASE: Final = (1, 26, 8)
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
INSTALL_TIMEOUT: Final = 900.0
PROXY_ENV: Final = {"GOFLAGS": "", "GOWORK": "off"}  # a machine's own flags are not for this build


def go(say: Say, need: tuple[int, int, int]) -> tuple[Path, dict[str, str]]:
    """The program, and the environment that makes it at least ``need``. Raises Unavailable."""
    install(say, "go")
    found = shutil.which("go")
    if found is None:
        raise Unavailable("go is installed, but not in PATH")
    version = _version(found)
    if version >= need:
        return Path(found), {**PROXY_ENV, "GOTOOLCHAIN": "local"}
    name = "go" + ".".join(map(str, RELEASE))
    if version >= (1, 21, 0):
        return Path(found), {**PROXY_ENV, "GOTOOLCHAIN": name}
    return _downloaded(found, name, say), {**PROXY_ENV, "GOTOOLCHAIN": "local"}


def _version(program: str) -> tuple[int, int, int]:
    said = process.run([program, "version"], timeout=60, env={**os.environ, "GOTOOLCHAIN": "local"}).stdout.decode()
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", said)
    if match is None:
        raise Unavailable(f"{program} does not say which Go it is: {said.strip()}")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def _downloaded(program: str, name: str, say: Say) -> Path:
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise Unavailable(f"no Go is known for {platform.machine()}")
    module = f"golang.org/toolchain@v0.0.1-{name}.linux-{architecture}"
    say(f"fetching {name}: the Go of this machine is older than 1.21")
    try:
        said = process.run(
            [program, "mod", "download", "-json", module], timeout=INSTALL_TIMEOUT, env={**os.environ, **PROXY_ENV}
        )
    except CommandFailed as error:
        raise Unavailable(f"{name} cannot be fetched: {error}") from None
    root = Path(json.loads(said.stdout)["Dir"])
    for directory in (root / "bin", root / "pkg" / "tool"):
        for file in directory.rglob("*"):
            if file.is_file():
                file.chmod(0o555)
    return root / "bin" / "go"
