# SPDX-License-Identifier: Apache-2.0
"""What a change of an image needs, which images fit the host and are merged, and which kept files are not used any
more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

from nodeagent.core.config.fetched import SEARCHED, STORES, SUFFIX, digest_at, fetched_of, without_query
from nodeagent.core.config.machineconfig import LinkEntry, MachineConfig
from nodeagent.core.config.problems import shown
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.plan.domain import Domain
from nodeagent.core.plan.policy import DAEMON_RELOAD, reload, start

UNIT: Final = "systemd-sysext.service"

# It merges again what is there then.
MERGE: Final = (reload(UNIT),)

DOMAIN: Final = Domain(
    name="images of system extensions",
    files=dict.fromkeys((*SEARCHED, *STORES), MERGE),
    units={UNIT: (DAEMON_RELOAD, *MERGE, start(UNIT))},
)

# Files that stay although no config of this host needs them: one that waits or failed may come again.
KEEP_UNUSED: Final = 2

# Where systemd-sysext mounts the extensions that it merges, in the options of its overlays in mountinfo.
_MERGED = re.compile(r"/run/systemd/sysext/extensions/([^/:,\s]+)/")
_OVERLAY: Final = " - overlay "
_HIERARCHIES: Final = (" /usr ", " /opt ")

_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
_ANY: Final = "_any"
# The version of an image itself, in the order in which they count.
_VERSIONS: Final = ("SYSEXT_IMAGE_VERSION", "SYSEXT_VERSION_ID", "SYSEXT_BUILD_ID", "IMAGE_VERSION")
_NAMED: Final = ("EXTENSION_RESTART_UNITS", "EXTENSION_RELOAD_OR_RESTART_UNITS")
_TRUE: Final = ("1", "yes", "y", "true", "t", "on")
# Of what an image says.
MAX_VERSION: Final = 64
MAX_UNITS: Final = 16
# The names of systemd for architectures, by those of uname(2). Another one is not compared.
_ARCHITECTURES: Final = {
    "x86_64": "x86-64",
    "aarch64": "arm64",
    "ppc64le": "ppc64-le",
    "s390x": "s390x",
    "riscv64": "riscv64",
}


@dataclass(frozen=True, slots=True)
class Image:
    """``digest`` is as in Ignition: ``sha256-`` or ``sha512-`` and the digest in hexadecimal."""

    path: str
    digest: str
    url: str

    @property
    def name(self) -> str:
        return name_of(self.path)

    @property
    def server(self) -> str:
        """The address without its query, which may be a token."""
        return without_query(self.url)

    def __str__(self) -> str:
        kind, _, digits = self.digest.partition("-")
        return f"{self.name} ({kind}-{digits[:12]})"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What an image asks systemd-sysext to do after a merge. ``units`` are restarted or reloaded from version 261 on,
    which makes systemd read its units again as well."""

    reloads_manager: bool
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of the cache. ``changed`` is a time."""

    name: str
    size: int
    changed: float


def name_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(SUFFIX)


def image_of(link: LinkEntry) -> Image:
    return Image(link.path, digest_at(link.target), link.source)


def images(config: MachineConfig) -> Mapping[str, Image]:
    """Return the images of a config by path."""
    return {path: image_of(link) for path, link in fetched_of(config).items()}


def merged_names(config: MachineConfig) -> Collection[str]:
    """Return the names under which systemd-sysext merges images of the config."""
    return sorted(name for name, _ in named_images(config))


def named_images(config: MachineConfig) -> Iterator[tuple[str, Image]]:
    """Yield the images of the config that are merged, with the names under which systemd-sysext merges them."""
    by_path = images(config)
    for path, link in config.links.items():
        image = by_path.get(path if link.source else link.target)
        if image is not None and path.rpartition("/")[0] in SEARCHED and path.endswith(SUFFIX):
            yield name_of(path), image


def merged(mountinfo: str) -> frozenset[str] | None:
    """Return the names of the extensions that are merged; None if the overlays do not show them.

    ``mountinfo`` is that of proc_pid_mountinfo(5).
    """
    overlays = [
        line
        for line in mountinfo.splitlines()
        if _OVERLAY in line and any(hierarchy in line for hierarchy in _HIERARCHIES)
    ]
    names = frozenset(match[1] for line in overlays for match in _MERGED.finditer(line))
    return names if names or not overlays else None


def release_of(lines: Iterable[str]) -> Mapping[str, str]:
    """Return the values of os-release(5), or of the extension-release of an image, by key."""
    matches = (_ASSIGNMENT.fullmatch(line.strip()) for line in lines)
    return {match[1]: match[2].strip().strip("\"'") for match in matches if match is not None}


def unfit(extension: Mapping[str, str], host: Mapping[str, str], machine: str) -> str:
    """Return why no systemd-sysext merges an image with this extension-release, "" if one may.

    ``host`` is the os-release of the host, and ``machine`` its architecture as uname(2) has it.
    """
    # systemd-sysext itself fails on a host without it.
    if not (own := host.get("ID")):
        return ""
    if (scope := extension.get("SYSEXT_SCOPE")) and "system" not in scope.split():
        return f"SYSEXT_SCOPE is {shown(scope)}, without system"
    built, here = extension.get("ARCHITECTURE"), _ARCHITECTURES.get(machine)
    if built and here and built not in (_ANY, here):
        return f"ARCHITECTURE is {shown(built)}, and this host has {here}"
    if not (wanted := extension.get("ID")):
        return "ID is missing"
    if wanted == _ANY:
        return ""
    # Old versions do not look at ID_LIKE.
    if wanted not in (own, *host.get("ID_LIKE", "").split()):
        return f"ID is {shown(wanted)}, and this host has {shown(own)}"
    # A level counts where both have one.
    level = "SYSEXT_LEVEL"
    key = level if extension.get(level) and host.get(level) else "VERSION_ID"
    there, needed = host.get(key), extension.get(key)
    if not there or there == needed:
        return ""
    return f"{key} is {shown(needed) if needed else 'missing'}, and this host has {shown(there)}"


def version_of(release: Mapping[str, str]) -> str:
    """Return the version of an image, "" if its extension-release has none. ``VERSION_ID`` is that of its OS."""
    return next((release[key][:MAX_VERSION] for key in _VERSIONS if release.get(key)), "")


def wishes_of(release: Mapping[str, str]) -> Wishes:
    named = " ".join(release.get(key, "") for key in _NAMED).split()
    units = tuple(dict.fromkeys(unit for unit in named if unit_name_problem(unit) is None))[:MAX_UNITS]
    return Wishes(bool(units) or release.get("EXTENSION_RELOAD_MANAGER", "").lower() in _TRUE, units)


def surplus(files: Iterable[KeptFile], used: Collection[str], limit: int) -> Iterator[str]:
    """Yield the names of files to remove. What is ``used`` stays, and of the others the newest, with ``limit`` bytes
    at most."""
    unused = sorted((file for file in files if file.name not in used), key=lambda file: (-file.changed, file.name))
    total = 0
    for number, file in enumerate(unused):
        total += file.size
        if number >= KEEP_UNUSED or total > limit:
            yield file.name


def redirected(url: str, location: str) -> str:
    """Return the address to which a server redirects. Raises ``ValueError`` with the cause if it is not followed."""
    target = urljoin(url, location)
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("it redirects to an address that is no plain http or https URL")
    # The digest protects the content, and not the query with a token.
    if url.startswith("https:") and parts.scheme != "https":
        raise ValueError("it redirects from https to http")
    return target
