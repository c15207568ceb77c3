# SPDX-License-Identifier: Apache-2.0
"""The judgement of a jump: tables, and properties of the way that the refusals name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.errors import Refused
from nodeagent.features.update_graph.decide.declared import Barrier, Minimum, Requirement, UpdatePath
from nodeagent.features.update_graph.decide.graph import UpdateGraph, parse_graph
from nodeagent.features.update_graph.decide.judge import (
    HostFacts,
    applicable,
    check_path,
    check_requirements,
    matches,
    next_stop,
    resolved,
)
from nodeagent.features.update_graph.decide.release import Jump, Release, version_key
from tests.features.update_graph.test_graph import node

OLD, NEW = "a" * 64, "b" * 64


def jump(booted: str, target: str, **more: Any) -> Jump:
    return Jump(Release(booted, frozenset({OLD})), Release(target, frozenset({NEW})), **more)


def judged(which: Jump, declared: UpdatePath, graph: UpdateGraph | None = None) -> str:
    """Return the notes, or the reason and the message of the refusal."""
    try:
        return "; ".join(check_path(resolved(which, declared, graph), declared, graph))
    except Refused as error:
        return f"{error.reason}: {error.message}"


RULES = UpdatePath(
    barriers=(Barrier("42.2", "keys"), Barrier("43.1")),
    minimum=(Minimum("45", "44.3", "old bootloaders"),),
)
SKIPPED = "BarrierSkipped: {} skips a version that must not be skipped: go to {}"


@pytest.mark.parametrize(
    ("booted", "target", "answer"),
    [
        ("42.1", "42.2", "update path: 42.1 -> 42.2 is allowed"),
        ("42.2", "43.1", "update path: 42.2 -> 43.1 is allowed"),
        ("42.1", "42.3", SKIPPED.format("42.1 -> 42.3", "42.2 first (keys)")),
        ("41", "44", SKIPPED.format("41 -> 44", "42.2 first (keys)")),
        ("42.2", "44", SKIPPED.format("42.2 -> 44", "43.1 first")),
        ("43.1", "44.9", "update path: 43.1 -> 44.9 is allowed"),
        ("43.1", "45", SKIPPED.format("43.1 -> 45", "from 44.3 on, below 45, first (old bootloaders)")),
        ("44.2", "46.1", SKIPPED.format("44.2 -> 46.1", "from 44.3 on, below 45, first (old bootloaders)")),
        ("44.3", "46.1", "update path: 44.3 -> 46.1 is allowed"),
        # A way back skips nothing, and neither does another build of the same version.
        ("46", "41", ""),
        ("42.3", "42.3", ""),
        ("", "44", "VersionUnknown: the booted image has no version, so its update path cannot be checked: " + OLD),
        ("42.1", "", "update path: the version of the image is known when it is staged, and is checked then"),
    ],
)
def test_barriers_and_minimum_versions(booted: str, target: str, answer: str) -> None:
    assert judged(jump(booted, target), RULES) == answer


def test_a_staged_image_without_a_version_is_refused() -> None:
    answer = "VersionUnknown: the new image has no version, so its update path cannot be checked: " + NEW
    assert judged(jump("42.1", "", staged=True), RULES) == answer
    assert judged(jump("42.1", "", staged=True), UpdatePath()) == "", "without rules no version is needed"


def test_the_file_names_the_version_of_an_image() -> None:
    rules = UpdatePath(barriers=(Barrier("42"),), images={NEW: "43", OLD: "41"})
    for which in (jump("", ""), jump("418.94.1", "9.6.1")):
        assert judged(which, rules).startswith("BarrierSkipped: 41 -> 43 ")


MARKED = parse_graph(
    {
        "nodes": [
            node("41.1", OLD),
            node("42.1", "c" * 64, barrier="true"),
            node("43.1", NEW),
            node("44.1", "d" * 64, deadend="true", deadend_reason="broken"),
        ],
        # As in a rollout that has not begun: no edge leads to 43.1.
        "edges": [[0, 1]],
    }
)


def test_barriers_and_dead_ends_of_a_graph() -> None:
    none = UpdatePath()
    assert judged(jump("41.1", ""), none, MARKED) == SKIPPED.format("41.1 -> 43.1", "42.1 first")
    beyond = Jump(Release("42.1"), Release("43.1"))
    assert judged(beyond, none, MARKED) == "update path: 42.1 -> 43.1 is allowed", "edges of a rollout do not count"
    derived = Jump(Release("42.1"), Release("43.7"))
    assert judged(derived, none, MARKED) == "update path: 42.1 -> 43.7 is allowed", "a version that is not in it"
    at, to = Jump(Release("44.1"), Release("45")), Jump(Release("43.1"), Release("44.1"))
    assert judged(at, none, MARKED) == "DeadEnd: no update leads on from 44.1, a dead end of the update graph: broken"
    assert judged(to, none, MARKED).startswith("DeadEnd: no update would lead on from 44.1")
    assert judged(Jump(Release("44.1"), Release("43.1")), none, MARKED) == "", "a way back"


EDGES = parse_graph(
    {"nodes": [node(f"1.{n}") for n in range(5)], "edges": [[0, 1], [1, 2], [1, 3], [2, 3], [3, 2]]},
)


@pytest.mark.parametrize(
    ("booted", "target", "answer"),
    [
        ("1.0", "1.1", "update path: 1.0 -> 1.1 is allowed"),
        ("1.0", "1.3", SKIPPED.format("1.0 -> 1.3", "1.1 first (the update graph has no shorter way)")),
        ("1.0", "1.4", "NoUpdatePath: the update graph has no way from 1.0 to 1.4"),
        ("1.0", "1.9", "NoUpdatePath: the update graph has no release 1.9"),
        ("0.9", "1.1", "NoUpdatePath: the update graph has no release 0.9"),
        ("1.3", "1.0", ""),
    ],
)
def test_a_graph_without_marks_allows_its_edges(booted: str, target: str, answer: str) -> None:
    assert judged(jump(booted, target), UpdatePath(), EDGES) == answer


numbers = st.integers(0, 30)


@st.composite
def rules(draw: st.DrawFn) -> tuple[list[Barrier], list[Minimum]]:
    barriers = [Barrier(f"1.{n}") for n in draw(st.lists(numbers, max_size=6))]
    pairs = draw(st.lists(st.tuples(numbers, numbers), max_size=6))
    return barriers, [Minimum(f"1.{to}", f"1.{booted}") for booted, to in pairs if booted < to]


@settings(max_examples=300)
@given(rules(), numbers, numbers)
def test_following_the_refusals_reaches_the_target_and_passes_each_barrier(
    drawn: tuple[list[Barrier], list[Minimum]], start: int, end: int
) -> None:
    barriers, minimum = drawn
    at, target, visited = f"1.{start}", f"1.{end}", [f"1.{start}"]
    while stop := next_stop(at, target, barriers, minimum):
        assert version_key(at) < version_key(stop.version) < version_key(target)
        assert next_stop(at, stop.version, barriers, minimum) is None, "a stop can be reached at once"
        at = stop.version
        visited.append(at)
        assert len(visited) <= len(barriers) + len(minimum) + 1
    for barrier in barriers:
        assert barrier.version in visited or not (
            version_key(f"1.{start}") < version_key(barrier.version) < version_key(target)
        )


def names(booted: str, target: str, os_id: str, declared: UpdatePath | None = None) -> list[str]:
    return [each.name for each in applicable(jump(booted, target), declared or UpdatePath(), os_id)]


def test_requirements_apply_to_the_step_across_their_version() -> None:
    el10 = ["cgroup-v1-el10", "runc-el10", "ifcfg-el10", "x86-64-v3-el10"]
    assert names("9.6.20250523-0", "10.1.20260401-0", "rhel") == el10
    assert names("10.0.20260101-0", "10.1.20260401-0", "rhel") == [], "the step is behind this host"
    assert names("9.4.2024-0", "9.6.2025-0", "rhel") == []
    assert names("40.20240906.3.0", "41.20241027.3.0", "fedora") == ["cgroup-v1"]
    assert names("40.20240906.3.0", "41.20241027.3.0", "debian") == []
    assert names("", "41", "fedora") == ["cgroup-v1"], "an unknown version may be below it"
    assert names("40", "", "fedora") == []
    assert names("41", "40", "fedora") == []
    assert names("40", "41", "fedora", UpdatePath(skip=("cgroup-v1",))) == []


CRIO = b'[crio.runtime]\n  default_runtime="runc"\n'


@pytest.mark.parametrize(
    ("requirement", "facts", "why"),
    [
        ("cgroup-v1", HostFacts(("quiet",)), ""),
        (
            "cgroup-v1",
            HostFacts(("systemd.unified_cgroup_hierarchy=0",)),
            "the host has systemd.unified_cgroup_hierarchy=0; remove the kernel argument: "
            "systemd 256 does not boot with cgroup v1",
        ),
        ("runc-el10", HostFacts(files={"/etc/crio/crio.conf": b'# default_runtime = "runc"\n'}), ""),
        ("runc-el10", HostFacts(files={"/etc/crio/other/x": CRIO}), ""),
        (
            "runc-el10",
            HostFacts(files={"/etc/crio/crio.conf.d/01-ctrcfg-defaultRuntime": CRIO}),
            'the host has default_runtime = "runc" in /etc/crio/crio.conf.d/01-ctrcfg-defaultRuntime; '
            "make crun the default runtime of CRI-O: RHEL 10 has no runc",
        ),
        ("ifcfg-el10", HostFacts(files={"/etc/sysconfig/network-scripts/ifcfg-lo": b""}), ""),
        (
            "ifcfg-el10",
            HostFacts(files={"/etc/sysconfig/network-scripts/ifcfg-lan": b""}),
            "the host has /etc/sysconfig/network-scripts/ifcfg-lan; "
            "convert it with nmcli connection migrate: NetworkManager of RHEL 10 does not read such files",
        ),
        ("x86-64-v3-el10", HostFacts(), ""),
        (
            "x86-64-v3-el10",
            HostFacts(cpu_flags=frozenset(["avx", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])),
            "the host lacks avx2, xsave; stay below version 10: RHEL 10 does not run on this processor",
        ),
    ],
)
def test_built_in_requirements(requirement: str, facts: HostFacts, why: str) -> None:
    needed = [each for each in UpdatePath().all_requirements() if each.name == requirement]
    assert len(needed) == 1
    which = jump("9", "41")
    if not why:
        assert check_requirements(which, needed, facts) == (f"requirements of 41: {requirement}",)
        return
    with pytest.raises(Refused) as caught:
        check_requirements(which, needed, facts)
    assert caught.value.reason == "RequirementUnmet"
    assert [(each.path, each.message) for each in caught.value.problems] == [(requirement, why)]


def test_all_unmet_requirements_are_named_at_once() -> None:
    needed = [
        Requirement(name="first", to="2", must="have", then="add it", kernel_arguments=("x=1", "y=2")),
        Requirement(name="second", to="2", must="have", then="write it", files=("/etc/a/*.conf",), line="on = yes"),
    ]
    facts = HostFacts(("y=2",), {"/etc/a/b.conf": b"on = no", "/etc/a/c.txt": b"on = yes"})
    with pytest.raises(Refused, match="this host does not meet 2 requirements of 2") as caught:
        check_requirements(jump("1", "2"), needed, facts)
    assert [each.message for each in caught.value.problems] == [
        "the host lacks x=1; add it",
        "the host lacks on = yes in /etc/a/*.conf; write it",
    ]
    assert check_requirements(jump("1", "2"), (), facts) == ()


def test_a_pattern_lists_one_directory() -> None:
    assert matches("/etc/a/*.conf", "/etc/a/b.conf")
    assert not matches("/etc/a/*.conf", "/etc/a/b/c.conf")
    assert not matches("/etc/a/*", "/etc/ab")
