from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.phase import Phase
from nodeagent.core.record import RECORD_VERSION, Record, at_rest, record_from_dict, record_to_dict

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
    os_target=st.none() | st.dictionaries(text, text, max_size=2),
    os_from=text,
    staged=text,
    misses=st.integers(0, 5),
    merged=st.booleans(),
    restored=st.booleans(),
    rolled_back=st.booleans(),
    rejected=text,
    avoided=text,
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
    assert (rest.rejected, rest.avoided) == (record.rejected, record.avoided), "not tried by itself"


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
    ],
)
def test_damage_is_an_error(damage: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        record_from_dict({**record_to_dict(Record()), **damage})
