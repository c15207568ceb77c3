# SPDX-License-Identifier: Apache-2.0
"""The dashboard for Grafana: each metric and label exists, each query has the variables, and no panels overlap.

Grafana's own schema (grafana-foundation-sdk, 11.6) accepts it. integration/prometheus runs the queries in a Prometheus.
"""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from nodeagent.report.metrics import families
from nodeagent.update.states import Phase
from tests.support import removed

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs/examples/dashboard.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
TYPES = {"stat", "timeseries", "state-timeline", "heatmap", "table"}
UNITS = {"short", "s", "Bps", "bytes"}
KNOWN = {family.name: family for family in families()}
SCRAPED = {"job", "instance", "le"}
ALERTS = (Path(__file__).parents[2] / "docs/examples/alerts.yaml").read_text(encoding="utf-8")
# Metrics that neither the dashboard nor an alert shows, and why.
NOT_SHOWN = {
    "nodeagent_bootloader_info": "versions, for a table of one's own",
    "nodeagent_bootloader_refuses_kernel": "the update is refused, which is shown",
    "nodeagent_busy_pods": "nodeagent status names them; that a host waits is shown",
    "nodeagent_config_info": "names, for a join; whether they are the same is shown",
    "nodeagent_deployment_info": "versions, for a table of one's own",
    "nodeagent_drift_start_timestamp_seconds": "nodeagent status shows it; that there is drift is shown",
    "nodeagent_fence_active": "its limit is shown, which is absent otherwise",
    "nodeagent_fence_throttled_seconds_total": "the limit is shown over time",
    "nodeagent_last_update_end_timestamp_seconds": "the ends are shown over time",
    "nodeagent_lease_start_timestamp_seconds": "waits for the lease are shown",
    "nodeagent_reboot_request": "nodeagent status shows it, and its update is shown",
    "nodeagent_reboot_required": "it is obeyed or not; nodeagent status names the packages",
    "nodeagent_section_left_out": "the operator accepted it, and nodeagent status names it",
    "nodeagent_trial_end_timestamp_seconds": "an operator waits for its end at a terminal",
    "nodeagent_waiting_start_timestamp_seconds": "the changes that wait are shown over time",
}
# All keys of a panel and of a query. Grafana ignores what it does not know, so a misspelled key has no effect.
PANEL = {"id", "type", "title", "description", "datasource", "gridPos", "targets", "fieldConfig"}
PANEL_MAY = {"options", "transformations"}
TARGET = {"refId", "datasource", "expr", "legendFormat"}
TARGET_MAY = {"instant", "format", "range"}
REMOVED = removed.words("metric")


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\b(nodeagent_\w+?)(?:_bucket|_sum|_count)?\b", text))


QUERIES = [
    (panel["title"], target["expr"])
    for panel in PANELS
    for target in panel["targets"]
    if not metrics_in(target["expr"]) & REMOVED
]


def test_each_metric_is_shown_or_has_a_reason() -> None:
    shown = metrics_in(json.dumps(DASHBOARD)) | metrics_in(ALERTS)
    assert (shown | set(NOT_SHOWN)) - REMOVED == set(KNOWN)
    assert not shown & set(NOT_SHOWN)


def test_no_key_is_misspelled() -> None:
    for panel in PANELS:
        assert set(panel) - PANEL_MAY == PANEL
        assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert set(target) - TARGET_MAY == TARGET


def test_panels_have_a_place_and_a_type() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        place = panel["gridPos"]
        assert panel["type"] in TYPES
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert all(type(value) is int for value in place.values())
        assert place["x"] + place["w"] <= 24
    for one, other in combinations((panel["gridPos"] for panel in PANELS), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_query_uses_what_exists(title: str, query: str) -> None:
    used = re.findall(r"(nodeagent_\w+?)(?:_bucket|_sum|_count)?(?:\{([^}]*)\})?(?=[^\w{]|$)", query)
    assert used
    for name, matchers in used:
        assert 'job=~"$job", instance=~"$instance"' in matchers
        assert set(re.findall(r"(\w+)\s*[=!]~?", matchers)) <= {*KNOWN[name].labels, *SCRAPED}
        for phase in re.findall(r'phase!?="(\w+)"', matchers):
            assert phase in list(Phase)
        # Counters are shown as increases, gauges as they are.
        assert ("increase(" in query) is (KNOWN[name].kind != "gauge")
    labels = {label for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(", ")}
    assert labels <= {label for name, _ in used for label in KNOWN[name].labels} | SCRAPED
    for opening, closing in ("()", "{}", "[]"):
        assert query.count(opening) == query.count(closing)
    assert query.count('"') % 2 == 0
    # At rest most metrics are absent, and a number must be there all the same.
    stats = {panel["title"] for panel in PANELS if panel["type"] == "stat"}
    assert title not in stats or query.endswith(" or vector(0)")


def test_legends_name_labels_of_their_query() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = {label for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in by.split(", ")}
            assert named <= (grouped or SCRAPED)


def test_the_variables_are_those_of_the_queries() -> None:
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job", "instance"]


def test_each_query_goes_to_the_selected_prometheus() -> None:
    selected = {"type": "prometheus", "uid": "${datasource}"}
    source, *others = DASHBOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for variable in others:
        assert (variable["type"], variable["datasource"]) == ("query", selected)
        assert metrics_in(variable["query"]) <= set(KNOWN)
    for panel in PANELS:
        assert panel["datasource"] == selected
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"] == selected
            # Grafana draws a table and a heatmap from frames of their own format only.
            assert target.get("format") == (panel["type"] if panel["type"] in ("table", "heatmap") else None)
            # A stat and a table show the last value, the others show a course.
            assert target.get("instant", False) is (panel["type"] in ("stat", "table"))
