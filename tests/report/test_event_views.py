# SPDX-License-Identifier: Apache-2.0
"""Every kind of event has a view, and every view has what the status, the journal, the metrics and the node need."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import nodeagent
from nodeagent import installed
from nodeagent.core.syslog import DEBUG, ERROR, INFO, NOTICE, WARNING
from nodeagent.door import Door
from nodeagent.report.counters import Counters
from nodeagent.report.event_view import EventView
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.report.views.registry import message_ids, view_of, views
from nodeagent.update.ports.events import Event, ProblemSolved, StatusProblem, Warned
from tests.support.event_examples import EXAMPLES

ROOT = Path(__file__).parents[2]
CATALOGS = [
    path for tree in ("systemd", "nodeagent/features/*/tree") for path in ROOT.glob(f"{tree}/usr/lib/systemd/catalog/*")
]
PRIORITIES = (ERROR, WARNING, NOTICE, INFO, DEBUG)


def kinds(base: type[Event] = Event) -> Iterator[type[Event]]:
    """Yield the kinds of events of the package, which are the classes that no other class extends."""
    # A dataclass with slots is a second class beside the one of its statement, which may not be collected yet.
    subclasses = [
        kind for kind in base.__subclasses__() if getattr(sys.modules[kind.__module__], kind.__name__) is kind
    ]
    for subclass in subclasses:
        yield from kinds(subclass)
    if not subclasses and base.__module__.startswith("nodeagent."):
        yield base


def test_every_kind_of_event_has_one_view() -> None:
    for module in pkgutil.walk_packages(nodeagent.__path__, "nodeagent."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert set(views()) == set(kinds())
    assert all(view.event is kind for kind, view in views().items())


def test_every_kind_of_event_has_an_id_of_its_own_in_the_catalog() -> None:
    ids = [view.id for kind, view in views().items() if kind not in (StatusProblem, ProblemSolved)]
    assert len(set(ids)) == len(ids)
    assert views()[StatusProblem].id == views()[ProblemSolved].id == views()[Warned].id
    assert (
        set(ids)
        == set(message_ids())
        == set(re.findall(r"^-- ([0-9a-f]{32})$", "\n".join(path.read_text() for path in CATALOGS), re.MULTILINE))
    )
    assert all(view.priority in PRIORITIES for view in views().values())


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_is_an_entry_a_status_and_counts(event: Event) -> None:
    view, status = view_of(event), Status(current="worker-1")
    after = view.fold(status, event)
    assert isinstance(after, Status)
    assert view.sentence(event, after).strip()
    assert view.level_of(event) in (None, *PRIORITIES)
    assert all(isinstance(value, str | int | float | None) for value in view.fields(event, after).values())
    view.count(event, after, Counters())
    node_events = list(view.node_events(event, after, NodeMemory(status)))
    assert all(isinstance(node_event, NodeEvent) for node_event in node_events)


def test_there_is_an_example_of_every_kind_of_event() -> None:
    assert {type(event) for event in EXAMPLES} == set(views())


def test_an_event_of_a_feature_is_shown_while_it_is_installed() -> None:
    @dataclass(frozen=True)
    class Rained(Event):
        pass

    view = EventView(event=Rained, id="0" * 32, priority=INFO, sentence=lambda _event, _status: "it rained")
    with installed.replaced([Door(title="Rain", page="rain.md", events=(view,))]):
        assert view_of(Rained()) is view
    assert Rained not in views()
