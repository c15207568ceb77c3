from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.update.phase import Phase
from nodeagent.core.update.reboot_budget import Budget
from nodeagent.core.update.record import (
    RECORD_VERSION,
    Record,
    at_rest,
    lasting,
    record_from_dict,
    record_to_dict,
    reject,
    salvaged,
)
from nodeagent.core.update.rejections import LIMIT, Rejection, matching

text = st.text(max_size=8)
records = st.builds(
    Record,
    phase=st.sampled_from(Phase),
    since=text,
    reason=text,
    message=text,
    update_id=text,
    to_digest=text,
    plan=st.none() | st.dictionaries(text, text, max_size=2),
    writes=st.lists(st.tuples(st.just("WritePath"), text), max_size=3).map(tuple),
    fresh=st.lists(text, max_size=3).map(tuple),
    acted=st.booleans(),
    done=st.frozensets(text, max_size=3),
    skipped=st.frozensets(text, max_size=3),
    reboots=st.integers(0, 5),
    fallback=text,
    reverting=st.booleans(),
    tries=st.integers(0, 5),
    ran=st.frozensets(text, max_size=3),
    unwell=st.frozensets(text, max_size=3),
    before=st.dictionaries(text, text, max_size=3),
    repairs=st.booleans(),
    notes=st.lists(text, max_size=3).map(tuple),
    os_target=st.none() | st.dictionaries(text, text, max_size=2),
    os_from=text,
    staged=text,
    misses=st.integers(0, 5),
    merged=st.booleans(),
    restored=st.booleans(),
    rolled_back=st.booleans(),
    rejected=text,
    rejections=st.lists(st.builds(Rejection, text, text, text, text, text), max_size=3).map(tuple),
    avoided=text,
    avoided_meaning=text,
    budget=st.builds(Budget, st.floats(0, 1e9), text, st.floats(0, 1e9), st.lists(st.floats(0, 1e9)).map(tuple)),
)


@given(records)
def test_round_trip_through_json(record: Record) -> None:
    assert record_from_dict(json.loads(json.dumps(record_to_dict(record)))) == record


def test_an_unknown_key_of_a_newer_agent_is_dropped() -> None:
    assert record_from_dict({**record_to_dict(Record()), "later": 1}) == Record()


@given(records)
def test_a_record_at_rest_has_nothing_under_way(record: Record) -> None:
    rest = at_rest(record)
    assert (rest.phase, rest.update_id, rest.acted, rest.reverting) == (Phase.IDLE, "", False, False)
    assert (rest.staged, rest.os_target) == (record.staged, record.os_target), "ours to discard"
    assert rest.budget == record.budget
    assert (rest.rejections, rest.avoided) == (record.rejections, record.avoided), "applied on request only"


def failing(number: int, record: Record = Record()) -> Record:  # noqa: B008 - frozen
    record = Record(to_digest=f"d{number}", to_meaning=f"m{number}", to_name=f"n{number}", **lasting(record))
    return reject(record, f"it failed {number}", f"2026-01-01T00:00:{number:02d}Z")


def test_several_configs_that_failed_are_remembered_the_newest_last() -> None:
    record = failing(1, failing(3, failing(2, failing(1))))
    assert [one.digest for one in record.rejections] == ["d2", "d3", "d1"]
    assert (record.rejected, record.rejected_why) == ("d1", "it failed 1")
    assert matching(record.rejections, "d2", "") == Rejection("d2", "m2", "n2", "it failed 2", "2026-01-01T00:00:02Z")
    assert matching(record.rejections, "another text", "m3").digest == "d3"  # type: ignore[union-attr]
    assert matching(record.rejections, "another text", "") is None


def test_what_is_applied_now_has_not_failed_yet() -> None:
    record = failing(2, failing(1))
    kept = Record(**lasting(record, "another text", "m2"))
    assert ([one.digest for one in kept.rejections], kept.rejected) == (["d1"], "")
    kept = Record(**lasting(record, "d1", "m1"))
    assert ([one.digest for one in kept.rejections], kept.rejected, kept.rejected_why) == (["d2"], "d2", "it failed 2")


def test_what_takes_the_place_of_a_newer_record_keeps_what_outlives_updates() -> None:
    known = replace(failing(1), avoided="a", avoided_meaning="m", budget=Budget(5.0, "b", 1.0, (1.0,)))
    data = record_to_dict(known) | {"version": RECORD_VERSION + 1, "phase": "Dancing", "unfinished": "x"}
    assert lasting(salvaged(data, "unknown")) == lasting(known)
    assert salvaged(data, "unknown").unfinished == "x"
    damaged = data | {"rejections": 1, "budget": []}
    assert lasting(salvaged(damaged, "unknown"))["rejections"] == ()


def test_rejections_are_bounded() -> None:
    record = Record()
    for number in range(LIMIT + 5):
        record = failing(number, record)
    record = reject(record, "long " * 1000, "")
    assert len(record.rejections) == LIMIT
    assert len(record.rejections[-1].why) < 500 < len(record.rejected_why)
    assert record.rejections[0].digest == "d5"


def test_the_rejection_of_0_1_0_is_kept() -> None:
    """It has the digest of the text of one config."""
    old = record_to_dict(failing(1))
    del old["rejections"], old["to_meaning"], old["avoided_meaning"]
    assert record_from_dict(old).rejections == (Rejection("d1", why="it failed 1"),)
    new = record_to_dict(failing(2, record_from_dict(old)))
    assert [one.digest for one in record_from_dict(new).rejections] == ["d1", "d2"]
    assert (new["rejected"], new["rejected_why"]) == ("d2", "it failed 2"), "for 0.1.0 after a rollback of the OS"


def test_a_record_that_0_1_0_wrote_is_read_whole() -> None:
    old = json.loads((Path(__file__).parent / "record-0.1.0.json").read_text())
    record = record_from_dict(old)
    assert record.rejections == (Rejection(old["rejected"], why=old["rejected_why"]),)
    assert (record.avoided, record.avoided_meaning, record.budget) == (old["avoided"], "", Budget())
    again = record_to_dict(record)
    assert {key: again[key] for key in old} == old, "and 0.1.0 reads what we write, after a rollback of the OS"


@pytest.mark.parametrize(
    "damage",
    [
        {"version": RECORD_VERSION + 1},
        {"version": None},
        {"phase": "Dancing"},
        {"done": "abc"},
        {"done": [1]},
        {"reboots": "2"},
        {"acted": 1},
        {"plan": []},
        {"os_target": []},
        {"unwell": "abc"},
        {"writes": [["WritePath"]]},
        {"budget": []},
        {"budget": {"spent": 1}},
        {"budget": {"spent": ["x"]}},
        {"budget": {"boot_id": 1}},
        {"budget": {"seen": None}},
        {"rejections": {}},
        {"rejections": ["d1"]},
        {"rejections": [{"digest": 1}]},
        {"rejections": [{}]},
    ],
)
def test_damage_is_an_error(damage: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        record_from_dict({**record_to_dict(Record()), **damage})
