# SPDX-License-Identifier: Apache-2.0
"""The update graph: what is read of an answer, and the way through it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.features.update_graph.decide.graph import MAX_RELEASES, UpdateGraph, first_hop, parse_graph, rejection_of
from nodeagent.features.update_graph.decide.release import Release

FCOS = "org.fedoraproject.coreos.updates."
DIGEST = "sha256:" + "d" * 64


def node(version: str, payload: str = "", **metadata: str) -> dict[str, Any]:
    return {"version": version, "payload": payload, "metadata": {FCOS + key: text for key, text in metadata.items()}}


def graph_of(edges: list[tuple[int, int]], count: int, dead: frozenset[int] = frozenset()) -> UpdateGraph:
    nodes = [node(f"1.{n}", **({"deadend": "true"} if n in dead else {})) for n in range(count)]
    return parse_graph({"nodes": nodes, "edges": [list(edge) for edge in edges]})


def test_a_graph_of_fedora_coreos() -> None:
    found = parse_graph(
        {
            "nodes": [
                node("41.1", "a" * 64, deadend="true", deadend_reason="https://example.com/why"),
                node("42.1", f"quay.io/fedora/fedora-coreos@{DIGEST}", barrier="true", barrier_reason="keys"),
                node("42.2", "b" * 64, barrier="false"),
            ],
            "edges": [[0, 1], [1, 2]],
        }
    )
    assert found.marked
    assert [(each.version, each.reason) for each in found.barriers] == [("42.1", "keys")]
    assert found.releases[0].dead_end == "https://example.com/why"
    assert found.find(Release("", frozenset({DIGEST}))) == 1
    assert found.find(Release("42.2", frozenset({"c" * 64}))) == 2
    assert found.find(Release("43", frozenset({"c" * 64}))) is None


def test_a_graph_of_openshift_has_edges_and_no_marks() -> None:
    found = parse_graph(
        {
            "nodes": [{"version": "4.17.9", "payload": f"quay.io/x@{DIGEST}", "metadata": {"url": "https://x"}}],
            "edges": [],
            "conditionalEdges": [{"edges": [{"from": "4.17.9", "to": "4.18.1"}], "risks": []}],
        }
    )
    assert (found.marked, found.barriers) == (False, ())
    assert found.releases[0].content == DIGEST


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "no update graph"),
        ({"nodes": {}, "edges": []}, "no update graph"),
        ({"nodes": [7], "edges": []}, "no object"),
        ({"nodes": [{"version": "1", "payload": "x"}], "edges": []}, "no metadata"),
        ({"nodes": [node("a b")], "edges": []}, "no version"),
        ({"nodes": [{**node("1"), "payload": None}], "edges": []}, "no payload"),
        ({"nodes": [node("1"), node("1")], "edges": []}, "the same version"),
        ({"nodes": [node("1")], "edges": [[0, 1]]}, "no pair of releases"),
        ({"nodes": [node("1")], "edges": [[-1, 0]]}, "no pair of releases"),
        ({"nodes": [node("1")], "edges": [["0", "0"]]}, "no pair of releases"),
        ({"nodes": [node(f"1.{n}") for n in range(MAX_RELEASES + 1)], "edges": []}, "too many"),
    ],
)
def test_another_answer_is_refused(answer: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_graph(answer)


def test_the_words_of_an_error() -> None:
    assert rejection_of({"kind": "missing_params", "value": "channel"}) == "missing_params: channel"
    assert rejection_of({"kind": 7}) == ""


def test_the_newest_of_several_ways_is_taken() -> None:
    assert first_hop(graph_of([(0, 1), (0, 2), (1, 3), (2, 3)], 4), 0, 3) == 2


def test_a_dead_end_is_not_on_the_way() -> None:
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 2)]
    assert first_hop(graph_of(edges, 5), 0, 2) == 1
    assert first_hop(graph_of(edges, 5, frozenset({1})), 0, 2) == 3
    assert first_hop(graph_of([(0, 1)], 2, frozenset({0})), 0, 1) is None


@st.composite
def graphs(draw: st.DrawFn) -> tuple[UpdateGraph, int, int]:
    count = draw(st.integers(2, 12))
    index = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(index, index), max_size=40))
    return graph_of(edges, count, frozenset(draw(st.sets(index, max_size=3)))), draw(index), draw(index)


@settings(max_examples=200)
@given(graphs())
def test_following_the_hops_ends_at_the_target(drawn: tuple[UpdateGraph, int, int]) -> None:
    """Each hop is an edge, none leaves a dead end, and cycles do not matter."""
    graph, start, end = drawn
    at, passed = start, 0
    while at != end and (hop := first_hop(graph, at, end)) is not None:
        assert hop in graph.edges[at]
        assert not graph.releases[at].dead_end
        at, passed = hop, passed + 1
        assert passed <= len(graph.releases)
    assert at == end or passed == 0, "a way that begins also ends"
