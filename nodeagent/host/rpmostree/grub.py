"""Whether GRUB asks for a password before it boots an entry.

It does so where a list of superusers is set and the entry has a list of users of its own, also an empty one (the key
``grub_users`` of the entry; Fedora's ``blscfg`` starts all others for everybody). CoreOS adds that key to each entry
but the default one, and nothing takes it away when such an entry becomes the default: after a rollback by order, a host
waits at the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["has_superusers"]

_DIRECTORIES = ("boot/grub2", "boot/grub")
_NAMES = ("user.cfg", "custom.cfg", "grub.cfg")
_EFI = "boot/efi/EFI"
_MAX = 1 << 20  # bytes of one file

# What every grub.cfg has: the superuser is set if user.cfg brought a password. So user.cfg decides.
_CONDITIONAL = re.compile(r'if \[ -n "?\$\{?GRUB2_PASSWORD\}?"? \]; *then.*?^\s*fi$', re.DOTALL | re.MULTILINE)
_SET = re.compile(r"""^\s*(set\s+superusers=["']?[^\s"']|GRUB2_PASSWORD=["']?[^\s"'])""", re.MULTILINE)


def has_superusers(root: Path) -> bool:
    """Blocks for a few files on the disk; call it in a thread. A file that cannot be read may set them: True."""
    for path in _files(root):
        try:
            with path.open("rb") as file:
                text = file.read(_MAX).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return True
        if _SET.search(_CONDITIONAL.sub("", text)):
            return True
    return False


def _files(root: Path) -> Iterator[Path]:
    for directory in _DIRECTORIES:
        yield from (root / directory / name for name in _NAMES)
    try:
        vendors = sorted((root / _EFI).iterdir())
    except OSError:
        return
    yield from (vendor / "user.cfg" for vendor in vendors)
