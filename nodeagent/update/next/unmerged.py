# SPDX-License-Identifier: Apache-2.0
"""Leave a locked deployment that another program started by a soft reboot.

It runs without the files of the host in /etc, so without the settings, the configs and the credentials of nodeagent, of
the kubelet and of sshd, and no command of ostree works. A full reboot starts the old deployment unchanged. The update
under way is continued there: nothing of its record is changed here, so that it finds the boot it knows.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from nodeagent.errors import AgentError, Refused
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.system import ShutdownKind
from nodeagent.update.run import Ports, UpdatePolicy, narrate

# Seconds after which an accepted reboot that did not take place is requested again.
LATE: Final = 600.0


async def leave_unmerged(ports: Ports, policy: UpdatePolicy) -> None:
    """Reboot fully if such a deployment runs. There is no loop of reboots: a full one never starts it.

    Raises ``Refused`` (``LockedSoftReboot``) if the settings allow no reboot or if it does not take place, and as
    ``Power.shut_down``.
    """
    if ports.os is None:
        return
    deployment = ""
    # A host that cannot be examined is no reason to reboot, nor to leave an update alone.
    with suppress(AgentError):
        deployment = await ports.os.port.unmerged_soft_reboot(running=True)
    if not deployment:
        return
    cause = f"{deployment} was started by a soft reboot of another program while it was locked: its /etc is not merged"
    if not policy.may_reboot:
        raise Refused(cause, reason=Reason.LOCKED_SOFT_REBOOT)
    message = f"{cause}; a full reboot follows, which starts the deployment from before"
    narrate(ports, await ports.store.load(), Warned, message, Reason.LOCKED_SOFT_REBOOT)

    async def confirm() -> None:
        """Neither lease nor drain: the services of the node run without its config already."""

    await ports.power.shut_down(
        ShutdownKind.REBOOT,
        f"nodeagent: {cause}",
        warn=policy.warn_users,
        force=False,
        confirm=confirm,
        warned=lambda: None,
        direct=False,
    )
    await asyncio.sleep(LATE)
    raise Refused(f"{cause}, and the reboot did not take place", reason=Reason.LOCKED_SOFT_REBOOT)
