# SPDX-License-Identifier: Apache-2.0
"""Files of a config whose content comes from a server: images, which are too large for a config.

Such an entry is a link to a file that is kept by its digest, so that it is planned, written, verified and reverted as
any link, and only its digest is stored. ``update.stages.guard`` has the place of what fetches it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from nodeagent.core.config import schema
from nodeagent.core.config.machineconfig import LinkEntry, MachineConfig
from nodeagent.core.config.paths import has_control
from nodeagent.core.config.problems import Location, shown

# Not below the store, which a policy of SELinux lets few programs read.
KEPT: Final = "/var/lib/nodeagent-fetched"
SUFFIX: Final = ".raw"
# Where systemd-sysext(8) looks for images, without /run, which is emptied.
SEARCHED: Final = ("/etc/extensions", "/var/lib/extensions")
# Where images are put to which links in those lead.
STORES: Final = ("/opt/extensions", "/var/lib/extensions.d")
CONFEXTS: Final = ("/var/lib/confexts", "/usr/local/lib/confexts")
OWN_NAME: Final = f"nodeagent{SUFFIX}"
MAX_URL: Final = 2048

DIGEST: Final = re.compile(r"(sha256)-([0-9a-fA-F]{64})|(sha512)-([0-9a-fA-F]{128})")
_SCHEME = re.compile(r"https?:", re.IGNORECASE)

_NO_HASH: Final = "is needed for a file that is fetched: sha256- or sha512- and the digest in hexadecimal"
_CONFEXT: Final = (
    "is not fetched: a merged confext makes /etc read-only, and nodeagent could write nothing there; have the files "
    "of the image as files of the config"
)


def is_fetched(file: schema.File) -> bool:
    """Return whether the content of a file comes from a server, and whether this is a place for that."""
    source = file.contents.source if file.contents is not None else None
    if not source or not _SCHEME.match(source) or file.append:
        return False
    directory, _, name = (file.path or "").rpartition("/")
    if not name.endswith(SUFFIX):
        return False
    return directory in (*SEARCHED, *CONFEXTS) or f"{directory}/".startswith(tuple(f"{store}/" for store in STORES))


def is_own(path: str) -> bool:
    """Return whether this is the image that nodeagent itself is in. It is installed, and not managed."""
    directory, _, name = path.rpartition("/")
    return name == OWN_NAME and directory in SEARCHED


def read(file: schema.File, where: Location) -> LinkEntry:
    """Return the link for a file that ``is_fetched``. With problems at ``where``, it is not usable."""
    contents, path = file.contents or schema.Contents(), file.path or ""
    source = contents.source or ""
    if path.rpartition("/")[0] in CONFEXTS:
        where.bad("path", f"{shown(path)} {_CONFEXT}")
    if problem := _url_problem(source):
        where.bad("contents.source", problem)
    if contents.compression:
        where.bad("contents.compression", "must be empty for a file that is fetched")
    if contents.http_headers:
        where.bad("contents.httpHeaders", "are not sent: the address must work without them")
    for key, owner in (("user", file.user), ("group", file.group)):
        if owner is not None and not (owner.id in (None, 0) and owner.name in (None, "", "root")):
            where.bad(key, "must be root for a file that is fetched")
    wanted = (contents.verification.hash if contents.verification is not None else None) or ""
    if DIGEST.fullmatch(wanted) is None:
        where.bad("contents.verification.hash", _NO_HASH)
    return LinkEntry(path, kept_at(wanted), source=source)


def kept_at(digest: str) -> str:
    """Return the path of the file with this digest, such as ``sha256-`` and 64 hexadecimal digits."""
    return f"{KEPT}/{digest.lower()}{SUFFIX}"


def digest_at(target: str) -> str:
    """Return the digest of the file to which a link with this target leads, "" for another file."""
    name = target.removeprefix(f"{KEPT}/").removesuffix(SUFFIX)
    return name if target == kept_at(name) and DIGEST.fullmatch(name) else ""


def fetched_of(config: MachineConfig) -> Mapping[str, LinkEntry]:
    """Return the links of ``config`` to what is fetched, by path."""
    return {path: link for path, link in config.links.items() if link.source}


def without_query(url: str) -> str:
    """Return the part of an address that may be shown: the rest may be a token."""
    return url.partition("?")[0].partition("#")[0]


def _url_problem(url: str) -> str:
    # Credentials would be readable in the config and in logs.
    if len(url) > MAX_URL or has_control(url) or " " in url:
        return f"must be at most {MAX_URL} characters without spaces and control characters"
    try:
        parts = urlsplit(url)
        plain = bool(parts.hostname) and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        plain = False
    return "" if plain else "must be an http or https address without credentials"
