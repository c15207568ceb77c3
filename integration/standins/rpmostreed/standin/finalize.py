# SPDX-License-Identifier: Apache-2.0
"""FinalizeDeployment, which unlocks and then reboots the host, and what may be in the way of a reboot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from integration.standins.rpmostreed.standin import container_image, layering, staging
from integration.standins.rpmostreed.standin.cleanup import bump_mtime
from integration.standins.rpmostreed.standin.errors import Failed, text_of
from integration.standins.rpmostreed.standin.gir import GLib
from integration.standins.rpmostreed.standin.log import log
from integration.standins.rpmostreed.standin.options import Options
from integration.standins.rpmostreed.standin.transaction import Work


@dataclass(frozen=True, slots=True)
class Finalize:
    osname: str
    options: Options

    def __call__(self, work: Work) -> None:
        deployments = work.sysroot.get_deployments()
        if not deployments:
            raise Failed("No deployments found")
        first = deployments[0]
        if not first.is_staged():
            raise Failed("No pending staged deployment found")
        if first.get_osname() != self.osname:
            raise Failed(f"Staged deployment is not for osname '{self.osname}'")
        found = self._check_checksum(work, first)
        check_inhibitors(work)
        if staging.is_locked(work, first):
            try:
                staging.unlock(work, first)
            except GLib.Error as error:
                raise Failed(f"Failed to unlock finalization of staged deployment: {text_of(error)}") from None
        elif not self.options.boolean("allow-unlocked"):
            raise Failed("Staged deployment already unlocked")
        bump_mtime(work)
        log(f"Finalized deployment; rebooting into {found}")
        work.host.request_reboot()

    def _check_checksum(self, work: Work, deployment: Any) -> str:
        """Return the checksum that a caller expects: the base commit, or the digest where that is an image."""
        base = layering.base_of(work.repo, deployment.get_csum())
        image = container_image.image_of(work.repo, base)
        found = image[0] if image is not None else base
        expected = self.options.text("checksum")
        if expected is None and not self.options.boolean("allow-missing-checksum"):
            raise Failed("Missing expected checksum")
        if expected is not None and expected != found:
            raise Failed(f"Expected staged base checksum {expected}, but found {found}")
        return found


def check_inhibitors(work: Work) -> None:
    """Raises Failed if an inhibitor blocks the shutdown; delays do not count."""
    try:
        reply = work.host.call_bus(
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            "ListInhibitors",
            None,
            "(a(ssssuu))",
        )
    except GLib.Error as error:
        raise Failed(f"Checking systemd inhibitor locks: {text_of(error)}") from None
    blocking = [(who, why) for what, who, why, mode, *_ in reply.unpack()[0] if "shutdown" in what and mode == "block"]
    if not blocking:
        return
    who, why = blocking[0]
    text = f"Reboot blocked by a systemd inhibitor lock in `block` mode\nHeld by: {who}\nReason: {why}"
    if len(blocking) > 1:
        text += (
            f"\nand {len(blocking) - 1} other blocking inhibitor lock(s)\nUse `systemd-inhibit --list` to see details"
        )
    raise Failed(text)
