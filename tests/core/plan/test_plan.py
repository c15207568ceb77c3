# SPDX-License-Identifier: Apache-2.0
"""Actions of changes: the rules as a table, and properties of any input."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig, UnitEntry, UserEntry
from nodeagent.core.plan.change import Action, ActionType, Plan, PolicySource
from nodeagent.core.plan.plan import combine, disruption, make_plan
from nodeagent.core.plan.plan_json import plan_from_dict, plan_to_dict
from nodeagent.core.plan.policy import DAEMON_RELOAD, DRAIN, NONE, REBOOT, Entry, Policy, merge, reload, restart
from nodeagent.domains import default_policy
from tests.support.configs import config

USER = PolicySource.USER
ANCHORS = "/etc/pki/ca-trust/source/anchors"
USER_CA = f"{ANCHORS}/openshift-config-user-ca-bundle.crt"
IRI_CA = f"{ANCHORS}/iri-root-ca.crt"
POLICY_JSON = "/etc/containers/policy.json"
PULL_SECRET = "/var/lib/kubelet/config.json"
CHRONY = "/etc/chrony.conf"
SIGNATURES = "/etc/containers/registries.d/a.yaml"


def user_policy(
    files: dict[str, tuple[Action, ...]] | None = None,
    units: dict[str, tuple[Action, ...]] | None = None,
    sshkey: tuple[Action, ...] | None = None,
) -> Policy:
    user = Policy(
        files={key: Entry(key, actions, USER) for key, actions in (files or {}).items()},
        units={key: Entry(key, actions, USER) for key, actions in (units or {}).items()},
        sshkey=Entry("sshkey", sshkey, USER) if sshkey else None,
    )
    return merge(default_policy(), user)


def shown(plan: Plan) -> list[str]:
    return [f"{action.type} {action.unit}".strip() for action in plan.actions]


BOTH = ["Drain", "Reboot"]
CHRONY_POLICY = user_policy({CHRONY: (restart("chronyd.service"),)})

# what changed, policy, expected
TABLE: dict[str, tuple[dict[str, Any], Policy, list[str]]] = {
    "nothing": ({}, default_policy(), []),
    # the built-in entries
    "pull secret": ({"files": [PULL_SECRET]}, default_policy(), ["None"]),
    "gpg key": (
        {"files": ["/etc/machine-config-daemon/no-reboot/containers-gpg.pub"]},
        default_policy(),
        ["Reload crio.service"],
    ),
    "policy.json": ({"files": [POLICY_JSON]}, default_policy(), ["Reload crio.service"]),
    "below registries.d": ({"files": [SIGNATURES]}, default_policy(), ["Reload crio.service"]),
    "deep below registries.d": (
        {"files": ["/etc/containers/registries.d/x/y.yaml"]},
        default_policy(),
        ["Reload crio.service"],
    ),
    "beside registries.d": ({"files": ["/etc/containers/registries.data"]}, default_policy(), BOTH),
    "crio policies": ({"files": ["/etc/crio/policies/ns.json"]}, default_policy(), ["Reload crio.service"]),
    "nmstate": ({"files": ["/etc/nmstate/openshift/a.yml"]}, default_policy(), ["None"]),
    "nmstate, other directory": ({"files": ["/etc/nmstate/a.yml"]}, default_policy(), BOTH),
    "user CA": (
        {"files": [USER_CA]},
        default_policy(),
        ["Restart coreos-update-ca-trust.service", "Restart crio.service"],
    ),
    "credential providers": (
        {"files": ["/etc/kubernetes/credential-providers/ecr.yaml"]},
        default_policy(),
        ["Restart kubelet.service"],
    ),
    "kubelet drop-in": (
        {"files": ["/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf"]},
        default_policy(),
        ["DaemonReload", "Restart kubelet.service"],
    ),
    "iri registry": ({"files": ["/etc/iri-registry/tls.crt"]}, default_policy(), ["Restart iri-registry.service"]),
    "iri script": (
        {"files": ["/usr/local/bin/load-registry-image.sh"]},
        default_policy(),
        ["Restart iri-registry.service"],
    ),
    "iri CA": ({"files": [IRI_CA]}, default_policy(), ["Restart coreos-update-ca-trust.service"]),
    "iri unit": (
        {"units": ["iri-registry.service"]},
        default_policy(),
        ["DaemonReload", "Restart iri-registry.service"],
    ),
    "ssh key": ({"keys": ("ssh-ed25519 B",)}, default_policy(), ["None"]),
    "password": ({"password": "$6$b"}, default_policy(), ["None"]),
    # unlisted
    "file": ({"files": ["/etc/hosts"]}, default_policy(), BOTH),
    "unit": ({"units": ["foo.service"]}, default_policy(), BOTH),
    "drop-in of a listed directory's sibling": (
        {"files": ["/etc/systemd/system/kubelet.service.d/50-x.conf"]},
        default_policy(),
        BOTH,
    ),
    "osImageURL": ({"os_image_url": "q/b"}, default_policy(), BOTH),
    "kernelArguments": ({"kernel_arguments": ("quiet",)}, default_policy(), BOTH),
    "kernelType": ({"kernel_type": "realtime"}, default_policy(), BOTH),
    "extensions": ({"extensions": ("usbguard",)}, default_policy(), BOTH),
    "extensions image, nothing installed": ({"extensions_image": "q/e"}, default_policy(), ["None"]),
    # together
    "unlisted swallows the rest": (
        {"files": ["/etc/hosts", USER_CA, POLICY_JSON], "keys": ("ssh-ed25519 B",)},
        default_policy(),
        BOTH,
    ),
    "None beside others": ({"files": [PULL_SECRET, POLICY_JSON]}, default_policy(), ["Reload crio.service"]),
    "only None": ({"files": [PULL_SECRET, "/etc/nmstate/openshift/a.yml"]}, default_policy(), ["None"]),
    "same reload once": ({"files": [POLICY_JSON, SIGNATURES]}, default_policy(), ["Reload crio.service"]),
    "reload dropped beside restart": (
        {"files": [USER_CA, POLICY_JSON]},
        default_policy(),
        ["Restart coreos-update-ca-trust.service", "Restart crio.service"],
    ),
    "restart of another unit keeps the reload": (
        {"files": [IRI_CA, POLICY_JSON]},
        default_policy(),
        ["Reload crio.service", "Restart coreos-update-ca-trust.service"],
    ),
    "daemon-reload first": (
        {
            "files": [
                POLICY_JSON,
                "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf",
            ]
        },
        default_policy(),
        ["DaemonReload", "Reload crio.service", "Restart kubelet.service"],
    ),
    "daemon-reload once": (
        {
            "files": ["/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf"],
            "units": ["iri-registry.service"],
        },
        default_policy(),
        ["DaemonReload", "Restart iri-registry.service", "Restart kubelet.service"],
    ),
    # user entries
    "user file": ({"files": [CHRONY]}, CHRONY_POLICY, ["Restart chronyd.service"]),
    "user file among unlisted": ({"files": [CHRONY, "/etc/hosts"]}, CHRONY_POLICY, BOTH),
    "user replaces default": ({"files": [POLICY_JSON]}, user_policy({POLICY_JSON: (REBOOT,)}), BOTH),
    "user replaces default by None": ({"files": [USER_CA]}, user_policy({USER_CA: (NONE,)}), ["None"]),
    "user replaces the special rule": (
        {"files": ["/etc/containers/registries.conf"]},
        user_policy({"/etc/containers/registries.conf": (restart("crio.service"),)}),
        ["Restart crio.service"],
    ),
    "user directory": (
        {"files": ["/etc/foo/a/b"]},
        user_policy({"/etc/foo": (reload("foo.service"),)}),
        ["Reload foo.service"],
    ),
    "longest directory": (
        {"files": ["/etc/foo/a/b"]},
        user_policy({"/etc/foo": (REBOOT,), "/etc/foo/a": (NONE,)}),
        ["None"],
    ),
    "exact before directory": (
        {"files": ["/etc/foo/a"]},
        user_policy({"/etc/foo": (REBOOT,), "/etc/foo/a": (NONE,)}),
        ["None"],
    ),
    "user directory above a default": (
        {"files": [POLICY_JSON]},
        user_policy({"/etc/containers": (REBOOT,)}),
        ["Reload crio.service"],
    ),
    "user unit": (
        {"units": ["foo.service"]},
        user_policy(units={"foo.service": (DAEMON_RELOAD, restart("foo.service"))}),
        ["DaemonReload", "Restart foo.service"],
    ),
    "unit names are exact": (
        {"units": ["foo@1.service"]},
        user_policy(units={"foo@2.service": (NONE,), "foo.service": (NONE,), "foo": (NONE,)}),
        BOTH,
    ),
    "a file entry is not about units": (
        {"units": ["foo.service"]},
        user_policy({"/etc/systemd/system": (NONE,)}),
        BOTH,
    ),
    "user ssh key": ({"keys": ("ssh-ed25519 B",)}, user_policy(sshkey=(REBOOT,)), BOTH),
    "drain and restart": (
        {"files": [CHRONY]},
        user_policy({CHRONY: (restart("chronyd.service"), DRAIN)}),
        ["Drain", "Restart chronyd.service"],
    ),
    "only drain": ({"files": [CHRONY]}, user_policy({CHRONY: (DRAIN,)}), ["Drain"]),
    "empty list": ({"files": [CHRONY]}, user_policy({CHRONY: ()}), ["None"]),
    "reloads before restarts": (
        {"files": [CHRONY]},
        user_policy({CHRONY: (restart("a.service"), reload("b.service"), DAEMON_RELOAD)}),
        ["DaemonReload", "Reload b.service", "Restart a.service"],
    ),
    "listed order": (
        {"files": [CHRONY]},
        user_policy({CHRONY: (restart("z.service"), restart("a.service"))}),
        ["Restart z.service", "Restart a.service"],
    ),
    "orders of two lists": (
        {"files": [CHRONY, "/etc/foo"]},
        user_policy(
            {
                CHRONY: (restart("z.service"), restart("m.service")),
                "/etc/foo": (restart("m.service"), restart("a.service")),
            }
        ),
        ["Restart z.service", "Restart m.service", "Restart a.service"],
    ),
    "order survives a reload that became a restart": (
        {"files": [CHRONY, "/etc/a", "/etc/z"]},
        user_policy(
            {
                CHRONY: (reload("z.service"), reload("a.service")),
                "/etc/a": (restart("a.service"),),
                "/etc/z": (restart("z.service"),),
            }
        ),
        ["Restart z.service", "Restart a.service"],
    ),
    "contradicting lists, by name": (
        {"files": [CHRONY, "/etc/foo"]},
        user_policy(
            {
                CHRONY: (restart("b.service"), restart("a.service")),
                "/etc/foo": (restart("a.service"), restart("b.service"), restart("Z.service")),
            }
        ),
        ["Restart a.service", "Restart b.service", "Restart Z.service"],
    ),
    "reload and restart in one list": (
        {"files": [CHRONY]},
        user_policy({CHRONY: (reload("a.service"), restart("b.service"), restart("a.service"))}),
        ["Restart b.service", "Restart a.service"],
    ),
}

BASE = config(
    files=dict.fromkeys([PULL_SECRET, POLICY_JSON, USER_CA, CHRONY, SIGNATURES, "/etc/hosts"], b"old"),
    units={"foo.service": "old", "iri-registry.service": "old"},
    keys=("ssh-ed25519 A",),
    password="$6$a",
)


def changed(what: dict[str, Any]) -> MachineConfig:
    files, units = dict(BASE.files), dict(BASE.units)
    files |= {path: FileEntry(path, b"new") for path in what.get("files", ())}
    units |= {name: UnitEntry(name, "new") for name in what.get("units", ())}
    user = UserEntry("core", what.get("keys", ("ssh-ed25519 A",)), what.get("password", "$6$a"))
    rest = {key: value for key, value in what.items() if key not in ("files", "units", "keys", "password")}
    return replace(BASE, name="rendered-worker-2", files=files, units=units, users={"core": user}, **rest)


@pytest.mark.parametrize("case", TABLE)
def test_actions(case: str) -> None:
    what, policy, expected = TABLE[case]
    assert shown(make_plan(BASE, changed(what), policy)) == expected


@pytest.mark.parametrize("case", TABLE)
def test_the_way_back_asks_for_the_same(case: str) -> None:
    # Only the rule of registries.conf knows a direction, and here only new directions of it are in the table.
    what, policy, expected = TABLE[case]
    assert shown(make_plan(changed(what), BASE, policy)) == expected


@pytest.mark.parametrize("installed", [{"extensions": ("usbguard",)}, {"kernel_type": "realtime"}])
def test_an_extensions_image_alone_disrupts_nothing(installed: dict[str, Any]) -> None:
    """The field changes with each release of the OS, together with an osImageURL that has a verdict of its own."""
    old = config(**installed)
    (planned,) = make_plan(old, replace(old, extensions_image="q/e"), default_policy()).changes
    assert [str(action.type) for action in planned.actions] == ["None"]
    assert "the next change" in planned.why
    both = replace(old, extensions_image="q/e", os_image_url="q/b")
    assert shown(make_plan(old, both, default_policy())) == BOTH


def test_every_action_names_its_changes() -> None:
    plan = make_plan(BASE, changed({"files": [USER_CA, POLICY_JSON, PULL_SECRET]}), default_policy())
    assert plan.actions == (
        Action(ActionType.RESTART, "coreos-update-ca-trust.service", (f"file:{USER_CA}",)),
        Action(ActionType.RESTART, "crio.service", (f"file:{POLICY_JSON}", f"file:{USER_CA}")),
    )


def test_a_reboot_names_only_those_that_need_it() -> None:
    plan = make_plan(BASE, changed({"files": ["/etc/hosts", POLICY_JSON]}), default_policy())
    assert {action.because for action in plan.actions} == {("file:/etc/hosts",)}


def test_a_drain_before_a_reboot_names_all_who_asked() -> None:
    policy = user_policy({CHRONY: (DRAIN, restart("chronyd.service"))})
    plan = make_plan(BASE, changed({"files": ["/etc/hosts", CHRONY]}), policy)
    assert [action.because for action in plan.actions] == [
        ("file:/etc/chrony.conf", "file:/etc/hosts"),
        ("file:/etc/hosts",),
    ]


@pytest.mark.finding(
    "users: first trial of updates", "A reboot is avoided only where an entry of the admin replaces one."
)
@pytest.mark.parametrize(
    ("what", "policy", "avoided"),
    [
        ({"files": [CHRONY]}, CHRONY_POLICY, True),
        ({"files": [CHRONY, POLICY_JSON]}, CHRONY_POLICY, True),
        ({"files": [CHRONY, "/etc/unlisted"]}, CHRONY_POLICY, False),  # it is rebooted all the same
        ({"files": [CHRONY]}, user_policy({CHRONY: (REBOOT,)}), False),
        ({"files": [PULL_SECRET]}, default_policy(), False),
        ({"files": [POLICY_JSON]}, default_policy(), False),
        ({"files": [POLICY_JSON]}, user_policy({POLICY_JSON: (NONE,)}), False),  # the built-in one reboots neither
        ({"files": [SIGNATURES]}, user_policy({SIGNATURES: (NONE,)}), False),  # nor that of a directory above
        ({"keys": ("k",)}, default_policy(), False),
        ({"keys": ("k",)}, user_policy(sshkey=(NONE,)), False),
        ({"units": ["app.service"]}, user_policy(units={"app.service": (restart("app.service"),)}), True),
        ({}, CHRONY_POLICY, False),
    ],
)
def test_a_reboot_is_avoided_by_an_entry_of_the_admin_alone(
    what: dict[str, Any], policy: Policy, avoided: bool
) -> None:
    plan = make_plan(BASE, changed(what), policy)
    assert plan.avoids_reboot is avoided
    assert plan_from_dict(plan_to_dict(plan)).avoids_reboot is avoided


def test_names_come_from_the_configs_or_the_caller() -> None:
    plan = make_plan(BASE, BASE, default_policy())
    assert (plan.from_name, plan.to_name) == ("rendered-worker-1", "rendered-worker-1")
    assert make_plan(BASE, BASE, default_policy(), "x").from_name == "x"


@pytest.mark.parametrize(
    ("actions", "word"),
    [
        ((), "none"),
        ((NONE,), "none"),
        ((DAEMON_RELOAD,), "reload"),
        ((reload("a.service"),), "reload"),
        ((reload("a.service"), restart("b.service")), "restart"),
        ((DRAIN, reload("a.service")), "drain"),
        ((DRAIN, REBOOT), "reboot"),
    ],
)
def test_disruption(actions: tuple[Action, ...], word: str) -> None:
    assert disruption(Plan("a", "b", (), actions)) == word


# --- properties

UNITS = [f"{letter}.service" for letter in "abcde"]
unit_actions = st.builds(Action, st.sampled_from([ActionType.RELOAD, ActionType.RESTART]), st.sampled_from(UNITS))
action_lists = st.one_of(
    st.just((NONE,)),
    st.just((DRAIN, REBOOT)),
    st.lists(st.one_of(unit_actions, st.sampled_from([DRAIN, DAEMON_RELOAD])), max_size=5).map(tuple),
)
asked_lists = st.dictionaries(st.sampled_from([f"file:/etc/{n}" for n in range(8)]), action_lists, max_size=8).map(
    lambda found: list(found.items())
)


@given(asked_lists, st.randoms())
def test_order_of_the_input_does_not_matter(asked: list[tuple[str, tuple[Action, ...]]], random: Any) -> None:
    shuffled = asked.copy()
    random.shuffle(shuffled)
    assert combine(asked) == combine(shuffled)


@given(asked_lists)
def test_each_action_once_and_in_its_place(asked: list[tuple[str, tuple[Action, ...]]]) -> None:
    actions = combine(asked)
    keys = [(action.type, action.unit) for action in actions]
    assert len(keys) == len(set(keys))
    rank = [ActionType.DRAIN, ActionType.DAEMON_RELOAD, ActionType.RELOAD, ActionType.RESTART, ActionType.REBOOT]
    types = [action.type for action in actions]
    if ActionType.NONE in types:
        assert types == [ActionType.NONE]
    else:
        assert types == sorted(types, key=rank.index)
    if ActionType.REBOOT in types:
        assert types == [ActionType.DRAIN, ActionType.REBOOT]
    restarted = {action.unit for action in actions if action.type is ActionType.RESTART}
    assert not restarted & {action.unit for action in actions if action.type is ActionType.RELOAD}
    assert bool(actions) == bool(asked)


@given(asked_lists)
def test_nothing_that_was_asked_for_gets_lost(asked: list[tuple[str, tuple[Action, ...]]]) -> None:
    actions = combine(asked)
    rebooting = any(action.type is ActionType.REBOOT for action in actions)
    for change, wanted in asked:
        for want in wanted:
            named = [
                action
                for action in actions
                if change in action.because
                and (action.type is want.type or action.type is ActionType.RESTART)
                and action.unit == want.unit
            ]
            assert named or rebooting or want.type is ActionType.NONE
    for action in actions:
        assert action.because
        assert list(action.because) == sorted(set(action.because))


@given(asked_lists)
def test_the_order_of_each_list_is_kept_unless_lists_contradict(asked: list[tuple[str, tuple[Action, ...]]]) -> None:
    actions = combine(asked)
    place = {(action.type, action.unit): index for index, action in enumerate(actions)}
    for verb in (ActionType.RELOAD, ActionType.RESTART):
        lists = [
            list(dict.fromkeys(a.unit for a in wanted if a.type is verb and (verb, a.unit) in place))
            for _, wanted in asked
        ]
        pairs = {(x, y) for units in lists for i, x in enumerate(units) for y in units[i + 1 :]}
        if any(_reaches(pairs, y, x) for x, y in pairs):
            continue
        # A reload that became a restart may relate two restarts in yet another way.
        if verb is ActionType.RESTART and any(a.type is ActionType.RELOAD for _, wanted in asked for a in wanted):
            continue
        for x, y in pairs:
            assert place[verb, x] < place[verb, y]


def _reaches(pairs: set[tuple[str, str]], start: str, goal: str) -> bool:
    seen, todo = set(), [start]
    while todo:
        node = todo.pop()
        if node == goal:
            return True
        if node not in seen:
            seen.add(node)
            todo += [y for x, y in pairs if x == node]
    return False


@given(
    st.lists(st.sampled_from([PULL_SECRET, POLICY_JSON, USER_CA, IRI_CA, SIGNATURES, "/etc/hosts"]), unique=True),
    st.randoms(),
)
def test_the_same_input_gives_the_same_bytes(paths: list[str], random: Any) -> None:
    def text(paths: list[str], policy: Policy) -> str:
        return json.dumps(plan_to_dict(make_plan(BASE, changed({"files": paths}), policy)))

    shuffled = paths.copy()
    random.shuffle(shuffled)
    turned = replace(default_policy(), files=dict(reversed(list(default_policy().files.items()))))
    assert text(paths, default_policy()) == text(shuffled, turned)


# --- the contract's object


def test_contract_object() -> None:
    plan = make_plan(config("a", files={POLICY_JSON: b"1"}), config("b", files={POLICY_JSON: b"2"}), default_policy())
    assert plan_to_dict(plan) == {
        "schema": "nodeagent/plan/v1",
        "from": "a",
        "to": "b",
        "changes": [
            {
                "domain": "file",
                "key": POLICY_JSON,
                "change": "modified",
                "policy": "default",
                "actions": [{"type": "Reload", "unit": "crio.service"}],
            }
        ],
        "actions": [{"type": "Reload", "unit": "crio.service", "because": [f"file:{POLICY_JSON}"]}],
        "drain": False,
        "disruption": "reload",
        "counts": {"added": 0, "changed": 1, "removed": 0, "total": 1},
    }


@pytest.mark.parametrize("case", TABLE)
def test_there_and_back(case: str) -> None:
    what, policy, _ = TABLE[case]
    plan = make_plan(BASE, changed(what), policy)
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan


def test_keys_of_a_newer_agent_are_ignored() -> None:
    data = plan_to_dict(make_plan(BASE, changed({"files": [POLICY_JSON]}), default_policy()))
    data["estimate"] = 3
    data["actions"][0]["estimate"] = 3
    assert plan_from_dict(data).actions[0].unit == "crio.service"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "nodeagent/plan/v2"},
        {"from": None},
        {"actions": None},
        {"actions": ["Reboot"]},
        {"actions": [{"type": "SoftReboot"}]},
        {"actions": [{"type": "Reload"}]},
        {"actions": [{"type": "Reboot", "unit": "a.service"}]},
        {"actions": [{"type": "Reboot", "because": "x"}]},
        {"changes": [{"domain": "file"}]},
        {"changes": [{"domain": "file", "key": "k", "change": "moved", "policy": "user", "actions": []}]},
    ],
)
def test_what_we_cannot_carry_out_is_refused(change: dict[str, Any]) -> None:
    data = plan_to_dict(make_plan(BASE, changed({"files": [POLICY_JSON]}), default_policy()))
    with pytest.raises(ValueError, match=r"\w"):
        plan_from_dict({**data, **change})


@pytest.mark.parametrize(
    ("policy", "source"),
    [
        (Policy(), PolicySource.DEFAULT),
        (Policy(units={"x.service": Entry("x.service", (REBOOT,), PolicySource.USER)}), PolicySource.USER),
    ],
)
def test_an_idle_unit_takes_no_action_whatever_the_policy_lists(policy: Policy, source: PolicySource) -> None:
    new = MachineConfig("b", units={"x.service": UnitEntry("x.service", enabled=True)})
    (planned,) = make_plan(MachineConfig("a"), new, policy, idle={"x.service": "there is no unit"}).changes
    assert (planned.actions, planned.why, planned.policy) == ((NONE,), "there is no unit", source)
