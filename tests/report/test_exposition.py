# SPDX-License-Identifier: Apache-2.0
"""The text format, read back by the parser of prometheus_client."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed

from nodeagent.report.exposition import Family, MetricKind, render

GAUGE = Family("a_gauge", "What it \\ says,\nin two lines.", ("one", "two"))


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.text())
def test_any_value_and_any_label_comes_back(value: float, one: str, two: str) -> None:
    [family] = parsed(render([GAUGE.at(value, one, two)]))
    assert (family.name, family.type, family.documentation) == ("a_gauge", "gauge", GAUGE.help)
    [sample] = family.samples
    assert sample.labels == {"one": one, "two": two}
    assert sample.value == value


def test_samples_of_a_family_have_one_head() -> None:
    text = render([GAUGE.at(1, "a", "b"), GAUGE.at(2, "c", "d")])
    assert text.count("# TYPE") == 1
    assert text.endswith('a_gauge{one="c",two="d"} 2\n')


def test_whole_numbers_have_no_fraction_and_the_last_bucket_no_end() -> None:
    lengths = Family("lengths", "Lengths.", kind=MetricKind.HISTOGRAM)
    text = render([lengths.at(True, suffix="_bucket", le=0.5), lengths.at(2, suffix="_bucket", le=math.inf)])
    assert 'lengths_bucket{le="0.5"} 1\n' in text
    assert 'lengths_bucket{le="+Inf"} 2\n' in text


def test_labels_are_those_of_the_family() -> None:
    with pytest.raises(ValueError, match="a_gauge"):
        GAUGE.at(1, "only one")
