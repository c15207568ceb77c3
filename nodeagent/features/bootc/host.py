# SPDX-License-Identifier: Apache-2.0
"""Whether bootc updates this host, by files and the units of systemd, and what no update of such a host can do.

bootc itself is not asked: it waits for locks.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.config.image import OstreeCommit
from nodeagent.core.config.packages import KERNELS
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.self_check import OsService
from nodeagent.errors import AgentError, Problem, Unreconcilable
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.features.bootc.units import PULL
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.boot_order import booted_deployment
from nodeagent.host.ostree.checks import Space, refuse_updater
from nodeagent.host.ostree.credentials import Credentials
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.ostree.programs import Services
from nodeagent.host.ostree.sysroot import Origin, SysrootFiles, layers_of, read_origin
from nodeagent.host.systemd import Systemd
from nodeagent.reasons import hint

# A host with this daemon is served by it, also beside bootc.
DAEMON: Final = "rpm-ostreed.service"
# What bootc installs, and rpm-ostree as well: the pull of an image.
PULLER: Final = "usr/libexec/libostree/ext/ostree-container"
BOOTC: Final = "usr/bin/bootc"

_KERNELS: Final = frozenset(package for packages in KERNELS.values() for package in packages)
# ostree creates this file in every boot of one of its deployments.
_BOOTED: Final = "run/ostree-booted"
_ROOT: Final = Path("/")
_UPDATERS: Final = (
    ("zincati.service", "Zincati"),
    ("bootc-fetch-apply-updates.timer", "bootc's automatic update"),
    ("bootc-fetch-apply-updates.service", "bootc's automatic update"),
)
_SYSROOT_HINT: Final = "free space: ostree admin cleanup, df -h /sysroot"
_BOOT_HINT: Final = "free space: ostree admin status (undeploy old or pinned deployments), ls /boot"


async def is_ours(services: Services, root: Path = _ROOT, *, chosen: bool = False) -> bool:
    """Return whether libostree booted this host, and what bootc brings is there and no rpm-ostree.

    ``chosen``: an OS was staged here before. Then it stays so beside rpm-ostree, but for a host with layers.
    A host that bootc's own back end booted is one as well, and is refused later.
    """
    if await asyncio.to_thread(is_native, root):
        return True
    if not await asyncio.to_thread((root / _BOOTED).exists):
        return False
    able = await asyncio.to_thread(has_programs, root)
    if chosen and able and not await asyncio.to_thread(_is_layered, root):
        return True
    if not chosen and not able:
        return False
    # A masked one may be there for a while only; its own check says so.
    return (await services.state(DAEMON)).load == "not-found"


def has_programs(root: Path) -> bool:
    """Return whether a tree has what bootc brings. Blocks."""
    # A link of another tree leads nowhere here.
    return any(os.path.lexists(root / program) for program in (BOOTC, PULLER))


def _is_layered(root: Path) -> bool:
    return bool(layers_of(read_origin(root, booted_deployment(root))))


def is_native(root: Path) -> bool:
    """Return whether the host was booted by bootc's own back end, which keeps its images without ostree.

    bootc itself uses the same kernel argument. Blocks for two small files in memory.
    """
    if (root / _BOOTED).exists():
        return False
    try:
        arguments = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return False
    return any(argument.startswith("composefs=") for argument in arguments)


def refuse_native(root: Path) -> None:
    """Raise ``Unreconcilable`` (``BootcHost``) for a host without ostree. Blocks as ``is_native``."""
    if is_native(root):
        message = "this host was booted by bootc's own back end, without ostree"
        raise Unreconcilable(message, reason=BootcReason.BOOTC_HOST)


async def sweep(root: Path = _ROOT) -> None:
    """Remove a pull secret of a killed agent, which every later pull would read, also of other programs.

    A failure is reported when credentials are provided, where the removal fails again.
    """
    with suppress(AgentError):
        await asyncio.to_thread(Credentials(root).sweep)


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


def refuse_layered(origin: Origin, deployment: str) -> None:
    """Raise ``Unreconcilable`` (``HasLayers``) if rpm-ostree has changed the image of the booted ``deployment``."""
    # bootc switch would drop the packages without a word.
    if found := layers_of(origin):
        message = f"{deployment} has changes of rpm-ostree ({one_line(', '.join(found))}), and this host has none"
        raise Unreconcilable(message, reason=BootcReason.HAS_LAYERS)


async def read_os_service(bus: Bus, root: Path = _ROOT, *, chosen: bool = False) -> OsService | None:
    """Return what serves the OS of this host, None if that is not bootc's. ``chosen`` as in ``is_ours``.

    Raises ``AgentError``.
    """
    if not await is_ours(Systemd(bus), root, chosen=chosen):
        return None
    try:
        await asyncio.to_thread(refuse_native, root)
        await asyncio.to_thread(check_puller, root)
    except Unreconcilable as error:
        # The check and the refusal of a config have the same reason.
        return OsService("ostree container", PULL, f"{error.message} ({error.reason})", hint(error.reason))
    return OsService("ostree container", PULL, refused=("extensions", "kernelType"))


class StagingChecks:
    """Checks before staging. ``min_free`` is in bytes."""

    def __init__(self, services: Services, root: Path, min_free: int) -> None:
        self._services = services
        self._root = root
        self.space = Space(root, min_free, sysroot_hint=_SYSROOT_HINT, boot_hint=_BOOT_HINT)

    async def check(self, state: SysrootFiles, target: OsTarget) -> None:
        """Raise ``Unreconcilable`` (``NoLayering``, ``HasLayers``, ``NoPuller``, ``ImageNeeded``), ``Refused``
        (``OtherDriver``, ``BootFull``) or ``Terminal`` (``NoSpace``) if staging must not begin."""
        refuse_packages(target)
        origin = await asyncio.to_thread(read_origin, self._root, state.booted.id)
        refuse_layered(origin, state.booted.id)
        if isinstance(target.image, OstreeCommit):
            message = f"{target.image.refspec} is a commit in an ostree remote, and this host is updated by images"
            raise Unreconcilable(message, reason=BootcReason.IMAGE_NEEDED)
        if target.image is not None:
            await asyncio.to_thread(check_puller, self._root)
        for unit, name in _UPDATERS:
            await refuse_updater(self._services, unit, name)
        await asyncio.to_thread(self.space.check_sysroot)
        if target.image is not None:
            await self.space.check_boot(state.deployments, state.entries)
