# SPDX-License-Identifier: Apache-2.0
"""Hosts of bootc's own back end, which keeps its images without ostree: they are recognized, and refused.

All functions block for two small files in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.errors import Unreconcilable
from nodeagent.features.bootc.reasons import BootcReason

# ostree creates this file in every boot of one of its deployments.
BOOTED: Final = "run/ostree-booted"


def is_native(root: Path) -> bool:
    """Return whether bootc's own back end booted the host. bootc itself uses the same kernel argument."""
    if (root / BOOTED).exists():
        return False
    try:
        arguments = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return False
    return any(argument.startswith("composefs=") for argument in arguments)


def refuse_native(root: Path) -> None:
    """Raise ``Unreconcilable`` (``BootcHost``) for such a host."""
    if is_native(root):
        message = "this host was booted by bootc's own back end, without ostree"
        raise Unreconcilable(message, reason=BootcReason.BOOTC_HOST)
