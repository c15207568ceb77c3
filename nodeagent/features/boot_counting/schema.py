# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final

from nodeagent.contract.keys import Keys, about
from nodeagent.features.boot_counting.decide import CountedBy


class BootCount(Keys):
    by: Annotated[CountedBy, about("who counts the boots; empty if they are not counted")]
    why: Annotated[str, about("why they are not counted; empty if they are")]
    greenboot: Annotated[bool, about("whether greenboot is installed, which checks each boot")]


PLAN: Final = {"boot_count": Annotated[BootCount, about("on a host, if the plan has another OS: who counts its boots")]}
