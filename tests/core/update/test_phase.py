from __future__ import annotations

import pytest

from nodeagent.core.update.phase import DEADLINE, DISRUPTIVE, NEXT, Phase, graph
from nodeagent.core.update.record import IllegalTransition, Record, advance


def test_every_phase_is_in_both_tables() -> None:
    assert set(NEXT) == set(DEADLINE) == set(Phase)


def test_every_phase_can_be_reached_and_left() -> None:
    reached = {after for targets in NEXT.values() for after in targets}
    assert reached == set(Phase)
    assert all(NEXT.values())


def test_idle_is_reachable_from_everywhere() -> None:
    for phase in Phase:
        seen, todo = {phase}, [phase]
        while todo:
            for after in NEXT[todo.pop()] - seen:
                seen.add(after)
                todo.append(after)
        assert Phase.IDLE in seen


def test_a_disruptive_phase_is_left_only_through_a_release_or_degraded() -> None:
    """Nobody forgets the lease: Idle has no edge from a phase that wrote something."""
    wrote = DISRUPTIVE - {Phase.DRAINING}
    assert not [phase for phase in wrote if Phase.IDLE in NEXT[phase]]


@pytest.mark.parametrize("start", list(Phase))
@pytest.mark.parametrize("to", list(Phase))
def test_advance_follows_the_table(start: Phase, to: Phase) -> None:
    record = Record(phase=start, tries=3, message="old")
    if to in NEXT[start]:
        after = advance(record, to, now="2026-01-01T00:00:00Z", boot_id="b", reason="Why")
        assert (after.phase, after.reason, after.message, after.tries, after.boot_id) == (to, "Why", "", 0, "b")
    else:
        with pytest.raises(IllegalTransition, match=f"{start} -> {to}"):
            advance(record, to, now="", boot_id="")


def test_graph_has_every_edge() -> None:
    drawn = {tuple(line.split(" --> ")) for line in map(str.strip, graph().splitlines()) if " --> " in line}
    edges = {(str(phase), str(after)) for phase, targets in NEXT.items() for after in targets}
    assert drawn == edges | {("[*]", "Idle")}
