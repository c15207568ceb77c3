# SPDX-License-Identifier: Apache-2.0
"""The page of metrics, the alerting rules and each query of the dashboard, in a real Prometheus."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest

from integration.hosts.container.conftest import unavailable
from integration.hosts.errors import Unavailable
from integration.prometheus.server import EXAMPLES, Prometheus, Server, unpacked
from nodeagent.report.exposition import Family, MetricKind, Sample, render
from nodeagent.report.metrics import families
from nodeagent.update.history.outcome import IN_HISTORY
from nodeagent.update.states import Phase

# It needs a package that is fetched once.
pytestmark = pytest.mark.long

BEGIN = 1_760_000_000
LENGTH = 3600
STEP = 60
HOSTS = ("a", "b")
# Counters with a reason are not on the page before they have counted once.
APPEARS = BEGIN + LENGTH // 2
VALUES = {"phase": tuple(map(str, Phase)), "outcome": tuple(map(str, IN_HISTORY)), "reason": ("LeaseHeld",)}
BOUNDS = (10.0, 60.0, math.inf)
DASHBOARD = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))
QUERIES = [(panel["title"], each["expr"]) for panel in DASHBOARD["panels"] for each in panel["targets"]]


def value(family: Family, labels: tuple[str, ...], now: int) -> float:
    """Of a host that is degraded, and has no gauge at zero. Counters rise once, in the middle."""
    if family.kind is not MetricKind.GAUGE:
        return float(now >= APPEARS)
    if family.name.endswith("_timestamp_seconds"):
        return BEGIN - 60.0
    if family.name == "nodeagent_config_in_sync":
        return 0.0
    return float(family.name != "nodeagent_phase" or labels == (str(Phase.DEGRADED),))


def samples(family: Family, now: int) -> Iterator[Sample]:
    if family.kind is MetricKind.HISTOGRAM:
        found = value(family, (), now)
        yield from (family.at(found, suffix="_bucket", le=bound) for bound in BOUNDS)
        yield family.at(found * 5, suffix="_sum")
        yield family.at(found, suffix="_count")
        return
    if "reason" in family.labels and family.kind is MetricKind.COUNTER and now < APPEARS:
        return
    varied = next((label for label in family.labels if label in ("phase", "outcome")), "")
    for word in VALUES.get(varied, ("",)):
        labels = tuple(word if label == varied else VALUES.get(label, ("x",))[0] for label in family.labels)
        yield family.at(value(family, labels, now), *labels)


def history() -> Iterator[str]:
    """An hour of two hosts, as lines of OpenMetrics."""
    for family in families():
        for now in range(BEGIN, BEGIN + LENGTH, STEP):
            for host in HOSTS:
                for sample in samples(family, now):
                    labels = ",".join(
                        f'{name}="{word}"' for name, word in (("job", "node"), ("instance", host), *sample.labels)
                    )
                    yield f"{family.name}{sample.suffix}{{{labels}}} {sample.value} {now}"


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    try:
        with unpacked(print) as found:
            yield found
    except Unavailable as error:
        unavailable(error)


@pytest.fixture(scope="module")
def server(prometheus: Prometheus) -> Iterator[Server]:
    with prometheus.serving(history()) as running:
        yield running


def test_promtool_takes_the_page(prometheus: Prometheus) -> None:
    page = render(sample for family in families() for sample in samples(family, APPEARS))
    assert prometheus.promtool("check", "metrics", stdin=page) == (0, "")


def test_each_alert_fires_and_is_silent_as_documented(prometheus: Prometheus) -> None:
    for words in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts-test.yaml")):
        status, output = prometheus.promtool(*words)
        assert status == 0, output


def test_the_server_takes_the_rules(server: Server) -> None:
    rules = server.rules()
    assert rules
    assert [rule for rule in rules if rule["health"] == "err"] == []


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[f"{title}-{n}" for n, (title, _) in enumerate(QUERIES)])
def test_each_panel_shows_what_happened(server: Server, title: str, query: str) -> None:
    """A reason that counted for the first time is shown as well, which an increase alone does not."""
    for variable, word in (("$job", ".*"), ("$instance", ".*"), ("$__rate_interval", "4m0s")):
        query = query.replace(variable, word)
    found = server.query(query, BEGIN, BEGIN + LENGTH - STEP)
    assert any(float(point) > 0 for series in found for _, point in series["values"]), found
