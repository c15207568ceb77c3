# SPDX-License-Identifier: Apache-2.0
"""The page of metrics, from statuses, events and a history; read by prometheus_client's parser."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families as parsed

from nodeagent.core.plan.deployment import Deployment
from nodeagent.report.counters import BOUNDS, Counters
from nodeagent.report.event_counts import observe
from nodeagent.report.exposition import MetricKind, render
from nodeagent.report.metrics import families, samples
from nodeagent.report.status import Status
from nodeagent.update.history.outcome import IN_HISTORY
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import (
    ConfigRefused,
    DaemonStarted,
    Event,
    PhaseEntered,
    StagingAdvanced,
    StepProgress,
    UpdateContext,
    UpdateWaiting,
)
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase
from tests.support import removed

ALERTS = Path(__file__).parents[2] / "docs/examples/alerts.yaml"
SINCE = "2026-03-01T10:00:00.500Z"
LIMIT = 10
STEP = StepProgress("Importing layers", 3, 51, 5)


def page(status: Status, counters: Counters | None = None) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values."""
    text = render(samples(status, counters or Counters(), "1.2.3"))
    on_page = list(parsed(text))
    kinds = {family.name: family.kind for family in families()}
    for family in on_page:
        name = family.name + "_total" * (family.type == "counter")  # the parser takes that away
        assert kinds[name] == MetricKind(family.type)
    assert len({family.name for family in on_page}) == len(on_page), "a family in two pieces"
    found = [((each.name, *each.labels.values()), each.value) for family in on_page for each in family.samples]
    assert len(dict(found)) == len(found)
    return dict(found)


def entry(update: str, outcome: str = "done", *, seconds: float = 2.0, **more: Any) -> HistoryEntry:
    known: dict[str, Any] = {"reboots": 0, "reboot_avoided": outcome == "done", **more}
    return HistoryEntry(update, "a", "b", SINCE, SINCE, outcome, "restart", seconds=seconds, **known)


def events(counters: Counters, *observed: tuple[float, Phase, Event | None]) -> None:
    for at, phase, event in observed:
        observe(counters, event or PhaseEntered(UpdateContext(phase)), Status(phase), at)


def test_where_the_agent_stands() -> None:
    found = page(Status(Phase.DEGRADED, reason="Drifted", since=SINCE, current="worker-1", desired="worker-2"))
    assert found["nodeagent_info", "1.2.3"] == 1
    assert {key[1]: value for key, value in found.items() if key[0] == "nodeagent_phase"} == {
        str(phase): phase is Phase.DEGRADED for phase in Phase
    }
    assert found["nodeagent_phase_start_timestamp_seconds",] == 1772359200.5
    assert found["nodeagent_reason", "Drifted"] == 1
    assert found["nodeagent_config_info", "worker-1", "worker-2"] == 1
    assert found["nodeagent_config_in_sync",] == 0


def test_what_is_not_there_is_absent() -> None:
    names = {key[0] for key in page(Status())}
    assert not names & {
        "nodeagent_reason",
        "nodeagent_lease_held",
        "nodeagent_drain_pods",
        "nodeagent_phase_start_timestamp_seconds",
        "nodeagent_last_update_end_timestamp_seconds",
        "nodeagent_deployment_info",
    }


def test_who_has_the_lease() -> None:
    found = page(Status(lease=Holder("maintenance:jane", "m-1", 'a "quoted" reason', SINCE)))
    assert found["nodeagent_lease_held", "local", "maintenance:jane"] == 1
    assert found["nodeagent_lease_start_timestamp_seconds",] == 1772359200.5


def test_deployments_that_matter() -> None:
    order = (
        Deployment("a.1", "c1", "os", version="41.2", staged=True),
        Deployment("a.0", "c0", "os", version="41.1", booted=True),
        Deployment("a.9", "c9", "os"),
    )
    found = page(Status(deployments=order))
    assert {key[1:] for key in found if key[0] == "nodeagent_deployment_info"} == {
        ("staged", "c1", "41.2"),
        ("booted", "c0", "41.1"),
    }


def read(*histories: Sequence[HistoryEntry]) -> dict[tuple[str, ...], float]:
    """``histories`` as the store gives them one after the other, but the oldest first."""
    counters = Counters()
    for history in histories:
        counters.load_history(tuple(reversed(history)), LIMIT)
    return page(Status(), counters)


def test_two_configs_of_one_name_are_not_in_sync() -> None:
    known = Status(current="a", desired="a", current_digest="1", desired_digest="2")
    assert page(known)["nodeagent_config_in_sync",] == 0
    assert page(replace(known, desired_digest="1"))["nodeagent_config_in_sync",] == 1
    assert page(replace(known, desired_digest=""))["nodeagent_config_in_sync",] == 1, "by name until both are read"


