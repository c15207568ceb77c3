# SPDX-License-Identifier: Apache-2.0
"""The evaluation of the benchmark of the fence: quantiles, harm, doubts, aims, the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration.bench.fence import report, rounds
from integration.bench.fence.picture import picture
from integration.bench.fence.publish import markdown, replaced
from integration.bench.fence.rounds import Phase, order
from integration.bench.fence.source import Source
from integration.bench.fence.stats import Entry, between, histogram_quantile, median, quantile, summary
from integration.bench.fence.table import others, table
from integration.bench.fence.testbed import Testbed
from integration.bench.fence.variants import HEADLINE, VARIANTS

RATE = 50.0


def steady(seconds: float, latency: float = 0.005, begin: float = 0.0) -> list[Entry]:
    dues = [begin + number / RATE for number in range(round(seconds * RATE))]
    return [Entry(due, due, due + latency) for due in dues]


def stall(begin: float, length: float) -> list[Entry]:
    """Entries that became due during a sync of this length: synced together with its end."""
    return [Entry(due, begin, begin + length) for due in [begin + n / RATE for n in range(round(length * RATE))]]


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_a_value_that_this_part_does_not_exceed(values: list[float], q: float) -> None:
    found = quantile(values, q)
    assert found in values
    assert sum(value <= found for value in values) >= q * len(values) - 1e-9
    assert sum(value < found for value in values) < q * len(values)


def test_the_median_of_an_even_number() -> None:
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_a_stall_is_as_many_late_entries_as_were_due_in_it() -> None:
    found = summary([*steady(10), *stall(10.0, 1.0)], RATE)
    assert found.over["100"] == 45  # the last 0.1 s of it are no harm
    assert found.harm == pytest.approx(0.9)
    assert found.worst == pytest.approx(1.0)
    assert found.p50 == pytest.approx(0.005)
    assert found.sync_p99 == pytest.approx(0.005), "one sample of hundreds: why the sync alone says little"


def test_entries_belong_to_the_phase_in_which_they_were_due() -> None:
    entries = [Entry(0.9, 0.9, 5.0), Entry(1.0, 5.0, 5.1), Entry(2.0, 5.0, 5.1)]
    assert between(entries, 1.0, 2.0) == [entries[1]]


@pytest.mark.parametrize(
    ("before", "after", "quantile_of_99"),
    [
        ({}, {0.001: 0, 0.002: 100, math.inf: 100}, 0.00199),
        ({0.001: 50, 0.002: 50, math.inf: 50}, {0.001: 50, 0.002: 150, math.inf: 150}, 0.00199),
        ({}, {0.001: 0, 0.002: 0, math.inf: 10}, 0.002),
        ({}, {0.001: 0, math.inf: 0}, None),
        ({0.001: 5, math.inf: 9}, {0.001: 1, math.inf: 2}, None),
        ({}, {}, None),
    ],
    ids=["interpolated", "only what came since", "beyond the last bound", "no sample", "restarted", "no histogram"],
)
def test_quantiles_of_etcds_histogram(
    before: Mapping[float, float], after: Mapping[float, float], quantile_of_99: float | None
) -> None:
    found = histogram_quantile(before, after, 0.99)
    assert found == (None if quantile_of_99 is None else pytest.approx(quantile_of_99))


def test_no_variant_always_follows_the_same_one() -> None:
    orders = [[variant.name for variant in order(HEADLINE, number)] for number in range(6)]
    assert all(
        each[0] == "idle" and sorted(each) == ["fence", "fence-plain", "idle", "mcd", "unfenced"] for each in orders
    )
    assert len({tuple(each) for each in orders}) >= 4


def test_variants_have_the_names_that_they_are_found_by() -> None:
    assert all(variant.name == name for name, variant in VARIANTS.items())


WAL = "etcd_disk_wal_fsync_duration_seconds_bucket"


def phase(
    variant: str,
    number: int,
    entries: list[Entry],
    staging: float | None,
    waited: float = 0.0,
    stolen: float = 0.0,
    after: float = 0.005,
) -> report.Json:
    begin, end = entries[0].due, entries[-1].due + 1 / RATE
    etcd: tuple[Mapping[str, float], Mapping[str, float]] = (
        {f'{WAL}{{le="0.001"}}': 0.0, f'{WAL}{{le="+Inf"}}': 0.0, "etcd_server_leader_changes_seen_total": 1.0},
        {f'{WAL}{{le="0.001"}}': 9.0, f'{WAL}{{le="+Inf"}}': 9.0, "etcd_server_leader_changes_seen_total": 3.0},
    )
    noise = {"host_waited": waited, "host_stolen": stolen}
    watched = None if staging is None else end + 5
    made = Phase(variant, number, begin, end, staging, 7, 3, (), etcd, noise, after=watched)
    return report.of_phase(made, [*entries, *(steady(5, after, end))], RATE)


def test_a_phase_in_the_report() -> None:
    found = phase("unfenced", 0, [*steady(10), *stall(10.0, 1.0)], 9.5)
    assert (found["harm_s"], found["worst_ms"], found["p50_ms"], found["staging_s"]) == (0.9, 1000.0, 5.0, 9.5)
    assert found["late_ms"] == {10: 1000.0}
    assert found["etcd"]["leader_changes_seen"] == 2
    assert found["etcd"]["wal_fsync_p99_ms"] == 1.0
    assert found["etcd"]["backend_commit_p99_ms"] is None


def test_others_on_the_disk_are_in_the_report() -> None:
    made = Phase("unfenced", 0, 0.0, 10.0, 9.0, 7, 3, (), ({}, {}), {"host_waited": 0.0, "host_stolen": 0.0})
    reads = steady(10, 0.02)
    found = report.of_phase(made, steady(10), RATE, {"reads": reads, "writes": []})
    assert found["others"]["reads"] == {"p50_ms": 20.0, "p99_ms": 20.0, "worst_ms": 20.0}
    assert found["others"]["writes"] is None
    assert report.of_variants([found])["unfenced"]["others"] == {"reads": found["others"]["reads"]}


def run(
    *, bad: float = 0.05, waited: float = 0.0, stolen: float = 0.0, idle: tuple[float, float] = (0.005, 0.005)
) -> list[report.Json]:
    """Two rounds of A, B, M and C, with a p99 of ``bad`` without a fence."""
    return [
        found
        for number in (0, 1)
        for found in (
            phase("idle", number, steady(10, idle[number]), None, waited),
            phase("unfenced", number, steady(10, bad), 10.0, waited),
            phase("mcd", number, [*steady(10), *stall(10.0, 2.0)], 12.0, waited),
            phase("fence", number, steady(10, 0.008), 14.0, waited, stolen * number),
        )
    ]


def test_a_run_that_shows_what_it_should() -> None:
    phases = run()
    variants = report.of_variants(phases)
    assert report.doubts(phases, variants) == []
    assert variants["fence"]["p99_over_idle"] == 1.6
    assert variants["fence"]["staging_over_unfenced"] == 1.4
    assert all(aim["kept"] for aim in report.aims("xfs", variants).values())
    assert report.aims("ext4", variants)["harm_over_others"] == {"aim": 0.1, "reached": 0.0, "kept": True}
    failed = report.aims("xfs", variants, fenced="mcd")
    assert {name for name, aim in failed.items() if not aim["kept"]} == {"harm", "worst_ms", "p99_over_idle"}


def test_what_comes_after_a_staging_counts_for_the_aims() -> None:
    phases = run()
    phases[-1] = phase("fence", 1, steady(10, 0.008), 14.0, after=0.2)
    assert phases[-1]["after"] == {
        "seconds": 5.0,
        "harm_s": 5.0,
        "worst_ms": 200.0,
        "late_ms": dict.fromkeys(range(10, 15), 200.0),
    }
    variants = report.of_variants(phases)
    assert (variants["fence"]["worst_ms"], variants["fence"]["after_worst_ms"]) == (8.0, 200.0)
    found = report.aims("xfs", variants)
    assert (found["harm"]["reached"], found["worst_ms"]["reached"]) == (5.0, 200.0)
    assert not found["harm"]["kept"]
    assert report.aims("ext4", variants)["harm_over_others"]["reached"] == round(5 / 3.8, 3)
    assert "| 200, 0+5 |" in table(variants, {})


@pytest.mark.parametrize(
    ("phases", "word"),
    [
        (run(bad=0.006), "contention"),
        (run(stolen=0.2), "fence: this machine is a guest itself, and was not given 20%"),
        (run(idle=(0.005, 0.02)), "drifts"),
        ([phase("fence", 0, steady(5), 5.0)], "without idle and unfenced"),
    ],
)
def test_a_run_that_proves_nothing_says_so(phases: list[report.Json], word: str) -> None:
    (doubt,) = report.doubts(phases, report.of_variants(phases))
    assert word in doubt


def test_each_variant_that_was_disturbed_is_a_doubt() -> None:
    phases = run(waited=0.5)
    doubts = report.doubts(phases, report.of_variants(phases))
    assert [doubt.partition(":")[0] for doubt in doubts] == ["idle", "unfenced", "mcd", "fence"]
    assert all("kept waiting 50%" in doubt for doubt in doubts)


def test_what_was_disturbed_counts_only_where_there_is_nothing_else() -> None:
    phases = run(stolen=0.2)
    counts = report.counted(phases)
    assert [each for each in phases if each not in counts] == [phases[-1]]
    assert report.doubts(counts, report.of_variants(counts)) == []
    assert report.counted(phases[-4:]) == phases[-4:]


def test_a_variant_is_measured_until_it_was_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE", 0.0)
    monkeypatch.setattr(rounds, "_phase", lambda _bed, _source, variant, number, _idle: (variant.name, number))
    testbed = cast("Testbed", SimpleNamespace(clean=lambda: None))
    heard: list[tuple[str, int]] = []

    def quiet(phase: Any) -> bool:
        heard.append(phase)
        return phase not in {("unfenced", 0), ("fence", 1)} and phase[0] != "mcd"

    rounds.run(testbed, cast("Source", None), HEADLINE, 2, 4, 0.0, quiet)
    numbers = {
        name: [number for each, number in heard if each == name] for name in ("idle", "unfenced", "mcd", "fence")
    }
    assert numbers == {"idle": [0, 1], "unfenced": [0, 1, 2], "fence": [0, 1, 2], "mcd": [0, 1, 2, 3]}
    heard.clear()
    rounds.run(testbed, cast("Source", None), HEADLINE, 1, 0, 0.0, quiet)
    assert len(heard) == 5


def test_what_cannot_be_said_is_not_an_aim_kept() -> None:
    phases = [found for found in run() if found["variant"] in ("idle", "fence")]
    aims = report.aims("xfs", report.of_variants(phases))
    assert aims["staging_over_unfenced"]["kept"] is None


def test_the_table_has_a_row_for_each_variant() -> None:
    head, rule, *rows = table(report.of_variants(run()), {"unfenced": "plain"}).splitlines()
    assert {line.count("|") for line in (head, rule, *rows)} == {head.count("|")}
    assert rows[1] == "| unfenced | plain | 50 | 50 | 50 | 50 | 50 | 1000/0/0 | 0, 0 | 5, 0+0 | 10 | 1 |"
    assert [row.split()[1] for row in rows] == ["idle", "unfenced", "mcd", "fence"]


def test_the_table_of_others() -> None:
    reads = {"p50_ms": 1.4, "p99_ms": 20.0, "worst_ms": 300.0}
    text = others({"idle": {"others": {}}, "unfenced": {"others": {"reads": reads}}})
    assert text.splitlines()[-1] == "| a third program's read |  | 1/20/300 |"


def test_the_docs_get_the_result_between_their_markers() -> None:
    phases = run()
    variants = report.of_variants(phases)
    result = {
        "verdict": "conclusive",
        "doubts": [],
        "filesystem": "xfs",
        "kernel": "6.12.1",
        "disk": {"iops": 500, "bytes_per_second": 12_000_000},
        "load": {"bytes": 213e6, "files": 3000},
        "processors": 2,
        "aims": {name: report.aims("xfs", variants, fenced=name) for name in ("fence", "mcd")},
        "variants": variants,
        "disturbed": [phases[-1]],
        "phases": [
            {**each, "noise": {"host_waited": 0.1, "host_stolen": 0.02, "host_loadavg": 1.0}} for each in phases
        ],
    }
    said = markdown(result, {"fence": "ours"})
    assert said.startswith("**Conclusive**.")
    assert "500 IOPS and 12 MB/s; 213 MB in 3000 files" in said
    assert "2 round(s)." in said
    assert "no time for the guest then: fence of round 2." in said
    assert "| aim | at most | fence | mcd |" in said
    assert "| worst_ms | 100 | 8.0: kept | " in said
    assert "| fence | ours |" in said
    page = "a\n<!-- begin measured: x -->\nold\n<!-- end measured: x -->\nb\n"
    assert replaced(page, "x", "new\n") == "a\n<!-- begin measured: x -->\n\nnew\n\n<!-- end measured: x -->\nb\n"
    with pytest.raises(ValueError, match="no markers for y"):
        replaced(page, "y", "new")


def test_the_picture_is_well_formed_and_has_every_phase() -> None:
    entries = [entry for number in range(4) for entry in steady(5, 0.01, number * 5.0)]
    phases: list[dict[str, Any]] = [
        phase(name, 0, between(entries, number * 5.0, number * 5.0 + 5), None if name == "idle" else 4.0)
        for number, name in enumerate(("idle", "unfenced", "mcd", "fence"))
    ]
    root = ElementTree.fromstring(picture("A < B & C", phases, entries, {"unfenced": "plain"}))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A < B & C" in texts
    assert {"idle", "unfenced", "mcd", "fence"} <= set(texts)
    shaded = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("opacity")]
    assert len(shaded) == 4
    assert sum(float(rect.get("width", "0")) for rect in shaded) == pytest.approx(1000 - 2 * 62, abs=1)
