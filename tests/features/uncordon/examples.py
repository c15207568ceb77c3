# SPDX-License-Identifier: Apache-2.0
"""What the uncordon of a degraded node adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.uncordon.degraded_node import DegradedUncordoned

EVENTS: Final = (DegradedUncordoned("3f2b", "the node is ready, and nodeagent has removed its cordon"),)
