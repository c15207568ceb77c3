"""A transaction's signals as ``StageProgress``.

What the daemon tells, and what it does not
- ``PercentProgress`` counts wrongly for tasks of n items (0 until the last, then 100): "(c/n)" in its text is right.
- Of a container image nobody tells bytes; each layer is a task "[i/n] ...", where n leaves out the layers that are
  there already.
- ``DownloadProgress`` comes for ostree remotes only. libostree's own progress is a structure of six groups; the last
  one is the bytes so far, the fifth the objects fetched and asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodeagent.core.plan.deployment import StageProgress

__all__ = ["Progress"]

_COUNTED = re.compile(r"\s*\((\d{1,9})/(\d{1,9})\)\s*$")
_LAYER = re.compile(r"^\[(\d{1,9})/(\d{1,9})\]\s*")
_MAX_TASK = 200  # characters; a layer is named by its digest, a message may be a page


class Progress:
    """Folds signals, in the order in which they come."""

    def __init__(self) -> None:
        self._task = StageProgress("")

    def take(self, member: str, body: Sequence[Any]) -> StageProgress | None:
        """What there is to tell after this signal; None if nothing new."""
        told = self._read(member, body)
        if told is None or told == self._task:
            return None
        self._task = told
        return told

    def _read(self, member: str, body: Sequence[Any]) -> StageProgress | None:
        match member, body:
            case (("Message" | "TaskBegin"), [str(text), *_]):
                return _counted(text, 0)
            case "PercentProgress", [str(text), int(percent), *_]:
                return _counted(text, percent)
            case "DownloadProgress", [_, _, _, _, [int(done), int(total)], [int(fetched), *_]]:
                return StageProgress("Fetching objects", min(done, total), total, fetched)
            case _:
                return None


def _counted(text: str, percent: int) -> StageProgress:
    text = " ".join(text.split())
    if layer := _LAYER.match(text):
        # What begins is not done.
        return _progress(text[layer.end() :], int(layer[1]) - 1, int(layer[2]))
    if counted := _COUNTED.search(text):
        return _progress(text[: counted.start()], int(counted[1]), int(counted[2]))
    return _progress(text, min(percent, 100), 100) if percent else _progress(text, 0, 0)


def _progress(task: str, done: int, total: int) -> StageProgress:
    return StageProgress(task[:_MAX_TASK], max(min(done, total), 0), total)
