# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class FragmentReason(ReasonEnum):
    # fmt: off
    FRAGMENTS_INVALID = "FragmentsInvalid", Kind.INPUT, "nodeagent render DIRECTORY shows all problems; correct or remove the named files", "The directory of MachineConfigs cannot be merged to one config."
    # fmt: on
