# SPDX-License-Identifier: Apache-2.0
"""Versions of the package, of its libraries, of the host and of the running daemon. All functions block."""

from __future__ import annotations

import os
import platform
import sqlite3
import ssl
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

import nodeagent
from nodeagent.core.config.text import plain_json
from nodeagent.core.interpreter import origin_of
from nodeagent.core.self_check import NotRead
from nodeagent.features.selfcheck.decide.versions import VersionFacts
from nodeagent.host.components import sbom

PACKAGE: Final = "/usr/lib/nodeagent/"
_MAX_SBOM: Final = 4 << 20


def read_versions(systemd: str, listed: Path | None = None) -> VersionFacts:
    """``systemd`` is the version of the manager, "" if it is not known. ``listed`` is the list of components."""
    loaded = {
        "nodeagent": nodeagent.__version__,
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION.split()[1],
        "sqlite": sqlite3.sqlite_version,
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "msgspec": msgspec.__version__,
        "pyyaml": yaml.__version__,
    }
    host = {"systemd": systemd, "glibc": _glibc()}
    versions = {name: version for name, version in host.items() if version}
    components, interpreter = _listed(listed or sbom())
    if not isinstance(components, NotRead) and "python" not in components:
        # The others are those of the host.
        loaded = {name: version for name, version in loaded.items() if name in components}
    return VersionFacts(components, interpreter, loaded, versions)


def _glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
    except (ValueError, OSError):
        return ""


def _listed(path: Path) -> tuple[Mapping[str, str], str] | tuple[NotRead, NotRead]:
    """Return the versions by component, and the origin of the interpreter."""
    try:
        with path.open("rb") as file:
            document = plain_json.loads(file.read(_MAX_SBOM))
        entries = [document["metadata"]["component"], *document["components"]]
        versions = {str(entry["name"]): str(entry.get("version", "")) for entry in entries}
        return versions, origin_of(document)
    except FileNotFoundError:
        absent = NotRead("not the self-contained package: its libraries are those of this Python")
        return absent, absent
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{path} cannot be read: {type(error).__name__}"
        unreadable = NotRead(message, "install the package again", fault=True)
        return unreadable, unreadable
