"""The Debian mirror and proxy of this machine, which the image uses as well."""

from __future__ import annotations

import shutil

from integration.hosts import process

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
