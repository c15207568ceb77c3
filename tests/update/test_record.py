# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import typing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.boot import RebootKind
from nodeagent.errors import Cause
from nodeagent.host.store.record_codec import RECORD_VERSION, NewerRecord, record_from_dict, record_to_dict, salvaged
from nodeagent.reasons import Reason, reason_of
from nodeagent.update.history.lasting import LIMIT, Budget, Lasting, Partial, Rejection, matching
from nodeagent.update.record import OsProgress, Record, UnitsBefore, at_rest, reject
from nodeagent.update.states import Abort, Apply, Fallback, Leg, Phase, Rest, Revert, Unreleased
from tests.update.table import NEXT

text = st.text(max_size=8)
texts = st.frozensets(text, max_size=3)
words = st.dictionaries(text, text, max_size=3)
counts = st.integers(0, 5)
progress = {
    "first_write_boot_id": text,
    "boots": counts,
    "requested_reboots": counts,
    "done": texts,
    "skipped": texts,
    "restarting": text,
    "invocation": text,
    "soft_reboots": counts,
}
mappings = st.none() | st.dictionaries(text, text, max_size=2)
rejections = st.lists(st.builds(Rejection, text, text, text, text, text), max_size=3).map(tuple)
budgets = st.builds(Budget, st.floats(0, 1e9), text, st.floats(0, 1e9), st.lists(st.floats(0, 1e9)).map(tuple))
causes = st.builds(Cause, st.sampled_from(Reason) | st.just(reason_of("OfANewerAgent")), text)
partials = st.none() | st.builds(
    Partial, text, text, text, causes, st.tuples(text), st.lists(st.tuples(text, text)).map(tuple), text, st.booleans()
)
OTHERS = {
    "safe_for": text,
    "partial": partials,
    "since": text,
    "reason": text,
    "message": text,
    "update_id": text,
    "to_digest": text,
    "plan": mappings,
    "writes": st.lists(st.tuples(st.just("WritePath"), text), max_size=3).map(tuple),
    "newly_managed": st.lists(text, max_size=3).map(tuple),
    "arguments": st.lists(text, max_size=3).map(tuple),
    "reboot_requests": counts,
    "reboot_called": st.booleans(),
    "units_before": st.builds(UnitsBefore, texts, texts, words, words, st.booleans()),
    "repairs": st.booleans(),
    "notes": st.lists(text, max_size=3).map(tuple),
    "drifted": st.lists(text, max_size=3).map(tuple),
    "held": text,
    "lasting": st.builds(Lasting, rejections, text, text, budgets, partial=partials),
}
reasons = st.text(min_size=1, max_size=8)


def legs(kind: type[Leg], phase: Phase) -> st.SearchStrategy[Leg]:
    ended = st.one_of(
        st.builds(Abort, reasons, text, text), st.builds(Apply, **progress), st.builds(Revert, **progress)
    )
    flag = st.booleans()
    late = text if phase in (Phase.WRITING, Phase.ACTING) else st.just("")
    strategies: dict[type[Leg], st.SearchStrategy[Leg]] = {
        Abort: st.builds(Abort, reasons, text, text),
        Apply: st.builds(
            Apply,
            **progress,
            reboot_instead=late,
            etc_merge_repaired=flag,
            kind=st.sampled_from(RebootKind),
            soft_failed=text,
        ),
        Fallback: st.builds(Fallback, **progress, because=reasons, kind=st.sampled_from(RebootKind), soft_failed=text),
        Revert: st.builds(
            Revert, **progress, reason=text, undo_actions=flag, restored=flag, rolled_back=flag, fallback=text
        ),
        Unreleased: st.builds(Unreleased, ended),
    }
    return strategies.get(kind, st.builds(kind))


@st.composite
def records(draw: st.DrawFn) -> Record:
    kind, phase = draw(st.sampled_from(list(NEXT)))
    target = st.none() if kind is Fallback else mappings
    os = st.builds(
        OsProgress, target, text, text, text, counts, counts, text, st.dictionaries(text, text), mappings, text
    )
    return Record(phase, draw(legs(kind, phase)), **draw(st.fixed_dictionaries(OTHERS)), os=draw(os))


@given(records())
def test_round_trip_through_json(record: Record) -> None:
    assert record_from_dict(json.loads(json.dumps(record_to_dict(record)))) == record


def test_an_unknown_key_of_a_newer_agent_is_dropped() -> None:
    assert record_from_dict({**record_to_dict(Record()), "later": 1}) == Record()


def test_a_read_of_the_record_evaluates_no_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    """They took nine tenths of the time of a read."""
    data = record_to_dict(Record())
    # msgspec evaluates those of each type at its first use.
    record_from_dict(data)
    monkeypatch.setattr(typing, "_eval_type", lambda *_, **__: pytest.fail("evaluated again"))
    assert record_from_dict(data) == Record()


@given(records())
def test_a_record_at_rest_has_nothing_under_way(record: Record) -> None:
    rest = at_rest(record)
    assert (rest.phase, rest.update_id, rest.leg) == (Phase.IDLE, "", Rest())
    target = record.os.kept if record.os.target is None else record.os.target
    assert (rest.os.staged, rest.os.target) == (record.os.staged, target), "ours to discard"
    assert rest.lasting == record.lasting


