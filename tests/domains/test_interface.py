# SPDX-License-Identifier: Apache-2.0
"""Each domain satisfies the interface, and the policy, the checks and the proofs of the agent come from it alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pytest

from nodeagent import domains
from nodeagent.core.plan.change import Action, Change, ChangeKind, KeyChange
from nodeagent.core.plan.domain import ByContent, Domain, UnitFailure, owns, verdict_of
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.plan_json import plan_from_dict, plan_to_dict
from nodeagent.core.plan.policy import (
    DAEMON_RELOAD,
    DRAIN,
    NONE,
    REBOOT,
    Entry,
    Policy,
    Verdict,
    clear_state,
    reload,
    restart,
)
from nodeagent.core.plan.program import ProgramCheck
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.plan.steps import ClearState, Reboot, RestartUnit, act_steps
from nodeagent.domains import DOMAINS, curable, default_policy
from nodeagent.errors import Problem
from tests.support.configs import config

EVERY = pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
GARBAGE = b"\xff\0: [}"


def keys_of(domain: Domain) -> Iterable[tuple[str, str]]:
    """Yield the domain of a change and its key for every entry that is decided by content."""
    for kind, table in (("file", domain.files), ("unit", domain.units)):
        yield from ((kind, key) for key, value in table.items() if isinstance(value, ByContent))
    yield from ((key, key) for key in domain.fields)


@EVERY
def test_without_a_difference_nothing_is_found(domain: Domain) -> None:
    same = config(files={path: b"x" for path in domain.contents if not path.endswith("/")})
    for sides in (Sides(), Sides(same, same), Sides(host=HostView({"/etc/x": b"x"}))):
        assert list(domain.changes(sides)) == []
        assert list(domain.validate(sides, {})) == []
        assert list(domain.programs(sides)) == []


@EVERY
@pytest.mark.parametrize("content", [b"", GARBAGE])
def test_no_content_makes_a_domain_fail(domain: Domain, content: bytes) -> None:
    """A domain compares what users write, and plans are made for configs that are refused later, too."""
    files = {path: content for _, path in keys_of(domain) if path.startswith("/")}
    for old, new in ((config(), config(files=files)), (config(files=files), config())):
        sides = Sides(old, new, HostView(dict.fromkeys(files, GARBAGE)))
        assert all(path.startswith("/") for path in domain.reads(sides))
        assert all(isinstance(key, KeyChange) for key in domain.changes(sides))
        for kind, key in keys_of(domain):
            verdict = domain.actions(Change(kind, key, ChangeKind.MODIFIED), sides)
            assert isinstance(verdict, Verdict)
            assert verdict.actions
        assert all(isinstance(check, ProgramCheck) for check in domain.programs(sides))


@EVERY
def test_proofs_belong_to_their_unit(domain: Domain) -> None:
    for unit in {health.unit for health in domain.health} | {"crio.service", "kubelet.service", "x.service"}:
        assert all(health.unit == unit for health in domain.verify(unit, HostView()))


def test_a_failure_of_a_unit_without_a_domain_is_worth_a_reboot() -> None:
    assert curable(UnitFailure("x.service", "exit-code"))


# A domain that compares keys


class KeysDomain(Domain):
    """Each line of its file is a key; the value of ``token`` is a secret."""

    def changes(self, sides: Sides) -> Sequence[KeyChange]:
        was, now = (dict(line.split("=") for line in _lines(side)) for side in (sides.before, sides.after))
        return [
            KeyChange("/etc/k.conf", key, was.get(key, ""), now.get(key, ""), ACTIONS.get(key, (DRAIN, REBOOT)))
            for key in sorted({*was, *now})
            if was.get(key) != now.get(key)
        ]


def _lines(side: object) -> list[str]:
    assert isinstance(side, dict)
    return side.get("/etc/k.conf", b"").decode().split()


ACTIONS = {
    "a": (restart("k.service"),),
    "b": (DRAIN, clear_state("k.service", "/var/lib/k/b"), restart("k.service")),
    "c": (DRAIN, clear_state("k.service", "/var/lib/k/c"), restart("k.service")),
    "n": (NONE,),
}
KEYS = KeysDomain("k", files={"/etc/k.conf": ByContent("by key")})
POLICY = Policy(files={"/etc/k.conf": Entry("/etc/k.conf", rule=KEYS.actions, summary="by key")})


@pytest.mark.parametrize(
    ("new", "steps"),
    [
        ("a=2 b=1 n=1", (RestartUnit("k.service"),)),
        ("a=1 b=2 n=1", (ClearState("k.service", ("/var/lib/k/b",)), RestartUnit("k.service"))),
        ("a=1 b=2 c=2", (ClearState("k.service", ("/var/lib/k/b", "/var/lib/k/c")), RestartUnit("k.service"))),
        ("a=2 b=2 x=1", (ClearState("k.service", ("/var/lib/k/b",)), Reboot())),
        ("a=1 b=1 n=2", ()),
        ("b=1\na=1\nn=1", ()),
    ],
)
def test_the_strongest_key_decides(new: str, steps: tuple[object, ...]) -> None:
    plan = make_plan(*(config(files={"/etc/k.conf": text.encode()}) for text in ("a=1 b=1 n=1", new)), POLICY)
    assert tuple(step for step in act_steps(plan) if type(step).__name__ != "Drain") == steps
    assert plan.drain == (len(steps) > 1)
    assert plan_from_dict(plan_to_dict(plan)) == plan


def test_a_plan_has_the_keys() -> None:
    plan = make_plan(*(config(files={"/etc/k.conf": text}) for text in (b"a=1", b"a=2 b=1")), POLICY)
    (change,) = plan_to_dict(plan)["changes"]
    assert change["why"] == "a, b"
    assert change["keys"] == [
        {
            "document": "/etc/k.conf",
            "key": "a",
            "before": "1",
            "after": "2",
            "actions": [{"type": "Restart", "unit": "k.service"}],
        },
        {
            "document": "/etc/k.conf",
            "key": "b",
            "before": "",
            "after": "1",
            "actions": [
                {"type": "Drain"},
                {"type": "ClearState", "unit": "k.service", "paths": ["/var/lib/k/b"]},
                {"type": "Restart", "unit": "k.service"},
            ],
        },
    ]


@pytest.mark.parametrize("paths", ["x", [1], []])
def test_a_plan_with_a_clear_state_without_paths_is_refused(paths: object) -> None:
    plan = make_plan(*(config(files={"/etc/k.conf": text}) for text in (b"b=1", b"b=2")), POLICY)
    data = plan_to_dict(plan)
    data["actions"][1]["paths"] = paths
    with pytest.raises(ValueError, match="paths"):
        plan_from_dict(data)


def test_an_entry_of_the_user_replaces_the_decision_by_key() -> None:
    user = Policy(files={"/etc/k.conf": Entry("/etc/k.conf", (reload("k.service"),))})
    (change,) = make_plan(*(config(files={"/etc/k.conf": text}) for text in (b"b=1", b"b=2")), user).changes
    assert (change.actions, change.keys) == ((reload("k.service"),), ())


def test_the_order_of_actions_is_that_in_which_they_must_run() -> None:
    keys = [
        KeyChange("/x", "a", "1", "2", (restart("k.service"), DAEMON_RELOAD)),
        KeyChange("/x", "b", "1", "2", (clear_state("k.service", "/s"), DRAIN)),
    ]
    assert verdict_of(keys).actions == (DRAIN, DAEMON_RELOAD, clear_state("k.service", "/s"), restart("k.service"))
    assert verdict_of([]) == Verdict((NONE,), "no key changes")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/etc/a/", "/etc/a/b/c", True),
        ("/etc/a/", "/etc/ab", False),
        ("/etc/a", "/etc/a", True),
        ("/etc/a", "/etc/a/b", False),
        ("/etc/*.conf", "/etc/a.conf", True),
        ("/etc/*.conf", "/etc/a.con", False),
        ("/etc/*.conf", "/etc/a/b.conf", False),
        ("/etc/*.conf", "/var/b.conf", False),
        ("/etc/*/b", "/etc/a/b", True),
        ("/etc/*/b", "/etc/a/c", False),
    ],
)
def test_a_domain_owns_the_paths_of_its_patterns(pattern: str, path: str, expected: bool) -> None:
    assert owns(pattern, path) is expected


@pytest.mark.parametrize("actions", [(REBOOT,), (REBOOT, DRAIN)])
def test_a_reboot_has_a_drain_before_it(actions: tuple[Action, ...]) -> None:
    assert verdict_of([KeyChange("/x", "a", "1", "2", actions)]).actions == (DRAIN, REBOOT)


def test_an_action_for_several_keys_has_the_paths_of_all() -> None:
    keys = [KeyChange("/x", path, "1", "2", (clear_state("k.service", path), NONE)) for path in ("/b", "/a")]
    assert verdict_of(keys).actions == (clear_state("k.service", "/a", "/b"),)
    assert verdict_of([KeyChange("/x", "a", "1", "2", ())]).actions == (NONE,)


def test_the_policy_asks_the_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(KeysDomain):
        def validate(self, _sides: Sides, _changed: object) -> Iterable[Problem]:  # type: ignore[override]
            yield Problem("/etc/k.conf", "is refused")

        def reads(self, _sides: Sides) -> set[str]:
            return {"/etc/k.d/"}

        def curable(self, failure: UnitFailure) -> bool:
            return failure.unit != "k.service"

    monkeypatch.setattr(domains, "DOMAINS", (Strict("k", files=KEYS.files),))
    entry = default_policy.__wrapped__().files["/etc/k.conf"]
    old, new = (config(files={"/etc/k.conf": text}) for text in (b"a=1", b"a=2"))
    change = Change("file", "/etc/k.conf", ChangeKind.MODIFIED)
    assert entry.decide(change, Sides(old, new)).actions == ACTIONS["a"]
    assert domains.validate(old, new) == (Problem("/etc/k.conf", "is refused"),)
    assert domains.reads(Sides(old, new)) == {"/etc/k.d/"}
    assert not domains.curable(UnitFailure("k.service", "exit-code"))
    assert domains.curable(UnitFailure("x.service", "exit-code"))


# Both sides


def test_files_of_the_host_are_on_both_sides_unless_a_config_manages_them() -> None:
    host = HostView({"/etc/a": b"host", "/etc/b": b"host", "/etc/c": b"host", "/etc/gone": b"old"})
    old, new = config(files={"/etc/b": b"old", "/etc/gone": b"old"}), config(files={"/etc/b": b"new", "/etc/c": b"new"})
    sides = Sides(old, new, host)
    assert dict(sides.before) == {"/etc/a": b"host", "/etc/b": b"old", "/etc/c": b"host", "/etc/gone": b"old"}
    assert dict(sides.after) == {"/etc/a": b"host", "/etc/b": b"new", "/etc/c": b"new"}


class Judging(Domain):
    def validate(self, _sides: Sides, changed: Mapping[str, bytes]) -> Iterator[Problem]:
        yield from (Problem(path, "is judged") for path in changed if path in self.files)


def test_a_domain_judges_the_files_that_it_declares_also_without_a_table_of_validators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = Judging("judge", files={"/etc/judged": (NONE,)})
    monkeypatch.setattr(domains, "DOMAINS", (*DOMAINS, judge))
    found = domains.validate(config(), config(files={"/etc/judged": b"x", "/etc/other": b"x"}))
    assert found == (Problem("/etc/judged", "is judged"),)
