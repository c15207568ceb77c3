# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about


class Trial(Keys):
    config: Annotated[str, about("the config on trial")]
    back: Annotated[str, about("the config that the host goes back to; empty for its state before the first one")]
    seconds: Annotated[float, about("time for the trial in each boot")]
    since: Annotated[str, about("when it began in this boot, RFC 3339")]
    until: Annotated[str, about("when the config is taken back, by the present wall clock, RFC 3339")]
    requester: Annotated[str, about("who requested it")]
    kept_by: Annotated[str, about("who kept it; empty before")]


class PlannedTrial(Keys):
    seconds: Annotated[float, about("time for the trial in each boot")]
    back: Annotated[str, about("the config that the host would go back to; empty for its state before the first one")]
    reboot: Annotated[bool, about("whether the way back reboots the host")]


class Answer(Keys):
    schema: Annotated[Literal["nodeagent/keep/v1"], about("the schema of this object")]
    effect: Annotated[Literal["kept", "reverting"], about("whether it stays, or is taken back as requested")]
    config: Annotated[str, about("the config on trial")]
    digest: Annotated[str, about("SHA-256 of its text")]
    update_id: Annotated[str, about("id of its update")]
    back: Annotated[str, about("the config before it; empty without one")]


STATUS: Final = {"trial": Annotated[Trial | None, about("the trial of a config; null without one")]}
PLAN: Final = {"trial": Annotated[PlannedTrial, about("the trial, if the config would be applied with `--try`")]}
ANSWERS: Final = {"nodeagent/keep/v1": Answer}
