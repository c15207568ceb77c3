"""Compare the bootloader that is installed with the one that a deployment of the OS brings.

bootupd (github.com/coreos/bootupd) installs the bootloader; an update of the OS does not touch it. ``bootupctl status
--json`` says what is installed, and the tree of a deployment has the same kind of metadata about what it brings. The
key ``interrupted`` is not read: bootupd 0.2.35 never writes it, so its absence proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

T = TypeVar("T")

# Bytes of one JSON document. The status of two components has less than two thousand.
MAX_JSON: Final = 1 << 18

# Packages of one component, and characters of one text.
MAX_PACKAGES: Final = 64
MAX_TEXT: Final = 512

# At the end of a full name of a package, which bootupd of 2025 and before stores.
_ARCHITECTURES: Final = ("x86_64", "aarch64", "riscv64")

# Other characters, such as the colon after an epoch, only separate.
_PART: Final = re.compile(r"[~^.-]|[0-9]+|[A-Za-z]+")
# The order of parts of different kinds.
_MARKS: Final = {"~": 0, "-": 2, "^": 3, ".": 4}
_END, _LETTERS, _DIGITS = 1, 5, 6


class BootloaderState(StrEnum):
    """What is installed, compared with what the deployment brings."""

    SAME = "same"
    # Installing would be an update.
    OLDER = "older"
    # Installing would be a downgrade, which bootupd does not do.
    NEWER = "newer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BootloaderContent:
    """The packages of a bootloader, as pairs of name and version in the order of their names. ``version`` is for
    messages."""

    version: str
    packages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BootloaderStatus:
    """The installed components by name (EFI, BIOS), and those that bootupd did not install but could take over.

    ``available`` is what bootupd would install. It may be less than the metadata of the tree, which bootupd 0.3 reduces
    to the bootloader that the host uses.
    """

    installed: Mapping[str, BootloaderContent] = field(default_factory=dict)
    available: Mapping[str, BootloaderContent] = field(default_factory=dict)
    adoptable: frozenset[str] = frozenset()


class _Module(Struct):
    name: str
    rpm_evr: str


class _Metadata(Struct):
    version: Annotated[str, Meta(min_length=1)]
    # Missing before 2025.
    versions: list[_Module] | None = None


class _Component(Struct):
    installed: _Metadata
    update: _Metadata | None = None


class _Status(Struct):
    """In a container, bootupd prints a list of components instead, which says nothing about what is installed."""

    components: dict[str, _Component]
    adoptable: dict[str, Any] = {}


def parse_status(data: bytes) -> BootloaderStatus:
    """Parse the output of ``bootupctl status --json``. Raises ``ValueError``."""
    found = _decode(data, _Status)
    installed = {name: _content(each.installed) for name, each in found.components.items()}
    available = {name: _content(each.update) for name, each in found.components.items() if each.update is not None}
    return BootloaderStatus(installed, available, frozenset(found.adoptable))


def parse_payload(data: bytes) -> BootloaderContent:
    """Parse the metadata of a component in a deployment (usr/lib/bootupd/updates/EFI.json). Raises ``ValueError``."""
    return _content(_decode(data, _Metadata))


def _decode(data: bytes, kind: type[T]) -> T:
    if len(data) > MAX_JSON:
        raise ValueError(f"more than {MAX_JSON} bytes")
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def _content(found: _Metadata) -> BootloaderContent:
    if found.versions is None:
        packages = sorted({_package(each) for each in found.version.split(",")[:MAX_PACKAGES]}, key=_order)
    else:
        packages = [(each.name[:MAX_TEXT], each.rpm_evr[:MAX_TEXT]) for each in found.versions[:MAX_PACKAGES]]
    return BootloaderContent(found.version[:MAX_TEXT], tuple(packages))


def _order(package: tuple[str, str]) -> tuple[str, list[tuple[int, int, str]]]:
    return package[0], version_parts(package[1])


def _package(text: str) -> tuple[str, str]:
    """Return the short name and the version of ``shim-x64-15.6-2.x86_64`` or ``shim-15.8-4``."""
    text = text[:MAX_TEXT]
    if not text.endswith(_ARCHITECTURES):
        name, _, version = text.partition("-")
        return name, version
    name, *rest = text.rpartition(".")[0].rsplit("-", 2)
    return name.partition("-")[0], "-".join(rest)


def compare(installed: BootloaderContent, available: BootloaderContent) -> BootloaderState:
    """Compare as bootupd does: one older package makes the whole an update, whatever the others are."""
    if installed == available:
        return BootloaderState.SAME
    newer = False
    for mine, other in zip(map(_order, installed.packages), map(_order, available.packages), strict=False):
        if mine < other:
            return BootloaderState.OLDER
        newer = newer or mine > other
    if len(installed.packages) != len(available.packages):
        fewer = len(installed.packages) < len(available.packages)
        return BootloaderState.OLDER if fewer else BootloaderState.NEWER
    return BootloaderState.NEWER if newer else BootloaderState.SAME


def version_parts(text: str) -> list[tuple[int, int, str]]:
    """Return the parts of a version, so that lists compare as the version format specification of the UAPI group has
    it. The end comes before any part but ``~``."""
    found = [_part(match) for match in _PART.finditer(text)]
    return [*found, (_END, 0, "")]


def _part(match: re.Match[str]) -> tuple[int, int, str]:
    text = match[0]
    if text[0] in _MARKS:
        return _MARKS[text[0]], 0, ""
    return (_DIGITS, int(text), "") if text.isdigit() else (_LETTERS, 0, text)