def failing(number: int, record: Record = Record()) -> Record:  # noqa: B008 - frozen
    record = Record(to_digest=f"d{number}", to_meaning=f"m{number}", to_name=f"n{number}", lasting=record.lasting)
    return reject(record, f"it failed {number}", f"2026-01-01T00:00:{number:02d}Z")


def test_several_configs_that_failed_are_remembered_the_newest_last() -> None:
    lasting = failing(1, failing(3, failing(2, failing(1)))).lasting
    assert [one.digest for one in lasting.rejections] == ["d2", "d3", "d1"]
    assert (lasting.failed_digest, lasting.failed_why) == ("d1", "it failed 1")
    assert matching(lasting.rejections, "d2", "") == Rejection("d2", "m2", "n2", "it failed 2", "2026-01-01T00:00:02Z")
    assert matching(lasting.rejections, "another text", "m3").digest == "d3"  # type: ignore[union-attr]
    assert matching(lasting.rejections, "another text", "") is None


def test_what_is_applied_now_has_not_failed_yet() -> None:
    lasting = failing(2, failing(1)).lasting
    kept = lasting.without("another text", "m2")
    assert ([one.digest for one in kept.rejections], kept.failed_digest, kept.failed_why) == (
        ["d1"],
        "d1",
        "it failed 1",
    )
    kept = lasting.without("d1", "m1")
    assert ([one.digest for one in kept.rejections], kept.failed_digest) == (["d2"], "d2")
    assert kept.failed_why == "it failed 2"


def test_what_takes_the_place_of_a_newer_record_keeps_what_outlives_updates() -> None:
    known = failing(1)
    lasting = replace(
        known.lasting, rolled_back_digest="a", rolled_back_meaning="m", budget=Budget(5.0, "b", 1.0, (1.0,))
    )
    known = replace(known, lasting=lasting)
    data = record_to_dict(known) | {"version": RECORD_VERSION + 1, "phase": "Dancing", "unfinished": ["x"]}
    assert (salvaged(data, "unknown").lasting, salvaged(data, "unknown").unfinished) == (lasting, ("x",))
    damaged = data | {"lasting": data["lasting"] | {"rejections": 1, "budget": []}, "held": 5, "os": {"target": []}}
    record = salvaged(damaged, "unknown")
    assert (record.lasting.rejections, record.lasting.rolled_back_digest) == ((), "a")
    assert (record.update_id, record.held, record.lasting.budget) == ("unknown", "", Budget())
    assert salvaged(damaged | {"lasting": 1, "os": None}, "unknown").lasting == Lasting()


def test_rejections_are_bounded() -> None:
    record = Record()
    for number in range(LIMIT + 5):
        record = failing(number, record)
    record = reject(record, "long " * 1000, "")
    assert len(record.lasting.rejections) == LIMIT
    assert len(record.lasting.rejections[-1].brief) < 500 < len(record.lasting.failed_why)
    record = failing(99, record)
    assert len(record.lasting.rejections[-2].why) < 500, "the history has the rest"
    assert record.lasting.rejections[0].digest == "d6"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"version": RECORD_VERSION + 1, "leg": 5}, f"it has version {RECORD_VERSION + 1}"),
        ({"phase": "Dancing"}, "it is in the phase 'Dancing'"),
        ({"leg": {"type": "Dance"}}, "it is in the leg 'Dance'"),
        ({"leg": {"type": "Unreleased", "leg": {"type": "Dance"}}}, "it is in the leg 'Dance'"),
    ],
)
def test_a_newer_record_is_no_damage(data: dict[str, Any], words: str) -> None:
    with pytest.raises(NewerRecord, match=words):
        record_from_dict({**record_to_dict(Record()), **data})


@pytest.mark.parametrize(
    "damage",
    [
        {"version": RECORD_VERSION + 1},
        {"version": None},
        {"phase": 5},
        {"leg": None},
        {"leg": {}},
        {"leg": {"type": "Unreleased"}},
        {"leg": {"type": "Unreleased", "leg": {"type": "Rest"}}},
        {"phase": "Acting", "leg": {"type": "Rest"}},
        {"phase": "Acting", "leg": {"type": "Apply", "done": "abc"}},
        {"phase": "Acting", "leg": {"type": "Apply", "done": [1]}},
        {"phase": "Acting", "leg": {"type": "Apply", "boots": "2"}},
        {"phase": "Reverting", "leg": {"type": "Revert", "restored": 1}},
        {"plan": []},
        {"os": {"target": []}},
        {"units_before": {"healthy": "abc"}},
        {"writes": [["WritePath"]]},
        {"lasting": []},
        {"lasting": {"budget": []}},
        {"lasting": {"budget": {"spent": 1}}},
        {"lasting": {"budget": {"spent": ["x"]}}},
        {"lasting": {"budget": {"boot_id": 1}}},
        {"lasting": {"budget": {"seen": None}}},
        {"lasting": {"rejections": {}}},
        {"lasting": {"rejections": ["d1"]}},
        {"lasting": {"rejections": [{"digest": 1}]}},
        {"lasting": {"rejections": [{}]}},
    ],
)
def test_damage_is_an_error(damage: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        record_from_dict({**record_to_dict(Record()), **damage})
