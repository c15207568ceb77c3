# SPDX-License-Identifier: Apache-2.0
"""The message of the day: what an admin who logs in has to know about this host. "" if that is nothing."""

from __future__ import annotations

from nodeagent.reasons import Reason, hint
from nodeagent.report.status import Status
from nodeagent.update.states import Phase


def motd(status: Status) -> str:
    """Return the message, which ends with a newline. Times in it are RFC 3339."""
    match status.phase:
        case Phase.IDLE if status.reboot_required:
            lines = ["this host needs a reboot: a staged deployment takes effect with it"]
        case Phase.IDLE:
            return ""
        # A host that went back to its previous config serves, so it is not called degraded here.
        case Phase.DEGRADED if status.reason == Reason.REVERTED:
            lines = [f"since {status.since}: {status.message}", f"what now: {hint(status.reason)}"]
        case Phase.DEGRADED:
            lines = [
                f"degraded since {status.since}: {status.reason}: {status.message}",
                f"what now: {hint(status.reason)}",
            ]
        case _ if status.reason == Reason.REBOOT_REQUIRED:
            lines = [f"reboot required: {status.message}", f"what now: {hint(status.reason)}"]
        case _:
            what = "this host is going to reboot" if status.reboot_required else "services may be restarted"
            lines = [f"updating to {status.goal} since {status.since} ({status.phase}); {what}"]
            if status.message:
                lines.append(": ".join(filter(None, (status.reason, status.message))))
            lines.append("nodeagent status --watch follows the update")
    return "nodeagent: " + "\n  ".join(lines) + "\n"
