# SPDX-License-Identifier: Apache-2.0
"""The spec has the reason for each finding that the configuration of rpmlint turns off, and no other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

RPM = Path(__file__).parents[2] / "packaging/rpm"
SPEC = (RPM / "nodeagent.spec").read_text()
LINT = tomllib.loads((RPM / "rpmlint.toml").read_text())
FINDING = re.compile(r"\b[a-z]+(?:-[a-z]+)+\b")


def test_each_finding_has_its_reason_in_the_spec() -> None:
    listed = SPEC.partition("What rpmlint finds")[2].partition("%if")[0]
    # The names come before the colon; a list may take two lines.
    entries = re.findall(r"^# - ([^:]+):", listed, re.MULTILINE)
    reasons = {name for entry in entries for name in FINDING.findall(entry)}
    filtered = {_finding(each) for each in LINT["Filters"]} | {"invalid-license"}
    assert reasons == filtered


def test_the_licences_of_the_spec_are_those_that_rpmlint_takes() -> None:
    found = {name for line in re.findall(r"^License: +(.+)$", SPEC, re.MULTILINE) for name in line.split(" AND ")}
    assert found == set(LINT["ValidLicenses"])


def _finding(pattern: str) -> str:
    """The name of the finding in a filter, which may begin with a package."""
    return FINDING.findall(re.sub(r"^nodeagent-[a-z0-9]+[.][*]", "", pattern))[0]
