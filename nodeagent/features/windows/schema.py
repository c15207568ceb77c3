# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about


class Freeze(Keys):
    name: Annotated[str, about("why; empty if the setting has no name")]
    begins: Annotated[str, about("RFC 3339, in UTC")]
    ends: Annotated[str, about("RFC 3339, in UTC; it does not belong to the freeze")]


class HostBegins(Keys):
    restart: Annotated[str, about("without a drain and a reboot; empty: not in this window, or at any time of it")]
    drain: Annotated[str, about("with a drain")]
    reboot: Annotated[str, about("with a reboot")]
    os: Annotated[str, about("with another OS")]


class Window(Keys):
    begins: Annotated[str, about("RFC 3339, in UTC; empty: for weeks already")]
    ends: Annotated[str, about("RFC 3339, in UTC; empty: never")]
    host_begins: Annotated[HostBegins, about("when this host begins an update in it, by what the update does")]


class Estimate(Keys):
    seconds: Annotated[float, about("how long such an update takes, with a margin")]
    slowest: Annotated[float, about("the slowest of the last ones, in seconds; the expected time without one")]
    updates: Annotated[int, about("how many updates of the history that is from; 0 for none")]
    fits: Annotated[bool, about("whether a window is long enough, or need not be")]


class Estimates(Keys):
    restart: Annotated[Estimate, about("without a drain and a reboot")]
    drain: Annotated[Estimate, about("with a drain")]
    reboot: Annotated[Estimate, about("with a reboot")]
    os: Annotated[Estimate, about("with another OS")]


class Answer(Keys):
    schema: Annotated[Literal["nodeagent/windows/v1"], about("the schema of this object")]
    source: Annotated[Literal["daemon", "command"], about("command: the daemon did not answer, so there is no history")]
    zone: Annotated[str, about("time zone of the windows and freezes")]
    now: Annotated[str, about("RFC 3339, in UTC")]
    open: Annotated[bool, about("whether updates may begin now")]
    frozen: Annotated[Freeze | None, about("the freeze that holds now; null without one")]
    spread: Annotated[int, about("minutes over which hosts begin")]
    end_inside: Annotated[bool, about("whether an update must end inside of its window")]
    windows: Annotated[list[Window], about("the present window and the next ones, without the freezes")]
    freezes: Annotated[list[Freeze], about("those that are not over")]
    estimates: Annotated[Estimates, about("how long updates take, by what they do")]


ANSWERS: Final = {"nodeagent/windows/v1": Answer}
