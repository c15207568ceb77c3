# SPDX-License-Identifier: Apache-2.0
"""Whether it is the turn of a node: pools in order, and a pool that halts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.slots.decide.order import RolloutOrder, turn_gate
from nodeagent.features.slots.decide.rollout import ClusterObjects

MCO = "machineconfiguration.openshift.io/"
PREFIX = "nodeagent.org/pool"
UPDATED = {"currentConfig": "new", "desiredConfig": "new", "state": "Done"}
WORKING = {"currentConfig": "old", "desiredConfig": "new", "state": "Working"}
PENDING = {"currentConfig": "old", "desiredConfig": "new", "state": "Done"}
DEGRADED = {"currentConfig": "old", "desiredConfig": "new", "state": "Degraded", "reason": "ConfigRejected: it failed"}
UNRECONCILABLE = {**DEGRADED, "state": "Unreconcilable", "reason": ""}
SILENT = {"desiredConfig": "new"}
STRANGE = {**UPDATED, "state": "Perhaps"}
UNMANAGED: dict[str, str] = {}
ORDER = RolloutOrder(("control-plane", "infra"))
HALT = RolloutOrder(halt_degraded=2)


def node(name: str, pool: str, about: dict[str, str]) -> dict[str, Any]:
    notes = {MCO + key: value for key, value in about.items()}
    return {"metadata": {"name": name, "labels": {PREFIX: pool} if pool else {}, "annotations": notes}}


def fleet(**about: tuple[str, dict[str, str]]) -> ClusterObjects:
    return ClusterObjects([node(name, pool, state) for name, (pool, state) in about.items()])


def mcp(name: str, target: str = "new") -> dict[str, Any]:
    selector = {"matchLabels": {PREFIX: name}}
    return {"metadata": {"name": name}, "spec": {"configuration": {"name": target}, "nodeSelector": selector}}


ME = {"me": ("worker", WORKING)}
MASTER = {"m": ("control-plane", UPDATED)}
INFRA = {"i": ("infra", UPDATED)}


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({**ME, **MASTER, **INFRA}, ""),
        ({**ME, **MASTER, **INFRA, "w": ("worker", DEGRADED)}, ""),
        ({**ME, "m": ("control-plane", PENDING), **INFRA}, "not complete: m (updating)"),
        ({**ME, "m": ("control-plane", {**PENDING, "state": ""}), **INFRA}, "not complete: m (reports no state)"),
        ({**ME, "m": ("control-plane", WORKING), **INFRA}, "not complete: m (updating)"),
        ({**ME, "m": ("control-plane", DEGRADED), **INFRA}, "not complete: m (ConfigRejected)"),
        ({**ME, "m": ("control-plane", UNRECONCILABLE), **INFRA}, "not complete: m (degraded)"),
        ({**ME, "m": ("control-plane", SILENT), **INFRA}, "not complete: m (reports no state)"),
        ({**ME, "m": ("control-plane", UNMANAGED), **INFRA}, "not complete: m (reports no state)"),
        ({**ME, **MASTER}, "pool infra is updated before pool worker, and is not complete: no node is in it"),
        ({**ME, **INFRA}, "pool control-plane is updated before pool worker, and is not complete: no node is in it"),
        ({"me": ("infra", WORKING), **MASTER}, ""),
        ({"me": ("infra", WORKING), "m": ("control-plane", PENDING)}, "control-plane is updated before pool infra"),
        ({"me": ("control-plane", WORKING), "m": ("control-plane", PENDING)}, ""),
        ({"me": ("control-plane", WORKING), "i": ("infra", PENDING)}, ""),
        (MASTER, "node me is in no pool of the cluster"),
        ({}, "node me is in no pool of the cluster"),
        (
            {**ME, **{f"m{number}": ("control-plane", PENDING) for number in range(5)}},
            "m0 (updating), m1 (updating), m2 (updating) and 2 more",
        ),
    ],
)
def test_pools_in_order(nodes: dict[str, Any], words: str) -> None:
    found = turn_gate(fleet(**nodes), "me", ORDER)
    assert (found is None) == (words == "")
    if found is not None:
        assert words in found.message
        assert found.reason == "PoolOrder"


@pytest.mark.parametrize(
    ("states", "halts"),
    [
        ([], False),
        ([UPDATED, WORKING, PENDING], False),
        ([DEGRADED], False),
        ([DEGRADED, DEGRADED], True),
        ([DEGRADED, UNRECONCILABLE], True),
        ([DEGRADED, SILENT], True),
        ([STRANGE, UNMANAGED], True),
    ],
)
def test_a_pool_halts(states: list[dict[str, str]], halts: bool) -> None:
    nodes = {f"w{number}": ("worker", state) for number, state in enumerate(states)}
    others = {f"i{number}": ("infra", DEGRADED) for number in range(3)}
    found = turn_gate(fleet(**ME, **nodes, **others), "me", HALT)
    assert (found is not None) == halts
    if found is not None:
        assert found.reason == "PoolHalted"
        assert "pool worker halts at 2 degraded nodes, and has 2: w0 (" in found.message


def test_the_own_state_does_not_count() -> None:
    """A degraded node may apply the repair."""
    nodes = {"me": ("worker", DEGRADED), "w": ("worker", DEGRADED)}
    assert turn_gate(fleet(**nodes), "me", HALT) is None


def test_a_node_outside_of_all_pools_does_not_begin() -> None:
    found = turn_gate(fleet(w=("worker", UPDATED)), "me", HALT)
    assert found is not None
    assert found.reason == "PoolOrder"


def test_the_pools_of_a_machine_config_operator() -> None:
    """The target is that of the pool: its controller has not given it to all nodes yet."""
    old = {"currentConfig": "old", "desiredConfig": "old", "state": "Done"}
    order = RolloutOrder(("control-plane",))
    nodes = [node("me", "worker", WORKING), node("m", "control-plane", old)]
    found = turn_gate(ClusterObjects(nodes, [mcp("worker"), mcp("control-plane")]), "me", order)
    assert found is not None
    assert "m (pending)" in found.message
    done = [node("me", "worker", WORKING), node("m", "control-plane", UPDATED)]
    assert turn_gate(ClusterObjects(done, [mcp("worker"), mcp("control-plane")]), "me", order) is None
    unknown = turn_gate(ClusterObjects(done, [mcp("worker"), mcp("control-plane", "")]), "me", order)
    assert unknown is not None
    assert "no config has been rendered for it yet" in unknown.message


STATES = [UPDATED, WORKING, PENDING, DEGRADED, UNRECONCILABLE, SILENT, STRANGE, UNMANAGED]
members = st.lists(
    st.tuples(st.sampled_from(["worker", "infra", "control-plane"]), st.sampled_from(STATES)), max_size=6
)
orders = st.builds(RolloutOrder, st.permutations(["worker", "infra", "control-plane"]).map(tuple), st.integers(0, 3))


@given(members, orders, st.data())
def test_a_state_that_is_lost_never_allows_more(every: list[Any], order: RolloutOrder, data: Any) -> None:
    """Nor one that was never reported, nor a Node without its desired config."""
    nodes = {f"n{number}": about for number, about in enumerate(every)}
    before = turn_gate(fleet(**ME, **nodes), "me", order)
    if not nodes:
        return
    lost = data.draw(st.sampled_from(sorted(nodes)))
    unknown = data.draw(st.sampled_from([SILENT, STRANGE, UNMANAGED]))
    after = turn_gate(fleet(**ME, **{**nodes, lost: (nodes[lost][0], unknown)}), "me", order)
    assert before is None or after is not None


@given(members)
def test_without_settings_it_is_always_the_turn(every: list[Any]) -> None:
    nodes = {f"n{number}": about for number, about in enumerate(every)}
    assert turn_gate(fleet(**nodes), "me", RolloutOrder()) is None


@given(members, orders)
def test_some_node_may_begin_unless_a_pool_halts(every: list[Any], order: RolloutOrder) -> None:
    """There is no deadlock between pools: in the first pool with work, the order stops no node."""
    work = [(pool, state) for pool, state in every if state is not UPDATED]
    order = RolloutOrder(order.pools)
    if not work or {pool for pool, _ in every} != set(order.pools):
        return
    nodes = {f"n{number}": about for number, about in enumerate(every)}
    gates = [turn_gate(fleet(**nodes), name, order) for name, (_, state) in nodes.items() if state is not UPDATED]
    assert None in gates
