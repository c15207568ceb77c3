# SPDX-License-Identifier: Apache-2.0
"""What a plan says about the boots of the new OS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodeagent.features.boot_counting.decide import BootCounting, CountedBy, phrase


def plan_lines(part: Mapping[str, Any]) -> Iterator[str]:
    counting = BootCounting(CountedBy(part["by"]), str(part["why"]), bool(part["greenboot"]))
    yield f"boots of the new OS: {phrase(counting)}"
