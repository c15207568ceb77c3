# SPDX-License-Identifier: Apache-2.0
"""Roll back without a prompt: deploy the previous tree once more where GRUB would ask for a password.

``rpm-ostree rollback`` keeps the boot menu entry of the previous deployment. A new deployment gets an entry without the
list of users. A host that waits for a password at its console does not come back, so this is worth the second tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from nodeagent.core.config.kargs import line_of
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.rpmostree.client import SysrootState
from nodeagent.host.rpmostree.deployments import has_superusers
from nodeagent.host.rpmostree.transaction import Timing
from nodeagent.host.systemd_jobs import run_unit
from nodeagent.reasons import Reason


class Redeployment:
    """Deploys an old tree again, in a transient unit: the unit of nodeagent cannot write /sysroot."""

    def __init__(self, make_bus: Callable[[], Bus], root: Path, timing: Timing) -> None:
        self._make_bus = make_bus
        self._root = root
        self._timing = timing

    async def needed(self, state: SysrootState, deployment: Deployment) -> bool:
        """Return whether GRUB asks for a password before it boots ``deployment``."""
        entry = state.entries.get(deployment.id)
        return entry is not None and entry.restricted and await asyncio.to_thread(has_superusers, self._root)

    async def deploy(self, old: Deployment, read: Callable[[], Awaitable[SysrootState]]) -> str:
        """Deploy the tree of ``old`` again, with its origin and kernel arguments, and return the new id.

        ``read`` reads the deployments afterwards. Raises ``Terminal`` (``RollbackAsksPassword``).
        """
        cause = ""
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, _command(old), "Deploy the old tree for nodeagent", self._timing.redeploy)
        except AgentError as error:
            cause = f": {error.message}"
        state = await read()
        first = state.first
        # A redeploy that reports success may still have made another deployment, so the result is checked.
        if first.checksum != old.checksum or first.booted or await self.needed(state, first):
            message = f"GRUB asks for a password before it boots {old.id}, and it cannot be deployed again{cause}"
            raise Terminal(message, reason=Reason.ROLLBACK_ASKS_PASSWORD)
        return first.id


def _command(old: Deployment) -> tuple[str, ...]:
    """Return the command that deploys the tree of ``old`` again, first in boot order.

    libostree merges /etc of the booted deployment into it.
    """
    # systemd expands variables in the arguments of a command.
    tokens = [token.replace("$", "$$") for token in line_of(old.kernel_arguments)]
    origin = f"/ostree/deploy/{old.osname}/deploy/{old.id.removeprefix(f'{old.osname}-')}.origin"
    command = ("/usr/bin/ostree", "admin", "deploy", f"--os={old.osname}", f"--origin-file={origin}", "--karg-none")
    return (*command, *(f"--karg-append={token}" for token in tokens), old.checksum)
