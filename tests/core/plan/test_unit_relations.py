# SPDX-License-Identifier: Apache-2.0
"""Units that a restart or a stop takes along, from the relations between them."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.core.plan.steps import ActStep, ClearState, ReloadUnit, RestartUnit, StopUnit
from nodeagent.core.plan.unit_relations import (
    MAX_ALONG,
    Relations,
    order_after,
    relations_in,
    started_on_demand,
    taken_along,
)
from tests.world.run import config

pytestmark = pytest.mark.finding(
    "units: what stops along", "What a stop or a restart takes along is known before the update."
)


def related(**units: str) -> dict[str, Relations]:
    """``a="restarts: b c; stops: d"``; all are services but those with a dot."""
    found = {}
    for unit, text in units.items():
        parts = dict(part.strip().split(": ") for part in text.split(";"))
        found[full(unit)] = Relations(**{key: frozenset(map(full, names.split())) for key, names in parts.items()})
    return found


def full(name: str) -> str:
    return name if "." in name else f"{name}.service"


A, B, C, D, E = map(full, "abcde")


@pytest.mark.parametrize(
    ("step", "known", "restarted", "stopped", "held", "conflicts"),
    [
        (RestartUnit(A), related(a="restarts: b", b="restarts: c"), {B, C}, set(), set(), set()),
        (StopUnit(A), related(a="restarts: b", b="restarts: c; stops: d"), set(), {B, C, D}, set(), set()),
        (ClearState(A, ()), related(a="restarts: b"), set(), {B}, set(), set()),
        (ReloadUnit(A), related(a="restarts: b"), set(), set(), set(), set()),
        (RestartUnit(A), related(a="stops: b", b="restarts: c"), set(), {B, C}, set(), set()),
        (RestartUnit(A), related(a="restarts: b", b="stops: c"), {B}, {C}, set(), set()),
        (RestartUnit(A), related(a="restarts: b; stops: b"), {B}, set(), set(), set()),
        (RestartUnit(A), related(a="conflicts: b"), set(), set(), set(), {B}),
        (StopUnit(A), related(a="conflicts: b"), set(), set(), set(), set()),
        (RestartUnit(A), related(a="triggers: b"), set(), set(), set(), set()),
        (RestartUnit(A), related(a="restarts: a b", b="restarts: a"), {B}, set(), set(), set()),
    ],
)
def test_along(
    step: ActStep,
    known: dict[str, Relations],
    restarted: set[str],
    stopped: set[str],
    held: set[str],
    conflicts: set[str],
) -> None:
    along = taken_along([step], known)
    assert (set(along.restarted), set(along.stopped)) == (restarted, stopped)
    assert (set(along.held), set(along.conflicts)) == (held, conflicts)
    assert set(along.all.values()) <= {A}


def test_what_a_socket_starts_is_held() -> None:
    known = {"a.socket": Relations(triggers=frozenset({A})), A: Relations(restarts=frozenset({B}))}
    along = taken_along([RestartUnit("a.socket")], known)
    assert (set(along.held), set(along.stopped)) == ({A}, {B})
    assert order_after("a.socket", known) == {A}
    # Instances of Accept=yes hold a connection each.
    known = {"a.socket": Relations(triggers=frozenset({"a@1-2.service"}))}
    assert not taken_along([RestartUnit("a.socket")], known).all


def test_units_that_a_step_names_are_not_along() -> None:
    known = related(a="restarts: b; stops: c")
    assert not taken_along([RestartUnit(A), RestartUnit(B), StopUnit(C)], known).all
    assert order_after(A, known) == {B, C}


def test_the_number_is_bounded() -> None:
    known = {f"{n}.service": Relations(restarts=frozenset({f"{n + 1}.service"})) for n in range(10 * MAX_ALONG)}
    assert len(taken_along([RestartUnit("0.service")], known).all) <= MAX_ALONG


def test_relations_that_a_config_brings() -> None:
    units = [
        UnitEntry(A, contents="[Unit]\nConflicts=b.service c.service\nPropagatesStopTo=d.service\n[Service]\n"),
        UnitEntry(B, dropins={"10-x.conf": "[Unit]\nPartOf=e.service\nBindsTo=%i.service\n"}),
        UnitEntry("x.socket", contents="[Socket]\nListenStream=/run/x\n"),
        UnitEntry("y.socket", contents="[Socket]\nListenStream=/run/y\nService=a.service\n"),
        UnitEntry("z.socket", contents="[Socket]\nListenStream=/run/z\nAccept=yes\n"),
        UnitEntry("m.automount", contents="[Automount]\nWhere=/m\n"),
        UnitEntry("masked.service", mask=True),
    ]
    found = relations_in(config("a", units=units))
    assert found[A] == Relations(conflicts=frozenset({B, C}), stops=frozenset({D}))
    assert found[E].restarts == {B}
    assert found[B].conflicts == found[C].conflicts == {A}
    assert {unit: set(one.triggers) for unit, one in found.items() if one.triggers} == {
        "x.socket": {"x.service"},
        "y.socket": {A},
        "m.automount": {"m.mount"},
    }


@pytest.mark.parametrize(
    ("unit", "text", "started"),
    [
        ("a.timer", "", "a.service"),
        ("a.path", "", "a.service"),
        ("a.socket", "", "a.service"),
        ("a.automount", "", "a.mount"),
        ("a.timer", "[Timer]\nUnit=b.target\n", "b.target"),
        ("a.timer", "[Timer]\nUnit=b.target\nUnit=\n", "b.target"),
        ("a.path", "[Path]\nUnit=b.service\n", "b.service"),
        ("a.path", "[Timer]\nService=b.service\n", "a.service"),
        ("a.socket", "[Socket]\nService=b.service\n", "b.service"),
        ("a.socket", "[Socket]\nAccept=Yes\n", "a@.service"),
        ("a.socket", "[Socket]\nAccept=no\n", "a.service"),
        ("a.timer", "[Timer]\nUnit=b-%i.service\n", ""),
        ("a.service", "", ""),
        ("a.mount", "", ""),
    ],
)
def test_what_is_started_on_demand(unit: str, text: str, started: str) -> None:
    assert started_on_demand(unit, [text]) == started
