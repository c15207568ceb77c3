# SPDX-License-Identifier: Apache-2.0
"""The picture of a plan: the changed entries on the left, the actions that they need on the right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from figures import arrow, picture, rectangle, text

LEFT, WIDE, RIGHT, NARROW = 20, 380, 540, 260
ROW, TOP = 52, 70


def plan(output: str) -> str:
    """``output`` is that of ``nodeagent plan --json``."""
    answer: Mapping[str, Any] = json.loads(output)
    actions = [action for action in answer["actions"] if action["type"] != "None"]
    rows = max(len(answer["changes"]), len(actions))
    title = f"A plan: what differs between {answer['from']} and {answer['to']}, and what that needs"
    height = TOP + ROW * rows + 50
    return picture(RIGHT + NARROW + 20, height, title, _parts(answer, actions, height))


def _parts(answer: Mapping[str, Any], actions: list[Mapping[str, Any]], height: int) -> Iterator[str]:
    yield text(LEFT, 54, "what changes", "small dim")
    yield text(RIGHT, 54, "what is done, each once and in this order", "small dim")
    places = {}
    for index, change in enumerate(answer["changes"]):
        y = TOP + ROW * index
        places[f"{change['domain']}:{change['key']}"] = y + 20
        yield rectangle(LEFT, y, WIDE, 40, "box")
        yield text(LEFT + 12, y + 17, PurePosixPath(change["key"]).name, "mono small bold")
        needs = "" if [action for action in change["actions"] if action["type"] != "None"] else ": nothing restarts"
        yield text(LEFT + 12, y + 33, f"{change['domain']} {change['change']}{needs}", "small dim")
    for index, action in enumerate(actions):
        y = TOP + ROW * index
        yield rectangle(RIGHT, y, NARROW, 40, "room")
        yield text(RIGHT + 12, y + 25, f"{index + 1}. {action['type']} {action.get('unit', '')}".rstrip(), "bold")
        for entry in action["because"]:
            start = places[entry]
            middle = (LEFT + WIDE + RIGHT) / 2
            yield arrow(f"M{LEFT + WIDE} {start}C{middle:g} {start} {middle:g} {y + 20} {RIGHT} {y + 20}")
    yield text(LEFT, height - 18, f"strongest disruption: {answer['disruption']}; no reboot, no drain", "bold")
