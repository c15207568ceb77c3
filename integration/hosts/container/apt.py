# SPDX-License-Identifier: Apache-2.0
"""The Debian mirror and proxy of this machine, which the image uses as well."""

from __future__ import annotations

import shutil
from pathlib import Path

from integration.hosts import process, requirements
from integration.hosts.container import recipe
from integration.hosts.errors import Unavailable

# sid is signed with the key of the newest stable release.
UNSTABLE_KEYS = "debian-archive-trixie-automatic.*"
# Settings of the machine's apt that decide whether a download works at all.
COPIED = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Valid-Until", "Acquire::Check-Date")


def mirrors() -> list[str]:
    """URIs of the machine's own mirrors of the Debian archive; none where the machine is not Debian."""
    if shutil.which("apt-get") is None:
        return []
    found = _archives()
    if not found:
        # apt knows whose archive it is only from the Release file, and images of Debian come without one.
        process.run(["apt-get", "update", "-q"], timeout=120, check=False)
        found = _archives()
    return found


def unstable_keyring() -> Path:
    """Return the file with the keys of Debian sid. Raises Unavailable where the machine has none."""
    found = sorted(requirements.KEYRINGS.glob(UNSTABLE_KEYS))
    if not found:
        raise Unavailable(f"no keys of Debian sid: {requirements.KEYRINGS} has no {UNSTABLE_KEYS}")
    return found[0]


def unstable(keyring: Path) -> list[str]:
    """Lines of sources.list for Debian sid, on the mirrors of mirrors(). Raises Unavailable where there are none."""
    found = mirrors()
    if not found:
        raise Unavailable("no mirror of Debian sid: apt of this machine has no archive of Debian")
    return [f"deb [signed-by={keyring}] {uri} {recipe.UNSTABLE} main" for uri in found]


def options() -> list[str]:
    """Lines of apt.conf for COPIED, those of them that are set."""
    if shutil.which("apt-config") is None:
        return []
    dump = process.run(["apt-config", "dump", "--format", '%F "%v";%n', *COPIED], timeout=10)
    return dump.stdout.decode().splitlines()


def _archives() -> list[str]:
    fields = "$(ORIGIN)|$(LABEL)|$(CODENAME)|$(SUITE)|$(COMPONENT)|$(REPO_URI)"
    listed = process.run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"], timeout=30)
    uris: dict[str, None] = {}
    for line in listed.stdout.decode().splitlines():
        origin, label, codename, _suite, component, uri = line.split("|", 5)
        # "Debian" alone is the main archive: updates carry a suffix in the codename, security another label.
        if (origin, label, component) == ("Debian", "Debian", "main") and "-" not in codename:
            uris[uri] = None
    return list(uris)
