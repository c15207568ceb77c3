# SPDX-License-Identifier: Apache-2.0
"""Parts of trees that change faster than Debian: nodeagent's package and the stand-in of rpm-ostreed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from integration.hosts.container.package import install_into
from integration.standins import rpmostreed
from integration.standins.rpmostreed import install
from integration.trees.tree import Part


def package(tarball: Path) -> Part:
    """nodeagent's package, with its units enabled."""
    return Part("nodeagent", hashlib.sha256(tarball.read_bytes()).digest(), lambda root: install_into(root, tarball))


def stand_in(settings: Mapping[str, str] | None = None) -> Part:
    """The stand-in of rpm-ostreed; `settings` are RPMOSTREED_STANDIN_* variables, such as LIKE, without that prefix."""
    environment = "".join(f"RPMOSTREED_STANDIN_{name}={value}\n" for name, value in sorted((settings or {}).items()))
    digest = hashlib.sha256(environment.encode())
    sources = Path(rpmostreed.__file__).parent
    for path in sorted([*sources.glob("install.py"), *sources.glob("standin/*.py"), *sources.glob("files/*")]):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())

    def put(root: Path) -> None:
        install.install_into(root)
        (root / install.ENVIRONMENT).write_text(environment)

    return Part("rpm-ostreed", digest.digest(), put)
