# SPDX-License-Identifier: Apache-2.0
"""The findings of outside reviews, from the markers ``finding`` of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from marked import ROOT, marked

WITHOUT_TEST = ROOT / "tests/findings_without_test.txt"

AREAS: Mapping[str, str] = {
    "configs": "Configs",
    "policy": "Policy",
    "domains": "Domains",
    "plans": "Plans",
    "commands": "Commands",
    "users": "Operators at their first trial",
    "updates": "Updates",
    "decisions": "Decisions of an update",
    "safe parts": "Safe parts",
    "files": "Files",
    "units": "Units",
    "OS": "The OS",
    "rpm-ostreed": "A real rpm-ostreed",
    "stand-in": "The stand-in for rpm-ostreed",
    "daemon": "The daemon",
    "services": "Services of the host that are away",
    "store": "The store",
    "history": "The history",
    "secrets": "Secrets",
    "attack": "Under attack",
    "leases": "Leases",
    "cluster": "Clusters and fleets",
    "peers": "Programs of others",
    "etcd": "etcd",
    "fence": "The fence",
    "docs": "Documentation",
}
"""The areas, which are the first word of a name, and their headings in the order of the page."""


class Finding(NamedTuple):
    name: str
    rule: str
    tests: tuple[str, ...]


def findings() -> list[Finding]:
    """Each pair of finding and rule with its tests, in the order of the files."""
    tests: dict[tuple[str, str], list[str]] = {}
    for (name, rule), test in marked("finding"):
        tests.setdefault((name, rule), []).append(test)
    return [Finding(name, rule, tuple(dict.fromkeys(at))) for (name, rule), at in tests.items()]


def without_test() -> dict[str, str]:
    """The findings that have no test, with the reason."""
    lines = WITHOUT_TEST.read_text(encoding="utf-8").splitlines()
    entries = (line.split(": ", 2) for line in lines if line and not line.startswith("#"))
    return {f"{area}: {topic}": reason for area, topic, reason in entries}


def names_of(finding: str) -> list[str]:
    """The single names of a marker, which may have several: ``store: damaged rows, daemon: leftovers``."""
    return finding.split(", ")


def area_of(name: str) -> str:
    """The heading for a finding. Raises ``ValueError`` for an unknown area."""
    area = name.partition(": ")[0]
    if area not in AREAS:
        raise ValueError(f"{name!r} has no area of docs/findings.py: write AREA: TOPIC, in words")
    return AREAS[area]


def page() -> str:
    """The tables of docs/development/regressions.md. A finding of several names has a row for each."""
    rows = {(name, each.rule): each.tests for each in findings() for name in names_of(each.name)}
    text: list[str] = []
    for heading in AREAS.values():
        of_area = {key: tests for key, tests in rows.items() if area_of(key[0]) == heading}
        if not of_area:
            continue
        text += [f"## {heading}", "", "| finding | rule | test |", "|---|---|---|"]
        for (name, rule), tests in sorted(of_area.items(), key=lambda row: row[0][0]):
            text.append(f"| {_topic(name)} | {rule} | {', '.join(f'`{test}`' for test in tests)} |")
        text.append("")
    text += ["## Without a test", "", "| finding | reason |", "|---|---|"]
    text += [f"| {name} | {reason} |" for name, reason in sorted(without_test().items())]
    return "\n".join(text)


def _topic(name: str) -> str:
    return name.partition(": ")[2]
