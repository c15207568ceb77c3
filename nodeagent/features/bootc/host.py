# SPDX-License-Identifier: Apache-2.0
"""Whether bootc updates this host, by files and the units of systemd. bootc itself is not asked: it waits for locks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from nodeagent.errors import Unreconcilable
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.host.ostree.programs import Services

# A host with this daemon is served by it, also beside bootc.
DAEMON: Final = "rpm-ostreed.service"
# What bootc installs, and rpm-ostree as well: the pull of an image.
PULLER: Final = "usr/libexec/libostree/ext/ostree-container"
BOOTC: Final = "usr/bin/bootc"
_BOOTED: Final = "run/ostree-booted"
_ROOT: Final = Path("/")


async def is_ours(services: Services, root: Path = _ROOT) -> bool:
    """Return whether libostree booted this host, and what bootc brings is there and no rpm-ostree."""
    if not await asyncio.to_thread(_has_programs, root):
        return False
    return (await services.state(DAEMON)).load == "not-found"


def _has_programs(root: Path) -> bool:
    return (root / _BOOTED).exists() and any((root / program).exists() for program in (BOOTC, PULLER))


def check_puller(root: Path) -> None:
    """Raise ``Unreconcilable`` (``NoPuller``) if nothing here pulls an image. Blocks."""
    if not (root / PULLER).exists():
        raise Unreconcilable(f"this host has no /{PULLER}", reason=BootcReason.NO_PULLER)
