# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class ImportReason(ReasonEnum):
    # fmt: off
    ADOPTION_FAILED = "AdoptionFailed", Kind.INPUT, "move the named file away or correct it, then restart nodeagent", "The state that the machine-config-daemon left on this host cannot be taken over."
    # fmt: on
