# SPDX-License-Identifier: Apache-2.0
"""The parts of the status that belong to features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nodeagent import installed
from nodeagent.door import Door
from nodeagent.report import status_fold
from nodeagent.report.counters import Counters
from nodeagent.report.exposition import Family, MetricKind, render
from nodeagent.report.metrics import families, samples
from nodeagent.report.part_view import Disruption, PartView, TypedProperty
from nodeagent.report.parts import registry
from nodeagent.report.parts.registry import disruption_of, part_views
from nodeagent.report.properties import properties, properties_of
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.report.status_line import line
from nodeagent.report.views.registry import views
from nodeagent.update.ports.events import PhaseEntered, UpdateContext
from nodeagent.update.states import Phase


@dataclass(frozen=True)
class Sprinkler:
    litres: int


@dataclass(frozen=True)
class Hose:
    is_open: bool


@dataclass
class Showers:
    count: int = 0


LITRES = Family("nodeagent_sprinkler_litres", "Litres.")
SHOWERS = Family("nodeagent_showers_total", "Showers.", kind=MetricKind.COUNTER)


def litres_of(status: Status) -> int:
    sprinkler = status.part(Sprinkler)
    return sprinkler.litres if sprinkler else 0


def litres(status: Status) -> list[Any]:
    return [LITRES.at(litres_of(status))]


VIEW = PartView(
    part=Sprinkler,
    key="sprinkler",
    to_json=lambda sprinkler, status: {"litres": sprinkler.litres, "phase": str(status.phase)},
    phrase=lambda sprinkler, _status: f"{sprinkler.litres} litres" if sprinkler.litres else "",
    properties={"Litres": TypedProperty("u", "the litres", lambda status: litres_of(status))},
    disruption=lambda sprinkler, _: Disruption(requester="rain", reason="dry") if sprinkler.litres > 99 else None,
    lasts=lambda _, status: status.phase is not Phase.REBOOTING,
    stored=lambda note: Sprinkler(int(text)) if (text := note("litres")) else None,
    families=(LITRES,),
    samples=litres,
    counter_families=(SHOWERS,),
    counter_samples=lambda counters: [SHOWERS.at(counters.part(Showers).count)],
)


@pytest.fixture
def sprinkler() -> Iterator[None]:
    with installed.replaced([Door(title="Sprinkler", page="sprinkler.md", status=(VIEW,))]):
        yield


def test_a_part_is_found_by_its_class() -> None:
    status = Status().with_part(Sprinkler(3)).with_part(Hose(True))
    assert (status.part(Sprinkler), status.part(Hose)) == (Sprinkler(3), Hose(True))
    assert status.with_part(Sprinkler(4)).part(Sprinkler) == Sprinkler(4)
    without = status.without_part(Sprinkler)
    assert (without.part(Sprinkler), without.part(Hose)) == (None, Hose(True))
    assert without == Status().with_part(Hose(True))
    assert Status().without_part(Sprinkler) == Status()


@pytest.mark.usefixtures("sprinkler")
def test_a_part_ends_with_the_first_event_after_which_it_does_not_last() -> None:
    status = fold(Status().with_part(Sprinkler(3)), PhaseEntered(UpdateContext(Phase.ACTING)))
    assert status.part(Sprinkler) == Sprinkler(3)
    assert fold(status, PhaseEntered(UpdateContext(Phase.REBOOTING))).part(Sprinkler) is None


def test_a_part_stays_after_the_event_that_set_it(sprinkler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    view = replace(views()[PhaseEntered], fold=lambda status, _: status.with_part(Sprinkler(1)))
    monkeypatch.setattr(status_fold, "view_of", lambda _: view)
    event = PhaseEntered(UpdateContext(Phase.REBOOTING))
    assert fold(Status(Phase.REBOOTING), event).part(Sprinkler) == Sprinkler(1)


@pytest.mark.usefixtures("sprinkler")
def test_a_part_has_its_key_in_the_status() -> None:
    assert status_to_dict(Status(), daemon="")["sprinkler"] is None
    there = status_to_dict(Status().with_part(Sprinkler(3)), daemon="")
    assert there["sprinkler"] == {"litres": 3, "phase": "Idle"}
    keys = list(there)
    assert keys.index("lease") + 1 == keys.index("sprinkler")


@pytest.mark.usefixtures("sprinkler")
def test_a_part_has_its_phrase_in_the_line() -> None:
    assert line(Status().with_part(Sprinkler(3))) == "Idle: 3 litres"
    assert line(Status().with_part(Sprinkler(0))) == line(Status()) == "Idle"


@pytest.mark.usefixtures("sprinkler")
def test_a_part_has_its_metrics() -> None:
    counters = Counters()
    counters.part(Showers).count += 2
    page = render(samples(Status().with_part(Sprinkler(3)), counters, "1"))
    assert "nodeagent_sprinkler_litres 3\n" in page
    assert page.endswith("nodeagent_showers_total 2\n")
    assert {LITRES, SHOWERS} < set(families())
    assert "nodeagent_sprinkler_litres 0\n" in render(samples(Status(), Counters(), "1"))


@pytest.mark.usefixtures("sprinkler")
def test_a_part_has_its_properties() -> None:
    assert properties()["Litres"].signature == "u"
    assert properties_of(Status().with_part(Sprinkler(3)))["Litres"] == 3
    assert properties_of(Status())["Litres"] == 0


@pytest.mark.usefixtures("sprinkler")
def test_a_part_may_be_a_disruption() -> None:
    assert disruption_of(Status()) is None
    assert disruption_of(Status().with_part(Sprinkler(3))) is None
    assert disruption_of(Status().with_part(Sprinkler(100))) == Disruption(requester="rain", reason="dry")


def test_each_part_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [view.key for view in part_views()]
    monkeypatch.setattr(registry, "_BASE", ())
    with installed.replaced(()):
        base = status_to_dict(Status(), daemon="").keys()
    assert len({*keys, *base}) == len(keys) + len(base)
