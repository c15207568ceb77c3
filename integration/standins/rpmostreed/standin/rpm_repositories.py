# SPDX-License-Identifier: Apache-2.0
"""Repositories of packages on the host's own disk, as /etc/yum.repos.d names them.

Only what a local repository needs is read: repomd.xml, the primary metadata that it names, and the files that those
name, whose checksums are verified as libdnf does. Repositories on the network have no packages here.
"""

from __future__ import annotations

import configparser
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from integration.standins.rpmostreed.standin.errors import Failed

FOLDER = Path("/etc/yum.repos.d")
REPO = "{http://linux.duke.edu/metadata/repo}"
COMMON = "{http://linux.duke.edu/metadata/common}"


def packages(folder: Path = FOLDER) -> set[str]:
    """The names of all packages of the enabled local repositories. Raises Failed for one that is damaged."""
    return {name for name, directory in _repositories(folder) for name in _packages_in(name, directory)}


def _repositories(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("*.repo")):
        file = configparser.ConfigParser(interpolation=None)
        file.read(path)
        for name in file.sections():
            url = file[name].get("baseurl", "")
            if url.startswith("file://") and file[name].get("enabled", "1") == "1":
                yield name, Path(url.removeprefix("file://"))


def _packages_in(repository: str, directory: Path) -> Iterator[str]:
    try:
        repomd = ElementTree.parse(directory / "repodata/repomd.xml").getroot()
        primary = next(data for data in repomd.iter(f"{REPO}data") if data.get("type") == "primary")
        text = _verified(directory, primary, REPO)
        metadata = ElementTree.fromstring(gzip.decompress(text))
        for package in metadata.iter(f"{COMMON}package"):
            _verified(directory, package, COMMON)
            yield package.findtext(f"{COMMON}name", "")
    except (OSError, StopIteration, ElementTree.ParseError, ValueError) as error:
        raise Failed(f"cannot update repo '{repository}': {error}") from None


def _verified(directory: Path, entry: ElementTree.Element, namespace: str) -> bytes:
    location, checksum = entry.find(f"{namespace}location"), entry.find(f"{namespace}checksum")
    if location is None or checksum is None:
        raise ValueError("an entry without a location or a checksum")
    content = (directory / location.get("href", "")).read_bytes()
    if hashlib.new(checksum.get("type", ""), content).hexdigest() != checksum.text:
        raise ValueError(f"{location.get('href')}: the checksum does not match")
    return content
