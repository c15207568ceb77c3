# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class BootcReason(ReasonEnum):
    # fmt: off
    NO_PULLER = "NoPuller", Kind.UNRECONCILABLE, "build bootc into the image (it brings ostree container), or remove the OS from the config"
    # fmt: on
