# SPDX-License-Identifier: Apache-2.0
"""The trial in the status: with its events, while the daemon is stopped, and when it is over."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.features.trial.decide import NOTE, to_text
from nodeagent.features.trial.events import STATUS, TrialBegun, TrialStatus
from nodeagent.report.motd import motd
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.update.ports.events import PhaseEntered, UpdateContext, UpdateWaiting
from nodeagent.update.states import Phase
from tests.features.trial.examples import TRIAL

UNTIL = "2026-11-21T03:10:00Z"
ABOUT = UpdateContext(Phase.VERIFYING, "u1", "worker-1", "worker-2")
(PART,) = STATUS


def shown(*events: PhaseEntered | TrialBegun | UpdateWaiting) -> Status:
    status = Status()
    for event in events:
        status = fold(status, event)
    return status


BEGUN = (
    PhaseEntered(ABOUT),
    TrialBegun(ABOUT, TRIAL, UNTIL),
    UpdateWaiting(ABOUT, f"worker-2 is on trial until {UNTIL}", "OnTrial"),
)


def test_it_is_in_the_status_while_its_update_is_verified() -> None:
    status = shown(*BEGUN)
    trial = status_to_dict(status, daemon="running")["trial"]
    assert (trial["config"], trial["back"], trial["until"]) == ("worker-2", "worker-1", UNTIL)
    assert PART.phrase(TrialStatus(TRIAL, UNTIL), status) == f"on trial until {UNTIL}"
    assert [sample.value for sample in PART.samples(status)] == [1795230600.0]
    for phase in (Phase.RELEASING, Phase.REVERTING):
        after = fold(status, PhaseEntered(replace(ABOUT, phase=phase)))
        assert status_to_dict(after, daemon="running")["trial"] is None
        assert not list(PART.samples(after))


def test_the_message_of_the_day_names_it() -> None:
    text = motd(shown(*BEGUN))
    assert f"OnTrial: worker-2 is on trial until {UNTIL}" in text


def test_the_store_has_it_while_the_daemon_is_stopped() -> None:
    part = PART.stored({NOTE: to_text(TRIAL)}.__getitem__)
    assert part == TrialStatus(TRIAL, "2026-11-21T03:10:00.000Z")
    assert PART.to_json(part, Status(phase=Phase.VERIFYING, update_id="u1"))["config"] == "worker-2"
    # The note of a trial that is over stays until the next one.
    assert PART.to_json(part, Status(phase=Phase.IDLE, update_id="u1")) is None
    assert PART.to_json(part, Status(phase=Phase.VERIFYING, update_id="u2")) is None
    for text in ("", "{", to_text(replace(TRIAL, since="soon"))):
        assert PART.stored(lambda _, text=text: text) is None
