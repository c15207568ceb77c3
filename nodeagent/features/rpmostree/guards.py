# SPDX-License-Identifier: Apache-2.0
"""Checks before staging: a daemon that serves this host, no other updater, and free space.

The daemon accepts requests of all updaters. So the usual ones are checked: Zincati, the update driver that is
registered with rpm-ostree, rpm-ostree's automatic updates, and bootc's timer.

And a check of what was staged: the daemon puts packages, overrides and an initramfs of its own on each image, also on
one that does not have it. Such a host would boot, and nothing there would serve what was added.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from nodeagent.core.plan.deployment import OsTarget
from nodeagent.errors import Terminal, Unreconcilable
from nodeagent.features.rpmostree.client import SERVICE, Session
from nodeagent.features.rpmostree.host import UNITS, has_daemon, is_absent, without_daemon
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.host.ostree.checks import Space, driven, refuse_updater
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.ostree.programs import Services
from nodeagent.host.ostree.sysroot import directory_of, layers_of, read_origin
from nodeagent.host.ostree.vardict import read_vardict, string

_UPDATERS = (("zincati.service", "Zincati"), ("bootc-fetch-apply-updates.timer", "bootc's automatic update"))
_OURS = "nodeagent.service"
_SYSROOT_HINT = "free space: rpm-ostree cleanup -br, df -h /sysroot"
_BOOT_HINT = "free space: rpm-ostree cleanup -r, ostree admin status (pinned deployments), ls /boot"


class Guards:
    """Checks before staging. ``min_free`` is in bytes."""

    def __init__(self, services: Services, root: Path, min_free: int) -> None:
        self._services = services
        self._root = root
        self.space = Space(root, min_free, sysroot_hint=_SYSROOT_HINT, boot_hint=_BOOT_HINT)

    async def check(self, session: Session, target: OsTarget) -> None:
        """Raise ``Refused`` (``OtherDriver``, ``BootFull``) or ``Terminal`` (``NoSpace``) if staging must not begin."""
        await self._other_driver(session)
        await asyncio.to_thread(self.space.check_sysroot)
        if target.image is not None or target.removed or target.without_removed:
            state = await session.read()
            await self.space.check_boot(state.deployments, state.entries)

    async def absent(self) -> Unreconcilable | None:
        """Return the error for a host without the daemon, None for a host with a daemon, even if it does not work."""
        return without_daemon() if await is_absent(self._services) else None

    async def check_staged(self, deployment: str) -> None:
        """Raise ``Terminal`` (``ImageWithoutDaemon``) for additions to an image that cannot keep them."""
        if added := await asyncio.to_thread(self._lost, deployment):
            message = f"the new image has no {SERVICE}, and the host has {one_line(', '.join(added))}"
            raise Terminal(message, reason=RpmOstreeReason.IMAGE_WITHOUT_DAEMON)

    def _lost(self, deployment: str) -> tuple[str, ...]:
        tree = directory_of(self._root, deployment)
        # Of a tree that cannot be read nothing is known. The verification after the boot has the last word.
        if not (tree / UNITS).is_dir() or has_daemon(tree):
            return ()
        return layers_of(read_origin(self._root, deployment))

    async def _other_driver(self, session: Session) -> None:
        for unit, name in _UPDATERS:
            await refuse_updater(self._services, unit, name)
        # A driver registers with the daemon, whichever program it is.
        name, unit = await asyncio.to_thread(self._registered)
        if unit not in ("", _OURS):
            await refuse_updater(self._services, unit, name)
        policy = str(await session.property("AutomaticUpdatePolicy"))
        if policy in ("stage", "apply"):
            hint = "set AutomaticUpdatePolicy=none in /etc/rpm-ostreed.conf, then: rpm-ostree reload"
            raise driven(f"rpm-ostree's AutomaticUpdatePolicy={policy}", hint)

    def _registered(self) -> tuple[str, str]:
        """Return name and unit of the update driver that is registered with the daemon. It may be stopped."""
        path = self._root / "run/rpm-ostree/update-driver.gv"
        try:
            with path.open("rb") as file:
                values = read_vardict(file.read(1 << 16))
            return string(values.get("driver-name")) or "an unnamed driver", string(values.get("driver-sd-unit")) or ""
        except (FileNotFoundError, ValueError):
            return "", ""
