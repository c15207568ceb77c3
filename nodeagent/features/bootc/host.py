# SPDX-License-Identifier: Apache-2.0
"""Whether bootc updates this host, by files and the units of systemd, and what no update of such a host can do.

bootc itself is not asked: it waits for locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Final

from nodeagent.core.config.packages import KERNELS
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import Problem, Unreconcilable
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.host.ostree.programs import Services

# A host with this daemon is served by it, also beside bootc.
DAEMON: Final = "rpm-ostreed.service"
# What bootc installs, and rpm-ostree as well: the pull of an image.
PULLER: Final = "usr/libexec/libostree/ext/ostree-container"
BOOTC: Final = "usr/bin/bootc"
# Groups of an origin file that rpm-ostree writes. bootc does not upgrade a host that has one.
LAYERED: Final = frozenset({"rpmostree", "packages", "overrides", "modules"})

_KERNELS: Final = frozenset(package for packages in KERNELS.values() for package in packages)
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


def refuse_packages(target: OsTarget) -> None:
    """Raise ``Unreconcilable`` (``NoLayering``) for a target with packages beside those of the image."""
    # The extensions image alone is no obstacle: a pool names it in each of its configs.
    problems = []
    if extensions := (target.packages | target.optional_packages) - _KERNELS:
        problems.append(Problem("spec.extensions", f"needs {enumerated(sorted(extensions))}"))
    if target.removed or target.packages & _KERNELS:
        problems.append(Problem("spec.kernelType", "is not that of the image"))
    if problems:
        message = "this host runs images as they are, without packages beside them"
        raise Unreconcilable(message, reason=BootcReason.NO_LAYERING, problems=problems)


def refuse_layered(groups: Collection[str], deployment: str) -> None:
    """Raise ``Unreconcilable`` (``HasLayers``) if the origin of the booted ``deployment`` has groups of rpm-ostree."""
    # bootc switch would drop the packages without a word.
    if found := LAYERED.intersection(groups):
        message = f"{deployment} has changes of rpm-ostree ({', '.join(sorted(found))}), and this host has none"
        raise Unreconcilable(message, reason=BootcReason.HAS_LAYERS)
