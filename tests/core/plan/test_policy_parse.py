# SPDX-License-Identifier: Apache-2.0
"""Reading a policy: what is accepted, and that everything wrong is said at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.plan.change import Change, ChangeKind, PolicySource
from nodeagent.core.plan.policy import (
    DAEMON_RELOAD,
    DRAIN,
    NONE,
    REBOOT,
    MatchKind,
    clean_path,
    drop_in_directory,
    is_policy_file,
    match,
    merge,
    reload,
    restart,
)
from nodeagent.core.plan.policy_parse import MAX_ENTRIES, parse_policy
from nodeagent.domains import default_policy
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason

NONE_DICT = {"type": "None"}


def parse(data: object) -> Any:
    return parse_policy(json.dumps(data).encode())


def problems(data: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        parse(data)
    return [f"{p.path}: {p.message}" for p in caught.value.problems]


def a_file(*actions: object, path: str = "/etc/x") -> dict[str, object]:
    return {"files": [{"path": path, "actions": list(actions)}]}


FULL = {
    "files": [
        {
            "path": "/etc/x/",
            "actions": [
                {"type": "Drain"},
                {"type": "DaemonReload"},
                {"type": "Reload", "reload": {"serviceName": "a.service"}},
                {"type": "Restart", "restart": {"serviceName": r"b-c:d\x2d_1.socket"}},
            ],
        }
    ],
    "units": [{"name": "foo.service", "actions": [{"type": "Reboot"}]}],
    "sshkey": {"actions": [NONE_DICT]},
}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda body: body,
        lambda body: {"nodeDisruptionPolicy": body},
        lambda body: {
            "apiVersion": "operator.openshift.io/v1",
            "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"},
            "spec": {"logLevel": "Normal", "nodeDisruptionPolicy": body, "managementState": "Managed"},
            "status": {"observedGeneration": 3},
        },
    ],
)
def test_every_form(wrap: Any) -> None:
    policy = parse(wrap(FULL))
    assert policy.files["/etc/x"].actions == (
        DRAIN,
        DAEMON_RELOAD,
        reload("a.service"),
        restart(r"b-c:d\x2d_1.socket"),
    )
    assert policy.units["foo.service"].actions == (REBOOT,)
    assert policy.sshkey.actions == (NONE,)
    assert {e.source for e in (*policy.files.values(), *policy.units.values(), policy.sshkey)} == {PolicySource.USER}


def test_yaml() -> None:
    text = b"files:\n- path: /etc/x\n  actions:\n  - type: Restart\n    restart: {serviceName: a.service}\n"
    assert parse_policy(text).files["/etc/x"].actions == (restart("a.service"),)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"files": None, "units": None, "sshkey": None},
        {"files": [], "units": [], "sshkey": {"actions": []}},
        {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "spec": {}},
        {"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration"},
    ],
)
def test_nothing_said_is_as_built_in(data: object) -> None:
    policy = parse(data)
    assert (policy.files, policy.units, policy.sshkey) == ({}, {}, None)
    assert merge(default_policy(), policy) == default_policy()


def test_as_many_entries_as_are_allowed() -> None:
    paths = [f"/etc/{number}" for number in range(MAX_ENTRIES)]
    assert list(parse({"files": [{"path": path, "actions": [{"type": "None"}]} for path in paths]}).files) == paths


def test_an_empty_list_of_a_file_is_its_own_entry() -> None:
    assert parse(a_file()).files["/etc/x"].actions == ()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (a_file({"type": "Special"}), "files[0].actions[0].type: Special is reserved for built-in entries"),
        (a_file({"type": "reboot"}), "files[0].actions[0].type: must be one of None, Drain,"),
        (a_file({"type": "restart", "restart": {"serviceName": "a.service"}}), "did you mean Restart? (/etc/x)"),
        (a_file({"type": "Reload", "reload": {"serviceName": "chronyd"}}), "did you mean chronyd.service? (/etc/x)"),
        (a_file({}), "files[0].actions[0].type: is required"),
        (a_file({"type": 3}), "files[0].actions[0].type: must be a string"),
        (a_file("Reboot"), "files[0].actions[0]: must be an object"),
        (a_file({"type": "Reload"}), "files[0].actions[0].reload: is required for this type"),
        (a_file({"type": "Reload", "restart": {"serviceName": "a.service"}}), "restart: is not allowed for this type"),
        (a_file({"type": "None", "reload": {"serviceName": "a.service"}}), "reload: is not allowed for this type"),
        (a_file({"type": "Reload", "reload": {}}), "reload.serviceName: is required"),
        (a_file({"type": "Reload", "reload": {"serviceName": "a"}}), "reload.serviceName: must be letters"),
        (a_file({"type": "Reload", "reload": {"serviceName": ".service"}}), "reload.serviceName: must be letters"),
        (a_file({"type": "Reload", "reload": {"serviceName": "a b.service"}}), "reload.serviceName: must be letters"),
        (a_file({"type": "Reload", "reload": {"serviceName": "../a.service"}}), "reload.serviceName: must be letters"),
        (a_file({"type": "Reload", "reload": {"serviceName": "a.service\n"}}), "reload.serviceName: must be letters"),
        (a_file({"type": "Reload", "reload": {"serviceName": "a" * 248 + ".service"}}), "longer than 255"),
        (a_file(NONE_DICT, {"type": "Drain"}), "files[0].actions: None must be the only action"),
        (a_file({"type": "Reboot"}, {"type": "Drain"}), "files[0].actions: Reboot must be the only action"),
        (a_file(*[{"type": "Drain"}] * 11), "files[0].actions: has 11 actions; at most 10"),
        (a_file(NONE_DICT, path="etc/x"), "files[0].path: must be absolute"),
        (a_file(NONE_DICT, path="/etc/../x"), "files[0].path: must not have"),
        (a_file(NONE_DICT, path="/etc//x"), "files[0].path: must not have"),
        (a_file(NONE_DICT, path="/"), "files[0].path: must name something below /"),
        (a_file(NONE_DICT, path="/etc/x\ny"), "files[0].path: must not have control characters"),
        (a_file(NONE_DICT, path="/" + "x" * 4096), "files[0].path: is longer than 4096 bytes"),
        ({"files": [{"actions": [NONE_DICT]}]}, "files[0].path: is required"),
        ({"files": [{"path": "/etc/x"}]}, "files[0].actions: is required"),
        ({"files": [{"path": "/etc/x", "actions": "None"}]}, "files[0].actions: must be a list"),
        ({"files": {}}, "files: must be a list"),
        (
            {"files": [{"path": p, "actions": []} for p in ("/etc/x", "/etc/x/")]},
            "files[1].path: '/etc/x' occurs twice",
        ),
        ({"files": [{"path": f"/etc/{n}", "actions": []} for n in range(51)]}, "files: has 51 entries; at most 50"),
        ({"units": [{"name": "foo", "actions": []}]}, "units[0].name: must be letters"),
        ({"units": [{"name": "foo.service", "actions": [], "path": "/x"}]}, "units[0]: unknown key 'path'"),
        ({"sshKey": {}}, ": unknown key 'sshKey'"),
        ({"sshkey": {"actions": [{"type": "Frob"}]}}, "sshkey.actions[0].type: must be one of"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "spec": {}}, "apiVersion: must be operator.openshift.io/v1"),
        ({"apiVersion": "operator.openshift.io/v1", "kind": "X"}, "kind: must be MachineConfiguration"),
        ({"nodeDisruptionPolicy": {"file": []}}, "nodeDisruptionPolicy: unknown key 'file'"),
        ([], ": must be an object"),
    ],
)
def test_refused(data: object, expected: str) -> None:
    assert any(expected in problem for problem in problems(data)), problems(data)


@pytest.mark.finding(
    "policy: instances and templates, policy: names of instances", "A policy may name instances and templates."
)
def test_instances_and_templates() -> None:
    act = {"type": "Restart", "restart": {"serviceName": "wg-quick@wg0.service"}}
    names = ["wg-quick@wg0.service", "wg-quick@.service", r"a@b\x2dc.timer"]
    policy = merge(default_policy(), parse({"units": [{"name": name, "actions": [act]} for name in names]}))
    assert policy.units[names[0]].actions == (restart("wg-quick@wg0.service"),)
    found = {
        name: getattr(match(policy, Change("unit", name, ChangeKind.MODIFIED)), "kind", None)
        for name in (*names[:2], "wg-quick@wg1.service", "wg-quick@wg1.timer", "wg-quick.service")
    }
    assert [*found.values()] == [MatchKind.EXACT, MatchKind.EXACT, MatchKind.PATTERN, None, None]


@pytest.mark.finding("policy: instances and templates", "A template does not run, so that no action may name one.")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (a_file({"type": "Restart", "restart": {"serviceName": "a@.service"}}), "is a template, which does not run"),
        (a_file({"type": "Reload", "reload": {"serviceName": "@a.service"}}), "must be letters"),
        (a_file({"type": "Reload", "reload": {"serviceName": "a@b@c.service"}}), "must be letters"),
    ],
)
def test_a_template_has_no_action(body: object, words: str) -> None:
    assert any(words in problem for problem in problems(body))


@pytest.mark.finding(
    "policy: instances and templates, policy: read again by a reload",
    "The hint about an invalid policy names the policy, not the config.",
)
@pytest.mark.parametrize("text", [b"files: 5\n", b"{", b""])
def test_an_invalid_policy_has_a_reason_of_its_own(text: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_policy(text or b"- a", "policy.yaml")
    assert caught.value.reason == Reason.POLICY_INVALID
    assert "the policy" in Reason.POLICY_INVALID.hint


def test_all_problems_at_once() -> None:
    data = {
        "files": [{"path": "x", "actions": [{"type": "Reload"}, {"type": "Frob"}]}],
        "units": [{"name": "a", "actions": [NONE_DICT, NONE_DICT]}],
        "sshkey": {"action": []},
    }
    assert [problem.split(":")[0] for problem in problems(data)] == [
        "files[0].actions[0].reload",
        "files[0].actions[1].type",
        "files[0].path",
        "sshkey",
        "units[0].actions",
        "units[0].name",
    ]


def test_not_a_document() -> None:
    with pytest.raises(InvalidInput):
        parse_policy(b"{")
    with pytest.raises(InvalidInput):
        parse_policy(b"files: [\n")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["files", "units", "sshkey", "path", "name", "actions", "type", "reload", "serviceName"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_data_gives_a_policy_or_a_typed_error(data: object) -> None:
    try:
        parse(data)
    except InvalidInput as error:
        assert error.message


# --- matching


@pytest.mark.parametrize(
    ("path", "files", "expected"),
    [
        ("/etc/mco/test", ["/etc/example"], None),
        ("/etc/mco/test1", ["/etc/mco/test1", "/etc/mco/test2"], "/etc/mco/test1"),
        ("/etc/mco/f1/f2/example", ["/etc/mco/f1", "/etc/mco/f1/f2", "/etc/mco/f1/f2/f3"], "/etc/mco/f1/f2"),
        ("/etc/mco/f1/f2/f3", ["/etc/mco/f1", "/etc/mco/f1/f2", "/etc/mco/f1/f2/f3"], "/etc/mco/f1/f2/f3"),
        ("/etc/mco/f1/f2/f3", ["/etc/mco/f1/test", "/etc/mco/f1/f2/test", "/etc/mco/f1/f2/f3/f4"], None),
        ("/etc/mcotest", ["/etc/mco"], None),
        ("/etc/mco", ["/etc/mco/"], "/etc/mco"),
        ("/etc/mco/a", ["/etc/mco/"], "/etc/mco"),
        ("/etc", ["/etc/mco"], None),
    ],
)
def test_longest_directory(path: str, files: list[str], expected: str | None) -> None:
    policy = parse({"files": [{"path": key, "actions": []} for key in files]})
    found = match(policy, Change("file", path, ChangeKind.MODIFIED))
    assert (found.entry.key if found else None) == expected


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5), st.data())
def test_the_match_is_the_longest_of_all_that_match(parts: list[str], data: st.DataObject) -> None:
    path = "/" + "/".join(parts)
    keys = data.draw(
        st.lists(
            st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(lambda p: "/" + "/".join(p)),
            unique=True,
        )
    )
    policy = parse({"files": [{"path": key, "actions": []} for key in keys]})
    found = match(policy, Change("file", path, ChangeKind.MODIFIED))
    candidates = [key for key in keys if path == key or path.startswith(f"{key}/")]
    assert (found.entry.key if found else None) == max(candidates, key=len, default=None)


def test_user_entries_replace_by_key() -> None:
    user = parse(
        {
            "files": [
                {"path": "/etc/containers/registries.d/", "actions": [NONE_DICT]},
                {"path": "/etc/new", "actions": []},
            ],
            "units": [{"name": "iri-registry.service", "actions": []}],
            "sshkey": {"actions": [{"type": "Reboot"}]},
        }
    )
    merged = merge(default_policy(), user)
    assert merged.files["/etc/containers/registries.d"].source is PolicySource.USER
    assert merged.files["/etc/crio/policies"].source is PolicySource.DEFAULT
    assert len(merged.files) == len(default_policy().files) + 1
    assert merged.sshkey is not None
    assert merged.sshkey.actions == (REBOOT,)
    assert {entry.key for entry in merged.replaced} == {
        "/etc/containers/registries.d",
        "iri-registry.service",
        "sshkey",
    }


def test_clean_path() -> None:
    assert clean_path("/etc/x/") == clean_path("/etc/x") == "/etc/x"
    assert clean_path("/") == "/"


def test_patterns() -> None:
    policy = parse({"files": [{"path": "/etc/x/*.conf", "actions": [NONE_DICT]}]})
    assert not policy.files
    found = match(merge(default_policy(), policy), Change("file", "/etc/x/a.conf", ChangeKind.ADDED))
    assert found is not None
    assert (found.entry.actions, found.kind) == ((NONE,), "pattern")


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [("/etc/a*", "/etc/*a", True), ("/etc/a*", "/etc/b*", False), ("/etc/a*", "/etc/ab*", False)],
)
def test_two_patterns_that_contradict_each_other(one: str, other: str, refused: bool) -> None:
    data = {"files": [{"path": one, "actions": [NONE_DICT]}, {"path": other, "actions": [{"type": "Reboot"}]}]}
    if refused:
        (problem,) = problems(data)
        assert "match the same paths" in problem
    else:
        assert list(parse(data).patterns) == [one, other]
    same = {"files": [{"path": path, "actions": [NONE_DICT]} for path in (one, other)]}
    assert list(parse(same).patterns) == [one, other]


def test_a_name_with_two_stars() -> None:
    assert "more than one *" in problems(a_file(NONE_DICT, path="/etc/**"))[0]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/etc/nodeagent/policy.yaml", True),
        ("/etc/nodeagent/policy.yaml.d/10-a.yaml", True),
        ("/etc/nodeagent/policy.yaml.d/.10-a.yaml", False),
        ("/etc/nodeagent/policy.yaml.d/10-a.yaml.rpmsave", False),
        ("/etc/nodeagent/other.yaml", False),
    ],
)
def test_the_files_of_a_policy(path: str, is_one: bool) -> None:
    policy = "/etc/nodeagent/policy.yaml"
    assert is_policy_file(policy, path.replace("/etc/nodeagent/policy.yaml.d", drop_in_directory(policy))) is is_one
    assert not is_policy_file("", path)
