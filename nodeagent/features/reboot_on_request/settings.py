# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodeagent.settings.part import Part

# What is below /run ends with the boot.
RunPath = Annotated[
    str,
    Meta(pattern=r"^(/run(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){1,8})?$", description='a path below /run, or ""'),
]


class RebootRequestSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Requests for a reboot by other programs.

    ``request_file``: a file that requests a reboot of this host in the next window; its first line is the reason. The
    agent removes it. Only root may write it and its directory. "" for none. It is below /run, so that no boot finds it
    again.

    ``when_required``: what follows from /run/reboot-required, which packages of the host write: ``report`` shows it,
    ``obey`` reboots the host in the next window as well. report: whatever writes the file would decide about reboots.

    ``request_pause``: seconds between two reboots that a file requests. 3600: a program that requests one after each
    boot must not keep the host from its work.
    """

    group: ClassVar[str] = "reboot"

    request_file: RunPath = "/run/nodeagent/reboot"
    when_required: Literal["report", "obey"] = "report"
    request_pause: Annotated[float, Meta(ge=0, le=604800, description="seconds, at most 604800")] = 3600.0
