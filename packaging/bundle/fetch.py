# SPDX-License-Identifier: Apache-2.0
"""Download artifacts with the clients of the registries, through the mirrors that the machine configures for them.

Each artifact must have the locked sha256.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from bundle import cache, tools
from bundle.errors import BuildError

DOWNLOAD_TIMEOUT = 600.0  # seconds for one artifact


def maven(coordinates: str, sha256: str) -> Path:
    """Return the archive of a Maven artifact, given as group:artifact:version:packaging:classifier."""

    def make(target: Path) -> None:
        tools.log(f"fetching {coordinates}")
        program = tools.require("mvn")
        with tempfile.TemporaryDirectory() as scratch:
            # A broken file in the user's repository must not be used as the artifact, so this one is empty.
            run = [program, "-q", "-B", f"-Dmaven.repo.local={scratch}", "dependency:get", "-Dtransitive=false"]
            tools.run([*run, f"-Dartifact={coordinates}"], timeout=DOWNLOAD_TIMEOUT)
            group, name, version, packaging, classifier = coordinates.split(":")
            folder = Path(scratch, *group.split("."), name, version)
            archive = folder / f"{name}-{version}-{classifier}.{packaging}"
            check(archive, sha256, archive.name)
            shutil.copyfile(archive, target / "archive")

    return cache.directory("maven", sha256[:32], make) / "archive"


def wheel(requirement: str, sha256: str, *, python: str, platform: str) -> Path:
    """Return the unpacked content of one wheel, without its requirements."""

    def make(target: Path) -> None:
        tools.log(f"fetching {requirement}")
        wheels(f"{requirement} --hash=sha256:{sha256}\n", target, python=python, platform=platform)

    return cache.directory("wheel", sha256[:32], make)


def wheels(requirements: str, target: Path, *, python: str, platform: str) -> None:
    """Unpack wheels for exactly this Python and platform into `target`. Every requirement must carry its hashes."""
    command = [tools.uv(), "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--link-mode", "copy", "--target", str(target)]
    command += ["--python-version", python, "--python-platform", platform, "--requirement", "-"]
    tools.run(command, timeout=DOWNLOAD_TIMEOUT, stdin=requirements.encode())


def check(path: Path, sha256: str, name: str) -> None:
    """Raise BuildError if the file that was fetched as `name` has not the locked sha256."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise BuildError(f"{name} has sha256 {found}, the lock says {sha256}")
