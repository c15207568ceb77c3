# SPDX-License-Identifier: Apache-2.0
"""Misbehaviour on demand: rules in a small JSON file, read again at every point where one could apply.

    {"rules": [{"at": "layer:2", "do": "die"}, {"at": "pull", "do": "fail", "error": "network", "times": 3}]}

`at` is a point (see README.md); one without its `:detail` matches all of them. `do` is die, hang, succeed, fail, sleep,
drop-name or swallow. `times` limits a rule to its first matches, `for` to so many seconds after the file was written.
How often a rule was used is kept beside the file, so that it counts over restarts of the daemon.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin.errors import Busy, Failed, InstantSuccess
from integration.standins.rpmostreed.standin.gir import GLib


@dataclass(frozen=True, slots=True)
class Rule:
    at: str
    do: str
    seconds: float = 0.0
    error: str = ""  # a kind that pulls translate into the real words of this release
    message: str = ""
    ignore_cancel: bool = False


class NetworkTrouble(Exception):
    """Injected: `error` of a rule that only the puller can put into words."""


class FaultInjection:
    """The rules. Safe to use from the main thread and from the worker."""

    def __init__(self, path: Path, drop_name: Callable[[], None]) -> None:
        self._path = path
        self._drop_name = drop_name
        self._lock = threading.Lock()

    def act(self, point: str, cancellable: Any = None) -> None:
        """Do what the file says at this point. Raises what the rule asks for; usually just returns."""
        rule = self._find(point)
        if rule is not None:
            self._do(rule, cancellable)

    def swallows(self, method: str) -> bool:
        """Return whether a call gets no answer; whatever else the file says about the method is done as by act()."""
        rule = self._find(f"method:{method}")
        if rule is not None and rule.do != "swallow":
            self._do(rule, None)
            return False
        return rule is not None

    def _find(self, point: str) -> Rule | None:
        """The rule for this point, counted as used; None is the normal case."""
        with self._lock:
            try:
                content = json.loads(self._path.read_text())
                written = self._path.stat().st_mtime
            except (FileNotFoundError, json.JSONDecodeError):
                return None  # being replaced just now, or there is none
            for index, entry in enumerate(content.get("rules", [])):
                if entry["at"] not in (point, point.split(":")[0]):
                    continue
                if "for" in entry and time.time() > written + entry["for"]:  # noqa: TID251
                    continue
                if "times" in entry and not self._use(written, index, entry["times"]):
                    continue
                return _rule(entry)
            return None

    def _do(self, rule: Rule, cancellable: Any) -> None:
        match rule.do:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                self._wait(float("inf"), None if rule.ignore_cancel else cancellable)
            case "sleep":
                self._wait(rule.seconds, None if rule.ignore_cancel else cancellable)
            case "drop-name":
                self._drop_name()
            case "succeed":
                raise InstantSuccess
            case "fail" if rule.error == "busy":
                raise Busy(rule.message or "System transaction in progress")
            case "fail" if rule.error:
                raise NetworkTrouble(rule.error)
            case "fail":
                raise Failed(rule.message or "Injected fault")
            case other:
                raise Failed(f"unknown fault '{other}' at {rule.at}")

    def _wait(self, seconds: float, cancellable: Any) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if cancellable is not None:
                try:
                    cancellable.set_error_if_cancelled()
                except GLib.Error as error:
                    raise Failed(str(error.message)) from None
            time.sleep(min(left, 0.05))

    def _use(self, written: float, index: int, times: int) -> bool:
        state = self._path.with_name(self._path.name + ".used")
        try:
            used = json.loads(state.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            used = {}
        if used.get("written") != written:
            used = {"written": written}
        count = int(used.get(str(index), 0))
        if count >= times:
            return False
        used[str(index)] = count + 1
        state.write_text(json.dumps(used))
        return True


def _rule(entry: dict[str, Any]) -> Rule:
    return Rule(
        at=entry["at"],
        do=entry["do"],
        seconds=float(entry.get("seconds", 0.0)),
        error=entry.get("error", ""),
        message=entry.get("message", ""),
        ignore_cancel=bool(entry.get("ignore_cancel", False)),
    )
