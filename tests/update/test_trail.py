# SPDX-License-Identifier: Apache-2.0
"""The trail of an update: folded from its events, bounded, and independent of the wall clock."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.update.history.trail import (
    Boot,
    Result,
    StagingPace,
    Trail,
    elapsed,
    gap_before,
    trail_from_dict,
    trail_to_dict,
)
from nodeagent.update.history.trail_fold import MAX_SAMPLES, Moment, closed, fold, leaving
from nodeagent.update.ports import events
from nodeagent.update.ports.events import StepProgress, UpdateContext, UpdateEvent
from nodeagent.update.states import Phase

RESTART = StepProgress("restart app.service", 1, 1, 0, "restart:app.service")
FETCH = StepProgress("Fetching objects", 1, 2, 50)


def at(mono: float, boot: str = "one", wall: float | None = None) -> Moment:
    """``wall`` is the offset of the wall clock; by default it is that of the boot."""
    offset = wall if wall is not None else 1_000_000.0
    text = datetime.fromtimestamp(offset + mono, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Moment(text, boot, mono)


def on(phase: Phase) -> UpdateContext:
    return UpdateContext(phase, "u1", "old", "new", "one")


def entered(phase: Phase, message: str = "") -> events.PhaseEntered:
    return events.PhaseEntered(on(phase), message)


def trail_of(*moments: tuple[UpdateEvent, Moment]) -> Trail:
    trail = Trail()
    for event, moment in moments:
        trail = fold(trail, event, moment)
    return trail


def test_phases_steps_and_writes_have_their_lengths() -> None:
    write = replace(RESTART, name="write /etc/x")
    trail = trail_of(
        (entered(Phase.LEASING), at(1.0)),
        (entered(Phase.WRITING), at(3.0)),
        (events.StepStarted(on(Phase.WRITING), write), at(3.0)),
        (events.StepDone(on(Phase.WRITING), write, 0.5), at(3.5)),
        (entered(Phase.ACTING), at(4.0)),
        (events.StepStarted(on(Phase.ACTING), RESTART), at(4.5)),
        (events.StepDone(on(Phase.ACTING), RESTART, 2.0), at(6.5)),
        (entered(Phase.VERIFYING), at(7.0)),
    )
    trail = closed(trail, at(17.0))
    assert [(span.name, span.seconds) for span in trail.phases] == [
        ("Leasing", 2.0),
        ("Writing", 1.0),
        ("Acting", 3.0),
        ("Verifying", 10.0),
    ]
    assert [(span.name, span.seconds, span.result, span.phase) for span in trail.steps] == [
        ("restart app.service", 2.0, Result.DONE, "Acting")
    ]
    assert (trail.writes, elapsed(trail)) == (1, 16.0)


def test_a_failed_a_skipped_and_an_interrupted_step() -> None:
    trail = trail_of(
        (entered(Phase.ACTING), at(0.0)),
        (events.StepSkipped(on(Phase.ACTING), replace(RESTART, name="reload a"), "not here"), at(1.0)),
        (events.StepStarted(on(Phase.ACTING), RESTART), at(1.0)),
        (events.StepFailed(on(Phase.ACTING), RESTART, "exit status 1", "JobFailed"), at(2.0)),
        (events.StepStarted(on(Phase.ACTING), replace(RESTART, name="restart b")), at(3.0)),
    )
    trail = closed(trail, at(1.0, "two"))
    assert [(span.name, span.seconds, span.result, span.message) for span in trail.steps] == [
        ("reload a", 0.0, "skipped", "not here"),
        ("restart app.service", 1.0, "failed", "exit status 1"),
        ("restart b", 0.0, "", ""),
    ]


def test_a_step_that_reports_no_end_ends_with_the_next_one() -> None:
    trail = trail_of(
        (entered(Phase.ACTING), at(0.0)),
        (events.StepStarted(on(Phase.ACTING), RESTART), at(1.0)),
        (events.StepStarted(on(Phase.ACTING), replace(RESTART, name="restart b")), at(4.0)),
        (events.StepDone(on(Phase.ACTING), replace(RESTART, name="restart b"), 1.0), at(5.0)),
        (entered(Phase.VERIFYING), at(9.0)),
    )
    assert [(span.name, span.seconds, span.result) for span in trail.steps] == [
        ("restart app.service", 3.0, ""),
        ("restart b", 1.0, "done"),
    ]


def test_a_wait_ends_when_the_update_goes_on() -> None:
    waiting = events.UpdateWaiting(on(Phase.LEASING), "zincati holds the lease", "LeaseHeld")
    trail = trail_of(
        (entered(Phase.LEASING), at(0.0)),
        (waiting, at(1.0)),
        (waiting, at(16.0)),
        (entered(Phase.WRITING), at(31.0)),
        (entered(Phase.VERIFYING), at(32.0)),
        (entered(Phase.VERIFYING, "waiting for a.service"), at(33.0)),
        (entered(Phase.VERIFYING, "waiting for b.service"), at(35.0)),
        (entered(Phase.RELEASING), at(36.0)),
    )
    assert [(span.message, span.phase, span.reason, span.seconds) for span in trail.waits] == [
        ("zincati holds the lease", "Leasing", "LeaseHeld", 30.0),
        ("waiting for a.service", "Verifying", "", 2.0),
        ("waiting for b.service", "Verifying", "", 1.0),
    ]
    assert [span.name for span in trail.phases] == ["Leasing", "Writing", "Verifying", "Releasing"]


def test_a_reboot_is_between_two_boots() -> None:
    trail = trail_of((entered(Phase.LEASING), at(100.0)), (entered(Phase.REBOOTING), at(110.0)))
    blocked = events.UpdateWaiting(on(Phase.REBOOTING), "backup", "RebootBlocked")
    trail = leaving(fold(trail, blocked, at(111.0)), at(120.0))
    # The next boot began 15 s after the last sign of life, and the agent started 5 s later.
    trail = fold(trail, entered(Phase.VERIFYING), at(5.0, "two", wall=1_000_135.0))
    trail = closed(trail, at(25.0, "two", wall=1_000_135.0))
    assert [(boot.id, boot.accepted) for boot in trail.boots] == [("one", 120.0), ("two", None)]
    assert [(span.name, span.boot, span.seconds) for span in trail.phases] == [
        ("Leasing", 0, 10.0),
        ("Rebooting", 0, 10.0),
        ("Verifying", 1, 20.0),
    ]
    assert trail.waits[0].seconds == 9.0
    assert (gap_before(trail, 1), elapsed(trail)) == (20.0, 60.0)


def test_a_wall_clock_that_is_set_changes_no_length() -> None:
    trail = trail_of(
        (entered(Phase.LEASING), at(100.0)),
        (entered(Phase.REBOOTING), at(110.0)),
        (entered(Phase.VERIFYING), at(5.0, "two", wall=1_000_166.0)),
        (events.UpdateResumed(on(Phase.VERIFYING), "verify"), at(8.0, "two", wall=1_000_135.0)),
    )
    trail = closed(trail, at(15.0, "two", wall=1_000_135.0))
    assert trail.boots[1].clock_steps == ((8.0, -31.0),)
    assert trail.phases[-1].seconds == 10.0
    assert gap_before(trail, 1) == 30.0


def test_a_clock_that_is_behind_after_a_boot_leaves_the_gap_unknown() -> None:
    trail = trail_of((entered(Phase.LEASING), at(100.0)), (entered(Phase.VERIFYING), at(5.0, "two", wall=0.0)))
    assert (gap_before(trail, 1), elapsed(trail)) == (None, 0.0)
    at_once = Trail(boots=(Boot("one", 1.0, 9.0, 10.0), Boot("two", 1.0, 2.0, 18.0)))
    assert gap_before(at_once, 1) == 0.0


def test_the_tasks_of_a_staging_follow_each_other() -> None:
    trail = trail_of(
        (entered(Phase.STAGING), at(0.0)),
        (events.StagingAdvanced(on(Phase.STAGING), FETCH, 5), at(1.0)),
        (events.StagingAdvanced(on(Phase.STAGING), replace(FETCH, percent=60), 6), at(2.0)),
        (events.StagingAdvanced(on(Phase.STAGING), replace(FETCH, name="Writing objects"), 6), at(4.0)),
        (entered(Phase.LEASING), at(9.0)),
    )
    assert [(span.name, span.seconds, span.result) for span in trail.steps] == [
        ("Fetching objects", 3.0, "done"),
        ("Writing objects", 5.0, "done"),
    ]


@dataclass(frozen=True)
class Paced(UpdateEvent):
    """Stands for the event of a feature that paces a staging."""

    now: StagingPace | None

    def pace(self) -> StagingPace | None:
        return self.now


def test_the_course_of_the_fence_keeps_the_worst_of_each_part() -> None:
    trail = trail_of((entered(Phase.STAGING), at(0.0)))
    for second in range(1000):
        slow = second == 777
        pace = StagingPace(True, 1_000_000 if slow else 12_000_000, 0.4 if slow else 0.004, 0.0, 0, "")
        trail = fold(trail, Paced(on(Phase.STAGING), pace), at(10.0 + second))
    fence = trail.fence
    assert fence is not None
    assert len(fence.samples) <= MAX_SAMPLES
    assert (fence.every, fence.seconds) == (16.0, 999.0)
    assert max(sample[2] or 0 for sample in fence.samples) == 400.0
    assert min(sample[1] or 0 for sample in fence.samples) == 1_000_000
    assert trail == fold(trail, Paced(on(Phase.STAGING), None), at(1009.0))


def test_a_fence_that_is_not_up_yet_has_no_course() -> None:
    pace = StagingPace(False, None, None, 0.0, 0, "")
    trail = trail_of((entered(Phase.STAGING), at(0.0)), (Paced(on(Phase.STAGING), pace), at(1.0)))
    assert trail.fence is None


PACES = st.builds(
    StagingPace,
    st.booleans(),
    st.none() | st.integers(0, 10**9),
    st.none() | st.floats(0, 9),
    st.floats(0, 1e6),
    st.integers(0, 10**6),
    st.just("probe"),
)
CONTEXTS = st.builds(on, st.sampled_from(Phase))
TEXTS = st.text(max_size=400)
STEPS = st.builds(StepProgress, TEXTS, st.just(1), st.just(1), st.just(0))
EVENTS = st.one_of(
    st.builds(events.PhaseEntered, CONTEXTS, TEXTS, TEXTS),
    st.builds(events.StepStarted, CONTEXTS, STEPS),
    st.builds(events.StepDone, CONTEXTS, STEPS, st.floats(0, 10)),
    st.builds(events.StepSkipped, CONTEXTS, STEPS, TEXTS),
    st.builds(events.StepFailed, CONTEXTS, STEPS, TEXTS, TEXTS),
    st.builds(events.Warned, CONTEXTS, TEXTS, TEXTS, STEPS),
    st.builds(events.UpdateWaiting, CONTEXTS, TEXTS, TEXTS),
    st.builds(events.HostDegraded, CONTEXTS, TEXTS, TEXTS),
    st.builds(events.StagingAdvanced, CONTEXTS, STEPS, st.none()),
    st.builds(Paced, CONTEXTS, st.none() | PACES),
)
MOMENTS = st.builds(at, st.floats(0, 1e6), st.sampled_from(("one", "two")), st.floats(0, 1e9))


@given(st.lists(st.tuples(EVENTS, MOMENTS), max_size=30), MOMENTS)
def test_any_course_can_be_stored(course: list[tuple[UpdateEvent, Moment]], end: Moment) -> None:
    trail = closed(trail_of(*course), end)
    for span in (*trail.phases, *trail.steps, *trail.waits):
        assert span.seconds is not None
        assert span.seconds >= 0
    if trail.phases:
        assert trail_from_dict(json.loads(json.dumps(trail_to_dict(trail)))) == trail


def test_an_endless_update_stays_small() -> None:
    trail = Trail()
    for number in range(3000):
        moment = at(float(number), f"boot-{number // 50}")
        phase = (Phase.STAGING, Phase.REBOOTING, Phase.VERIFYING)[number % 3]
        step = StepProgress(f"{number} " + "x" * 5000, 1, 1, 0)
        waiting = events.UpdateWaiting(on(phase), f"{number} " + "y" * 5000, "LeaseHeld")
        for event in (entered(phase, "z" * 5000), events.StepStarted(on(phase), step), waiting):
            trail = fold(trail, event, moment)
    assert len(json.dumps(trail_to_dict(closed(trail, at(1.0, "end"))))) < 100_000
    assert trail.omitted > 3000
    assert [boot.id for boot in trail.boots][:2] == ["boot-0", "boot-1"]
    assert trail.boots[trail.phases[-1].boot].id == "boot-59"
    assert all(span.boot < len(trail.boots) for span in (*trail.phases, *trail.steps, *trail.waits))


def test_a_trail_that_is_not_understood_is_none() -> None:
    for data in (None, [], {"phases": 1}, {"phases": [{"name": 5}]}, "x"):
        assert trail_from_dict(data) == Trail()
