# SPDX-License-Identifier: Apache-2.0
"""Which login proves that a host can be reached, how long a trial lasts, and what the store has of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import InvalidInput
from nodeagent.features.trial.decide import (
    Login,
    Trial,
    from_text,
    in_words,
    requested,
    seconds_of,
    to_text,
    why_no_proof,
)
from nodeagent.features.trial.door import DOOR, KEEP
from nodeagent.features.trial.reasons import TrialReason
from tests.features.trial.examples import TRIAL

SSH = Login("7", "sshd", "user", began=91.0, remote_host="192.0.2.7")
OLD, NONE = TrialReason.OLD_LOGIN, TrialReason.NO_LOGIN
TIMES = st.floats(0, 1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (SSH, None),
        (replace(SSH, remote_host="2001:db8::7"), None),
        (replace(SSH, remote_host="bastion.example.com"), None),
        (replace(SSH, service="cockpit"), None),
        (replace(SSH, service="login", kind="user-early", remote_host=""), None),
        (replace(SSH, began=90.0), OLD),
        (replace(SSH, began=1.0), OLD),
        (replace(SSH, remote_host="127.0.0.1"), OLD),
        (replace(SSH, remote_host="::1"), OLD),
        (replace(SSH, remote_host="localhost"), OLD),
        (replace(SSH, service="systemd-run0"), OLD),
        (replace(SSH, service="su-l"), OLD),
        (replace(SSH, service="crond", kind="background"), NONE),
        (replace(SSH, kind="greeter"), NONE),
        (replace(SSH, kind=""), NONE),
        (None, NONE),
    ],
)
def test_which_session_proves_that_the_host_can_be_reached(login: Login | None, reason: TrialReason | None) -> None:
    cause = why_no_proof(login, TRIAL)
    assert (cause.reason if cause is not None else None) == reason


@given(began=TIMES, clock=TIMES)
def test_only_a_login_after_the_beginning_counts(began: float, clock: float) -> None:
    proves = why_no_proof(replace(SSH, began=began), replace(TRIAL, login_clock=clock)) is None
    assert proves == (began > clock)


@given(began=TIMES, seconds=st.integers(60, 86400), later=TIMES)
def test_its_time_is_what_was_requested(began: float, seconds: int, later: float) -> None:
    trial = replace(TRIAL, began=began, seconds=float(seconds))
    assert trial.left(began) == pytest.approx(seconds, abs=1e-6)
    assert trial.left(began + later) <= trial.left(began)
    assert trial.left(began + seconds) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("update", "boot", "decided", "continues"),
    [
        ("u1", "boot-1", {}, True),
        ("u1", "boot-2", {}, False),
        ("u2", "boot-1", {}, False),
        ("u1", "boot-2", {"kept_by": "jane"}, True),
        ("u1", "boot-2", {"over": True}, True),
        ("u2", "boot-2", {"kept_by": "jane"}, False),
    ],
)
def test_what_was_decided_outlives_a_boot_and_the_time_does_not(
    update: str, boot: str, decided: dict[str, object], continues: bool
) -> None:
    assert replace(TRIAL, **decided).continues(update, boot) is continues  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("10m", 600), ("10min", 600), ("2h", 7200), ("1d", 86400)])
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == requested(str(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "0m", "59s", "25h", "-1m", "1.5h", "10 weeks", "²m", "9" * 5000 + "m"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        seconds_of(text)


@given(st.text(max_size=12))
def test_the_option_of_a_request_is_checked(text: str) -> None:
    assert DOOR.check_request is not None
    try:
        seconds = requested(text)
    except ValueError:
        with pytest.raises(InvalidInput) as refused:
            DOOR.check_request({"trial": text})
        assert refused.value.reason == TrialReason.BAD_TRIAL
    else:
        assert seconds == 0 or 60 <= seconds <= 86400
        DOOR.check_request({"trial": text})


def test_words() -> None:
    assert [in_words(seconds) for seconds in (60, 90, 600, 3600, 5400, 86400)] == [
        "1 min",
        "90 s",
        "10 min",
        "1 h",
        "90 min",
        "24 h",
    ]


@given(st.builds(Trial, began=TIMES, login_clock=TIMES, seconds=TIMES))
def test_the_store_has_all_of_it(trial: Trial) -> None:
    assert from_text(to_text(trial)) == trial


@pytest.mark.parametrize("text", ["", "{", "[]", '{"update_id": 1}', '{"update_id": "u"}'])
def test_a_damaged_note_is_no_trial(text: str) -> None:
    assert from_text(text) is None


def test_the_method_needs_an_action_of_its_own() -> None:
    assert KEEP.action == "keep"
