# SPDX-License-Identifier: Apache-2.0
"""Run in a mount namespace with another /sys: answers what ``nodeagent.host.blockdev`` finds there, as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import cache

from nodeagent.features.fence.blockdev.find import Udev
from nodeagent.features.fence.decide.disks import DeviceNumber, find


def main() -> None:
    udev = Udev()
    answers = {}
    for text in sys.argv[1:]:
        found = find(number(text), cache(udev.node))
        answers[text] = None if found is None else asdict(found)
    print(json.dumps(answers))


def number(text: str) -> DeviceNumber:
    major, _, minor = text.partition(":")
    return DeviceNumber(int(major), int(minor))


if __name__ == "__main__":
    main()
