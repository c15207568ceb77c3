# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from nodeagent.door import Base, BusMethod, Caller, Door, Feature
from nodeagent.errors import InvalidInput
from nodeagent.features.trial.decide import requested
from nodeagent.features.trial.events import STATUS, VIEWS
from nodeagent.features.trial.reasons import TrialReason
from nodeagent.reasons import Reason

KEEP: Final = BusMethod(
    name="Keep",
    takes="a{sv}",
    arguments=("options", "answer"),
    action="keep",
    about="Keeps the config that is on trial, if the login session of the caller began after the trial. Options: "
    "`without_login` `b`: any caller may; `revert` `b`: take it back now.",
)


def _open(base: Base) -> Feature:
    from nodeagent.features.trial.guard import Trials
    from nodeagent.features.trial.logins import Logins

    logins, power = Logins(base.bus), base.ports.power
    # logind has the beginning of a session on the clock of ``time.monotonic``.
    trials = Trials(base.store, base.clock, boot_id=power.boot_id, login_clock=time.monotonic)

    async def keep(caller: Caller, values: Sequence[Any]) -> str:
        # An unknown option may be a condition of a newer client, so it is refused.
        flags = _flags(values[0])
        if flags["revert"]:
            trial = await trials.take_back(caller.name)
        else:
            session = None if flags["without_login"] else partial(logins.of, caller.connection)
            trial = await trials.keep(caller.name, session)
        answer = {"config": trial.config, "digest": trial.digest, "update_id": trial.update_id, "back": trial.back}
        return json.dumps({"schema": "nodeagent/keep/v1", "effect": "kept" if trial.kept_by else "reverting", **answer})

    return Feature(guard=trials, calls={KEEP.name: keep})


def _flags(options: Mapping[str, Any]) -> dict[str, bool]:
    """Raise ``InvalidInput`` (``BadOption``)."""
    flags = {"without_login": False, "revert": False, **options}
    if len(flags) > 2 or not all(isinstance(flag, bool) for flag in flags.values()) or all(flags.values()):
        message = "the options are without_login or revert, true or false"
        raise InvalidInput(message, reason=Reason.BAD_OPTION)
    return flags


def _check_request(options: Mapping[str, str]) -> None:
    """Raise ``InvalidInput`` (``BadTrial``)."""
    try:
        requested(options.get("trial", ""))
    except ValueError as error:
        raise InvalidInput(f"the time of the trial: {error}", reason=TrialReason.BAD_TRIAL) from None


DOOR: Final = Door(
    title="Trials",
    page="usage/try.md",
    reasons=TrialReason,
    events=VIEWS,
    status=STATUS,
    methods=(KEEP,),
    check_request=_check_request,
    open=_open,
)
