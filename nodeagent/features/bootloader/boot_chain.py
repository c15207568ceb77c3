# SPDX-License-Identifier: Apache-2.0
"""Read what decides whether Secure Boot accepts a kernel: variables of the firmware, kernels, and the files of shim.

A part that cannot be read, or has an unexpected form, is unknown. The files have no owner but the OS and the firmware;
their sizes are bounded nevertheless, because the tree of a deployment is not the running one.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from nodeagent.errors import AgentError
from nodeagent.features.bootloader.decide.check import BootChain
from nodeagent.features.bootloader.decide.secure_boot import (
    KernelTrust,
    TrustedKeys,
    accepts,
    parse_sbat,
    revoked,
    sbat_of,
    signature_lists,
    signatures_of,
    vendor_keys,
)
from nodeagent.host.fs.read_inside import list_inside, mapped_inside, read_inside

BIOS: Final = "BIOS"

T = TypeVar("T")

_EFI: Final = "/sys/firmware/efi"
_VARIABLES: Final = f"{_EFI}/efivars"
# The owners of variables: the specification for Secure Boot itself and for its keys, and shim.
_GLOBAL: Final = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
_KEYS: Final = "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
_SHIM: Final = "605dab50-e046-4300-abb6-3dd810dd8b23"
# A file of efivarfs begins with the attributes of the variable.
_ATTRIBUTES: Final = 4

_MODULES: Final = "/usr/lib/modules"
# Layouts of bootupd, the one of Fedora 44 last. The names carry the architecture.
_SHIMS: Final = ("/usr/lib/bootupd/updates/EFI/*/shim{}.efi", "/usr/lib/efi/shim/*/EFI/*/shim{}.efi")
_GRUBS: Final = ("/usr/lib/bootupd/updates/EFI/*/grub{}.efi", "/usr/lib/efi/grub2/*/EFI/*/grub{}.efi")
_ARCHITECTURES: Final = ("x64", "aa64", "riscv64")

# Bytes of a variable, of a program of the bootloader and of a kernel; entries of a directory.
MAX_VARIABLE: Final = 1 << 20
MAX_PROGRAM: Final = 64 << 20
MAX_KERNEL: Final = 512 << 20
MAX_ENTRIES: Final = 256

# Variables of one list of shim.
MAX_PARTS: Final = 32


def has_efi(root: Path) -> bool:
    return (root / _EFI.lstrip("/")).is_dir()


def read_chain(root: Path, tree: Path) -> BootChain:
    """Return the known facts of the boot of ``tree``; ``root`` is the running system. Blocks."""
    return BootChain(
        secure_boot=_secure_boot(root),
        keys=_unless_odd(lambda: _keys(root)),
        payload_keys=_first(tree, _SHIMS, vendor_keys),
        booted=_kernel(root, signatures_of),
        next=_kernel(tree, signatures_of),
        # Kernels without generations are started whatever the level is.
        revoked=revoked(_kernel(tree, sbat_of) or {}, _level(root) or {}),
    )


def unfit_payload(root: Path, tree: Path) -> str:
    """Return why the firmware would refuse the bootloader of ``tree``, "" if nothing speaks against it. Blocks."""
    db = _unless_odd(lambda: signature_lists(_variable(root, "db", _KEYS)))
    signatures = _first(tree, _SHIMS, signatures_of)
    if db and db.certificates and signatures is not None and accepts(db, signatures) is KernelTrust.REFUSED:
        return "the firmware has no certificate for the signature of its shim"
    level = _level(root)
    for name, patterns in (("shim", _SHIMS), ("GRUB", _GRUBS)):
        generations = _first(tree, patterns, sbat_of)
        if level and generations and (component := revoked(generations, level)):
            return f"its {name} has a revoked generation of {component}"
    return ""


def _secure_boot(root: Path) -> bool | None:
    """Return whether programs are verified, None if that is not known."""
    if not has_efi(root):
        return False
    enabled = _unless_odd(lambda: _variable(root, "SecureBoot", _GLOBAL)[:1] == b"\1")
    # With shim's own switch, the firmware verifies shim, and shim verifies nothing.
    disabled = _unless_odd(lambda: _variable(root, "MokSBStateRT", _SHIM)[:1] == b"\1")
    return False if disabled else enabled


def _keys(root: Path) -> TrustedKeys:
    return signature_lists(_variable(root, "db", _KEYS)) | _shim_keys(root)


def _shim_keys(root: Path) -> TrustedKeys:
    """Return the keys within the running shim with those that the owner enrolled; none without a shim."""
    whole: bytes | None = None
    with contextlib.suppress(FileNotFoundError):
        # Whole, also where a variable is too small. Without CAP_SYS_ADMIN, as in the daemon, the kernel shows it empty.
        whole = read_inside(root, f"{_EFI}/mok-variables/MokListRT", MAX_VARIABLE)
    if whole:
        return signature_lists(whole)
    keys = TrustedKeys()
    for number in range(MAX_PARTS):
        try:
            # shim goes on in MokListRT1 where the first variable is too small.
            keys = keys | signature_lists(_variable(root, f"MokListRT{number or ''}", _SHIM))
        except FileNotFoundError:
            if whole is not None and number == 0:
                raise ValueError("shim has keys, and no variable shows them") from None
            # Without the first one, the firmware verifies the kernel itself.
            return keys
    raise ValueError("shim has too many keys")


def _level(root: Path) -> Mapping[str, int] | None:
    """Return the least generations of programs that shim starts."""
    return _unless_odd(lambda: parse_sbat(_variable(root, "SbatLevelRT", _SHIM)))


def _variable(root: Path, name: str, owner: str) -> bytes:
    return read_inside(root, f"{_VARIABLES}/{name}-{owner}", MAX_VARIABLE)[_ATTRIBUTES:]


def _kernel(tree: Path, part: Callable[[mmap.mmap], T]) -> T | None:
    """Return the result of ``part`` for the only kernel of a tree."""

    def read() -> T:
        paths = list(_expanded(tree, f"{_MODULES}/*/vmlinuz"))
        if len(paths) != 1:
            raise ValueError(f"{len(paths)} kernels")
        with mapped_inside(tree, paths[0], MAX_KERNEL) as image:
            return part(image)

    return _unless_odd(read)


def _first(tree: Path, patterns: Sequence[str], read: Callable[[bytes], T]) -> T | None:
    """Return the result of ``read`` for the first program at one of ``patterns``, None without a program."""

    def read_first() -> T:
        for pattern in patterns:
            for architecture in _ARCHITECTURES:
                for path in _expanded(tree, pattern.format(architecture)):
                    return read(read_inside(tree, path, MAX_PROGRAM))
        raise FileNotFoundError

    return _unless_odd(read_first)


def _expanded(tree: Path, pattern: str) -> Iterator[str]:
    """Yield the paths of ``tree`` that match a pattern, in which ``*`` is any one name, and that exist."""
    before, star, rest = pattern.partition("/*/")
    if not star:
        directory, _, name = pattern.rpartition("/")
        if name in list_inside(tree, directory, MAX_ENTRIES):
            yield pattern
        return
    for name in list_inside(tree, before, MAX_ENTRIES):
        try:
            yield from _expanded(tree, f"{before}/{name}/{rest}")
        except NotADirectoryError:
            continue


def _unless_odd(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (OSError, ValueError, AgentError):
        return None
