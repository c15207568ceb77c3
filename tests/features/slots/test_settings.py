# SPDX-License-Identifier: Apache-2.0
"""The settings: what contradicts itself, and what they build."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.agent import compose
from nodeagent.agent.report.report import Report
from nodeagent.errors import InvalidInput
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.features.slots.settings import SlotSettings
from nodeagent.host.clock import SystemClock
from nodeagent.host.store.store import SqliteStore
from nodeagent.report.status import Status
from nodeagent.settings.cluster import ClusterSettings
from nodeagent.settings.consistency import check_consistency, fixed_change
from nodeagent.settings.load import Loaded, load
from nodeagent.settings.schema import Settings
from nodeagent.update.stages.coordination import Coordination

CLUSTER = "cluster: {kubeconfig: /k}\n"
AS_CLUSTER = "cluster: {kubeconfig: /k, source: cluster}\n"
BAD = {
    "pool": ("slots: {pool: p}\n", "slots.pool needs a cluster"),
    "pause": ("slots: {pause: 5}\n", "slots.pause needs slots.pool"),
    "zone": ("slots: {zone: topology.kubernetes.io/zone}\n", "slots.zone needs slots.pool"),
    "staging": ("slots: {max_staging: 2}\n", "slots.max_staging needs"),
    "unavailable": ("slots: {max_unavailable: 2}\n", "slots.max_unavailable needs"),
    "percentage": ("slots: {max_unavailable: 10%}\n", "slots.max_unavailable needs"),
    "order": (CLUSTER + "slots: {pool: p, order: [a]}\n", "need slots.pool and cluster.source"),
    "order without a pool": (AS_CLUSTER + "slots: {order: [a]}\n", "need slots.pool"),
    "halt": (AS_CLUSTER + "slots: {pool: p, halt_degraded: 1}\n", "needs slots.pause"),
}
WRONG = {
    **{
        f"slots: {{max_unavailable: {value}}}": (
            "slots.max_unavailable must be a whole number of nodes from 1 to 10000, or a percentage from 1% to 100%"
        )
        for value in ("0", "10001", "0%", "101%", "-5%", "1.5%", "'2'", "'10'", "true", "1.5", "''")
    },
    **{
        f"slots: {{zone: {value}}}": (
            'slots.zone must be the key of a label, such as topology.kubernetes.io/zone, or ""'
        )
        for value in ("a b", "zone=a", "a/b/c", "Example.com/zone", "-zone", "z" * 64, f"{'e' * 254}/zone")
    },
    "slots: {pool: Workers}": 'slots.pool must be a pool\'s name (lower case letters, digits, -; 40 at most) or ""',
}


def loaded(directory: Path, text: str) -> Loaded:
    (directory / "50-x.yaml").write_text(text)
    return load([directory])


@pytest.mark.parametrize("name", BAD)
def test_settings_that_contradict_each_other(tmp_path: Path, name: str) -> None:
    text, words = BAD[name]
    found = loaded(tmp_path, text)
    with pytest.raises(InvalidInput, match=words) as raised:
        check_consistency(found.settings, found.origins)
    assert raised.value.reason == "SettingsInvalid"
    assert all(problem.path.startswith(f"{tmp_path}/50-x.yaml:") for problem in raised.value.problems)


def test_settings_that_do_not(tmp_path: Path) -> None:
    text = AS_CLUSTER + "slots: {pool: p, max_unavailable: 2, max_staging: 1, pause: 5, halt_degraded: 1}\n"
    found = loaded(tmp_path, text)
    check_consistency(found.settings, found.origins)


@pytest.mark.parametrize(("text", "words"), WRONG.items())
def test_wrong_values(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        loaded(tmp_path, text)
    (problem,) = raised.value.problems
    assert (problem.path, problem.message) == (f"{tmp_path}/50-x.yaml:1", words)


@pytest.mark.parametrize("key", ["topology.kubernetes.io/zone", "rack", "Rack_1.a", "example.com/rack"])
def test_the_zone_is_the_key_of_a_label(tmp_path: Path, key: str) -> None:
    found = loaded(tmp_path, f"{CLUSTER}slots: {{pool: p, zone: {key}}}\n")
    check_consistency(found.settings, found.origins)
    assert found.settings.of(SlotSettings).zone == key


def test_another_pool_requires_a_restart() -> None:
    assert fixed_change(Settings(), Settings(parts=(SlotSettings(pause=5),))) == "slots"


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "machine-id"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(compose, "MACHINE_ID", path)


def coordination(tmp_path: Path, *parts: SlotSettings) -> Coordination:
    """Send no request: the kubeconfig does not exist."""
    store, clock = SqliteStore(tmp_path / "s/state.db"), SystemClock()
    settings = Settings(node_name="worker-1", cluster=ClusterSettings(kubeconfig="/nowhere"), parts=parts)
    return compose.coordinate(settings, store, clock, compose.connect(settings, clock), Report(Status()))[0]


def test_a_node_of_a_pool_has_slots(tmp_path: Path) -> None:
    made = coordination(tmp_path, SlotSettings(pool="workers", max_staging=3))
    assert (isinstance(made.slot, KubeSlots), isinstance(made.staging_slot, KubeSlots)) == (True, True)


@pytest.mark.parametrize(("text", "percent", "count"), [("10%", 10, 1), ("100%", 100, 1), ("3", 0, 3)])
def test_a_number_or_a_percentage(tmp_path: Path, text: str, percent: int, count: int) -> None:
    found = loaded(tmp_path, f"{CLUSTER}slots: {{pool: p, max_unavailable: {text}}}\n")
    check_consistency(found.settings, found.origins)
    part = found.settings.of(SlotSettings)
    assert (part.percent, part.count) == (percent, count)
    made = coordination(tmp_path, part)
    assert isinstance(made.slot, KubeSlots)
    assert (made.slot._share is not None, made.slot._pool.count) == (bool(percent), count)


def test_a_zone_limits_disruptions_and_no_pulls(tmp_path: Path) -> None:
    made = coordination(tmp_path, SlotSettings(pool="workers", max_staging=3, zone="rack"))
    assert isinstance(made.slot, KubeSlots)
    assert isinstance(made.staging_slot, KubeSlots)
    assert (made.slot._zone is None, made.staging_slot._zone is None) == (False, True)


def test_any_number_of_stagings_needs_no_slot(tmp_path: Path) -> None:
    made = coordination(tmp_path, SlotSettings(pool="workers"))
    assert (isinstance(made.slot, KubeSlots), made.staging_slot) == (True, None)


def test_a_node_without_a_pool_has_none(tmp_path: Path) -> None:
    made = coordination(tmp_path)
    assert (made.slot, made.staging_slot) == (None, None)
