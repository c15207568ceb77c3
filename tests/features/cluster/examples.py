# SPDX-License-Identifier: Apache-2.0
"""What the cluster adds to the tables of the base's tests."""

from __future__ import annotations

from typing import Final

from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.events import DrainAdvanced
from tests.support.third_party import BAD

PODS: Final = tuple(Remaining("shop", f"web-{number}", PodWait.REQUESTED) for number in range(7))
EVENTS: Final = (DrainAdvanced(PODS), DrainAdvanced(()))
THIRD_PARTY: Final = (DrainAdvanced((Remaining("ns", "pod", PodWait.OTHER, BAD),)),)
