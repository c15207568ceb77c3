# SPDX-License-Identifier: Apache-2.0
"""What runs since this boot: FIPS mode of the kernel, and the name of the booted operating system.

The deployment is in the kernel argument ``ostree=``, a link below /ostree/boot.N that leads to it, and its version in
os-release(5). Both are read without rpm-ostreed, which a host of bootc does not have.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

_FIPS = "proc/sys/crypto/fips_enabled"
_COMMAND_LINE = "proc/cmdline"
# Characters that are read of a file.
_MAX = 1 << 16
_RELEASE = ("etc/os-release", "usr/lib/os-release")


class HostBootedSystem:
    """Implements ``ports.system.BootedSystem``. ``root`` is for tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    async def fips(self) -> bool:
        return await asyncio.to_thread(self._fips)

    async def name(self) -> str:
        return await asyncio.to_thread(self._name)

    def _fips(self) -> bool:
        # A kernel without FIPS mode has no such file.
        return self._text(_FIPS).strip() == "1"

    def _name(self) -> str:
        """Return as in ``Fedora CoreOS 41.1 (deployment 1f2e3d4c5b6a.0)``."""
        release = next(filter(None, map(self._text, _RELEASE)), "")
        values = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
        words = [
            next((value for key in keys if (value := values.get(key, "").strip("\"'"))), "")
            for keys in (("NAME", "ID"), ("OSTREE_VERSION", "IMAGE_VERSION", "VERSION_ID"))
        ]
        name = " ".join(filter(None, words)) or "an operating system without a name"
        return f"{name} (deployment {deployment})" if (deployment := self._deployment()) else name

    def _deployment(self) -> str:
        arguments = self._text(_COMMAND_LINE).split()
        link = next((word.removeprefix("ostree=") for word in arguments if word.startswith("ostree=")), "")
        if not link:
            return ""
        checksum, dot, serial = Path(os.path.realpath(self._root / link.lstrip("/"))).name.partition(".")
        return f"{checksum[:12]}{dot}{serial}"

    def _text(self, path: str) -> str:
        try:
            with (self._root / path).open(encoding="utf-8", errors="replace") as file:
                return file.read(_MAX)
        except OSError:
            return ""
