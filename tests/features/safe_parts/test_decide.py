# SPDX-License-Identifier: Apache-2.0
"""Which changes of a blocked update are safe, and the config that is composed of them and the current one."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry, with_os_of
from nodeagent.core.config.parse import parse
from nodeagent.core.plan.change import ActionType, Change, ChangeKind, PolicySource
from nodeagent.core.plan.diff import diff
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import DRAIN, NONE, REBOOT, Entry, Policy, reload, restart
from nodeagent.domains import default_policy, group_of, is_fix
from nodeagent.errors import InvalidInput
from nodeagent.features.safe_parts.decide import compose, divide, is_safe
from nodeagent.features.safe_parts.text import partial_text
from tests.core.config.documents import Doc, text
from tests.core.config.test_parse_properties import CONFIGS, SPECS, built
from tests.support.configs import config

OLD = config(files={"/etc/a": b"1"})
CHOICES = st.sampled_from([(NONE,), (reload("web.service"),), (restart("app.service"),), (DRAIN, REBOOT), (DRAIN,)])


def parts(old: MachineConfig, new: MachineConfig, policy: Policy, *left: str) -> tuple[set[str], dict[str, str]]:
    found = divide(make_plan(old, new, policy), group_of, left)
    return set(found.safe), dict(found.waits)


def policy_of(**files: tuple[object, ...]) -> Policy:
    entries = {f"/etc/{name}": Entry(f"/etc/{name}", actions, PolicySource.USER) for name, actions in files.items()}  # type: ignore[arg-type]
    return Policy(files=entries, sshkey=Entry("sshkey", (NONE,)), units={"x.service": Entry("x.service", (NONE,))})


def test_what_waits_names_its_actions() -> None:
    new = config(files={"/etc/a": b"2", "/etc/b": b"2", "/etc/c": b"2"}, keys=("k",))
    safe, waits = parts(OLD, new, policy_of(a=(NONE,), b=(DRAIN, restart("app.service"))))
    assert safe == {"file:/etc/a", "sshkey:core"}
    assert waits == {"file:/etc/b": "Drain, Restart app.service", "file:/etc/c": "Drain, Reboot"}


def test_the_os_waits() -> None:
    new = config(files={"/etc/a": b"1"}, os_image_url="quay.io/a@sha256:1", extensions_image="quay.io/b@sha256:2")
    assert set(parts(OLD, new, default_policy())[1]) == {
        "osImageURL:osImageURL",
        "baseOSExtensionsContainerImage:baseOSExtensionsContainerImage",
    }


UNIT = config(units={"x.service": "[Service]\n"})
DROPIN = "/etc/systemd/system/x.service.d/10-limits.conf"


def test_a_unit_and_its_drop_ins_are_not_divided() -> None:
    new = config(units={"x.service": "[Service]\nNice=1\n"}, files={DROPIN: b"[Service]\n"})
    assert parts(UNIT, new, policy_of()) == (
        set(),
        {"unit:x.service": f"together with file:{DROPIN}", f"file:{DROPIN}": "Drain, Reboot"},
    )


def test_a_drifted_entry_waits_with_its_group() -> None:
    new = config(files={"/etc/a": b"2"}, keys=("k",), password="$6$x")
    safe, waits = parts(OLD, new, policy_of(a=(NONE,)), "password:core")
    assert safe == {"file:/etc/a"}
    assert waits == {
        "password:core": "was changed by another program",
        "sshkey:core": "together with password:core",
    }


@pytest.mark.parametrize(
    "entries",
    [
        ("file:/etc/kubernetes/kubelet.conf", "unit:kubelet.service", "file:/etc/kubernetes/kubelet.conf.d/x.conf"),
        ("file:/etc/kubernetes/kubelet.conf", "file:/etc/systemd/system/kubelet.service.d/x.conf"),
        ("file:/etc/crio/crio.conf.d/a", "file:/etc/crio/crio.conf", "unit:crio.service"),
        ("file:/etc/containerd/config.toml", "file:/etc/systemd/system/containerd.service"),
        ("file:/etc/kubernetes/manifests/a.yaml", "file:/etc/kubernetes/manifests/b.yaml"),
        ("file:/etc/containers/policy.json", "file:/etc/containers/registries.d/a.yaml"),
        ("file:/etc/containers/registries.conf", "file:/etc/containers/registries.conf.d/a.conf"),
        ("unit:a.service", "file:/etc/systemd/system/a.service", "file:/etc/systemd/system/a.service.d/b.conf"),
        ("sshkey:core", "password:core"),
    ],
)
def test_entries_that_belong_together(entries: tuple[str, ...]) -> None:
    groups = {group_of(Change(*entry.split(":", 1), ChangeKind.MODIFIED)) for entry in entries}
    assert len(groups) == 1


@pytest.mark.parametrize("one", ["file:/etc/a", "file:/etc/pki/ca-trust/source/anchors/a.crt", "unit:b.service"])
@pytest.mark.parametrize("other", ["file:/etc/b", "unit:a.service", "sshkey:core", "file:/etc/ostree/auth.json"])
def test_entries_that_are_independent(one: str, other: str) -> None:
    first, second = (Change(*entry.split(":", 1), ChangeKind.ADDED) for entry in (one, other))
    assert group_of(first) != group_of(second)


@pytest.mark.parametrize(
    ("entry", "fix"),
    [
        ("sshkey:core", True),
        ("file:/var/lib/kubelet/config.json", True),
        ("file:/etc/ostree/auth.json", True),
        ("file:/etc/containers/registries.conf", True),
        ("file:/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", True),
        ("file:/etc/crio/crio.conf", False),
        ("file:/etc/a", False),
        ("unit:a.service", False),
    ],
)
def test_fixes_are_credentials_trust_and_access(entry: str, fix: bool) -> None:
    assert is_fix(entry) is fix


@pytest.mark.long
@given(CONFIGS, CONFIGS, st.fixed_dictionaries(dict.fromkeys(("a", "b.conf", "c"), CHOICES)))
def test_safe_part_and_rest_are_the_whole(old: MachineConfig, new: MachineConfig, files: Doc) -> None:
    policy, new = policy_of(**files), replace(new, fips=old.fips)
    found = divide(make_plan(old, new, policy), group_of)
    waiting = set(found.waits)
    some = compose(old, new, waiting)
    first, rest = diff(old, some), diff(some, new)
    # What is applied first is exactly the safe part, the rest what waits, and no entry is in both.
    assert {change.id for change in first} == set(found.safe)
    assert {change.id for change in rest} == waiting
    # Alone, the first part disrupts nothing, and nothing of the rest is safe.
    assert is_safe(make_plan(old, some, policy))
    assert divide(make_plan(some, new, policy), group_of).safe == ()


@pytest.mark.long
@given(CONFIGS, CONFIGS, CHOICES)
def test_no_disruptive_action_is_safe(old: MachineConfig, new: MachineConfig, actions: tuple[object, ...]) -> None:
    plan = make_plan(old, new, Policy(files={"/etc": Entry("/etc", actions)}, sshkey=Entry("sshkey", (NONE,))))  # type: ignore[arg-type]
    safe = set(divide(plan, group_of).safe)
    for planned in plan.changes:
        if planned.change.id in safe:
            assert {action.type for action in planned.actions} <= {
                ActionType.NONE,
                ActionType.DAEMON_RELOAD,
                ActionType.RELOAD,
                ActionType.RESTART,
            }


@settings(max_examples=50)
@given(SPECS, SPECS, st.randoms(use_true_random=False))
def test_the_text_has_the_meaning_of_the_composed_config(old: Doc, new: Doc, rng: object) -> None:
    # Other sections than those that are applied are equal in both, or the update is refused.
    new = {**new, "links": old.get("links"), "fips": old.get("fips")}
    before, after = (text(built(spec)) for spec in (old, new))
    was, now = parse(before), parse(after)
    waiting = {change.id for change in diff(was, now) if rng.random() < 0.5}  # type: ignore[attr-defined]
    if {"sshkey:core", "password:core"} & waiting:
        waiting |= {"sshkey:core", "password:core"}
    wanted = compose(was, now, waiting)
    # A file of one config may be a directory of the other. Then nothing is composed.
    with suppress(InvalidInput):
        assert with_os_of(was, parse(partial_text(before, after, waiting))) == wanted
        assert parse(partial_text(before, after, waiting)) == wanted
    assert partial_text(before, after, waiting) == partial_text(before, after, waiting)


def test_sections_that_are_not_applied_stay() -> None:
    user = {"name": "core", "sshAuthorizedKeys": ["new"], "groups": ["wheel"]}
    disks = [{"device": "/dev/vda", "wipeTable": True}]
    new = built({"files": [], "users": [user, {"name": "bob"}]})
    new["spec"]["config"]["storage"]["disks"] = disks
    old = built({"files": [], "users": [{**user, "sshAuthorizedKeys": ["old"]}, {"name": "bob"}]})
    old["spec"]["config"]["storage"]["disks"] = disks
    found = parse(partial_text(text(old), text(new), {"sshkey:core"}))
    assert found.unapplied == parse(text(new)).unapplied
    assert found.users == parse(text(old)).users


def test_a_config_without_a_section_gets_it_from_the_current_one() -> None:
    old = built({"files": [{"path": "/etc/a", "data": b"1"}], "units": [{"name": "a.service", "contents": "[Unit]\n"}]})
    new = {**old, "spec": {"kernelArguments": ["a"]}}
    found = parse(partial_text(text(old), text(new), {"file:/etc/a", "unit:a.service"}))
    assert set(found.files) == {"/etc/a"}
    assert found.units == {"a.service": UnitEntry("a.service", "[Unit]\n")}
    assert found.kernel_arguments == ()


@pytest.mark.parametrize(("config", "kept"), [({"ignition": {"version": "3.4.0"}}, {"version": "3.4.0"}), ({}, None)])
def test_the_version_of_a_config_stays_its_own(config: Doc, kept: Doc | None) -> None:
    old = built({"files": [{"path": "/etc/a", "data": b"1"}]})
    new = {**old, "spec": {"config": config}}
    found = json.loads(partial_text(text(old), text(new), set()))["spec"]["config"]
    assert (found and found["ignition"]) == kept
