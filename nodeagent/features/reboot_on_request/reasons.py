# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class RebootRequestReason(ReasonEnum):
    # fmt: off
    REBOOT_FILE_UNSAFE = "RebootFileUnsafe", Kind.REFUSED, "remove the file that the message names; root alone may write it and its directory", "A file that requests a reboot was not obeyed: users other than root could have written it, or it cannot be removed."
    REBOOT_TOO_SOON = "RebootTooSoon", Kind.REFUSED, "find what requests reboots again and again, or request one with nodeagent reboot --now", "A file requests a reboot again so soon after the last one (reboot.request_pause), which may be a loop."
    # fmt: on