def test_the_history_is_counted_once_and_outlives_the_process() -> None:
    one = entry("1", seconds=0.4)
    two = entry("2", "done-after-fallback", seconds=70, reboots=1, fallback=True)
    three = entry("3", "reverted", seconds=20000, reboots=2, fallback=True, soft_reboots=1)
    four = entry("4", "degraded", seconds=5)
    others = [entry("5", "superseded", seconds=0.4), entry("6", "withdrawn", seconds=20000), entry("7", "cancelled")]
    others.append(entry("8", "refused"))
    all_at_once = read([one, two, three, four, *others])
    assert read([], [one], [one], [one, two, three], [one, two, three, four, *others]) == all_at_once
    counts = {key[1]: value for key, value in all_at_once.items() if key[0] == "nodeagent_updates_total"}
    assert counts == dict.fromkeys(map(str, IN_HISTORY), 1) | {"partial": 0}
    assert all_at_once["nodeagent_reboots_total",] == 3
    assert all_at_once["nodeagent_reboots_avoided_total",] == 1
    assert all_at_once["nodeagent_fallbacks_total",] == 2
    assert all_at_once["nodeagent_soft_reboots_total",] == 1
    buckets = [
        (float(key[1]), value)
        for key, value in all_at_once.items()
        if key[0] == "nodeagent_update_duration_seconds_bucket"
    ]
    assert [bound for bound, _ in buckets] == [*BOUNDS, math.inf]
    assert dict(buckets)[1.0] == 1
    assert dict(buckets)[5.0] == 2, "a bound belongs to its bucket"
    assert dict(buckets)[180.0] == 3
    assert dict(buckets)[math.inf] == all_at_once["nodeagent_update_duration_seconds_count",] == 4
    assert all_at_once["nodeagent_update_duration_seconds_sum",] == 20075.4
    assert all_at_once["nodeagent_last_update_end_timestamp_seconds",] == 1772359200.5


def test_an_entry_of_an_older_agent_does_not_say_that_it_fell_back() -> None:
    assert read([entry("1", "done-after-fallback", reboots=1)])["nodeagent_fallbacks_total",] == 1


def test_a_history_without_its_beginning_starts_at_zero() -> None:
    full = [entry(str(number)) for number in range(LIMIT)]
    assert read(full)["nodeagent_updates_total", "done"] == 0
    assert read(full, [*full[1:], entry("new")])["nodeagent_updates_total", "done"] == 1
    assert read(full[:-1], full, [*full[1:], entry("new")])["nodeagent_updates_total", "done"] == LIMIT + 1


def test_seconds_in_phases() -> None:
    counters = Counters()
    waiting = UpdateWaiting(UpdateContext(Phase.LEASING), "jane has it", "")
    events(
        counters,
        (100.0, Phase.IDLE, DaemonStarted("1.2.3")),
        (105.0, Phase.LEASING, None),
        (120.0, Phase.LEASING, waiting),
        (165.0, Phase.DRAINING, None),
        (166.5, Phase.WRITING, None),
        (167.0, Phase.LEASING, None),
        (177.0, Phase.IDLE, None),
    )
    found = page(Status(), counters)
    assert found["nodeagent_phase_seconds_total", "Idle"] == 5
    assert found["nodeagent_phase_seconds_total", "Leasing"] == 70
    assert found["nodeagent_phase_seconds_total", "Draining"] == 1.5
    assert found["nodeagent_phase_seconds_total", "Rebooting"] == 0


def test_waits_are_counted_once_for_each_reason() -> None:
    counters = Counters()
    for phase, reason in (("Leasing", "LeaseHeld"), ("Leasing", "WindowClosed"), ("Releasing", "LeaseHeld")):
        event = UpdateWaiting(UpdateContext(Phase(phase)), "", reason)
        events(counters, (0.0, Phase(phase), event))
    events(counters, (0.0, Phase.LEASING, UpdateWaiting(UpdateContext(Phase.LEASING), "", "LeaseHeld")))
    found = page(Status(), counters)
    waits = {key[1:]: value for key, value in found.items() if key[0] == "nodeagent_waits_total"}
    assert waits == {("Leasing", "LeaseHeld"): 2, ("Leasing", "WindowClosed"): 1, ("Releasing", "LeaseHeld"): 1}


def test_bytes_of_images_and_refusals() -> None:
    counters = Counters()
    for phase, fetched in ((Phase.STAGING, 10), (Phase.STAGING, 70), (Phase.STAGING, 30), (Phase.IDLE, None)):
        staging = StagingAdvanced(UpdateContext(phase), STEP, fetched)
        events(counters, (0.0, phase, staging if fetched is not None else None))
    events(counters, (0.0, Phase.STAGING, StagingAdvanced(UpdateContext(Phase.STAGING), STEP, 40)))
    for reason in ("Drifted", "Drifted", "ConfigInvalid"):
        events(counters, (0.0, Phase.DEGRADED, ConfigRefused(UpdateContext(Phase.DEGRADED), "", reason)))
    found = page(Status(), counters)
    assert found["nodeagent_staging_fetched_bytes_total",] == 70 + 30 + 40
    assert found["nodeagent_refused_total", "Drifted"] == 2
    assert found["nodeagent_refused_total", "ConfigInvalid"] == 1


def test_names_follow_the_conventions() -> None:
    assert len({family.name for family in families()}) == len(families())
    for family in families():
        assert re.fullmatch(r"nodeagent_[a-z0-9_]+", family.name)
        assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER)
        assert family.help.endswith(".")


def test_the_alerts_of_the_docs_name_metrics_that_exist() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert rules
    known = {family.name: family for family in families()}
    for rule in rules:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        used = re.findall(r"(nodeagent_\w+?)(?:_bucket|_sum|_count)?(?:\{([^}]*)\})?(?=[^\w{]|$)", rule["expr"])
        assert used, rule
        for name, matchers in used:
            if name in removed.words("metric"):
                continue
            labels = set(re.findall(r"(\w+)\s*[=!]~?", matchers))
            assert labels <= set(known[name].labels), rule
        assert rule["expr"].count("(") == rule["expr"].count(")")
