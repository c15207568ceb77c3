# SPDX-License-Identifier: Apache-2.0
"""`nodeagent explain` from the outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.main import main
from nodeagent.core.plan.policy_explain import SERVICE
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import with_rules
from nodeagent.domains.sysctl import RULE
from nodeagent.host.fs.owners import Owners, PasswdEntry
from nodeagent.reasons import DOCUMENTATION, documentation, hint, reason_of
from nodeagent.settings.load import load
from tests.cli.conftest import write
from tests.support.golden import Golden

OWN_ENTRY = f"an entry in /etc/nodeagent/policy.yaml: man nodeagent, POLICY, or {DOCUMENTATION}/usage/avoid-a-reboot.md"
UNITS_RULE = (
    "Start or Stop of a unit that is new, enabled, disabled, masked or leaves, if a boot would do the same; "
    "otherwise Drain and Reboot"
)
RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"

POLICY = {
    "files": [
        {"path": "/etc/containers/", "actions": [{"type": "Reboot"}]},
        {"path": "/etc/containers/policy.json", "actions": [{"type": "None"}]},
        {"path": "/etc/chrony.d", "actions": [{"type": "Restart", "restart": {"serviceName": "chronyd.service"}}]},
    ],
    "units": [{"name": "foo.service", "actions": [{"type": "DaemonReload"}]}],
}


@pytest.fixture
def policy(tmp_path: Path) -> str:
    return str(write(tmp_path / "policy.json", POLICY))


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["explain", *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data.pop("schema") == "nodeagent/explain/v1"
    return dict(data)


def test_the_policy_of_this_host_is_the_default(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert explained(capsys, "foo.service")["policy_file"] is None
    settings = tmp_path / "config.d"
    settings.mkdir()
    (settings / "10-test.yaml").write_text(f"policy: {policy}\n")
    monkeypatch.setattr(load, "__defaults__", ((str(settings),),))
    found = explained(capsys, "foo.service")
    assert (found["policy"], found["policy_file"]) == ("user", policy)
    assert main(["explain", "foo.service"]) == 0
    assert policy in capsys.readouterr().out


def test_drop_ins_of_this_host(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings := tmp_path / "config.d").mkdir()
    (settings / "10-test.yaml").write_text(f"policy: {policy}\n")
    monkeypatch.setattr(load, "__defaults__", ((str(settings),),))
    (tmp_path / "policy.d").mkdir()
    dropin = tmp_path / "policy.d/10-a.yaml"
    dropin.write_text("files: [{path: /etc/rsyslog.d/*.conf, actions: [{type: None}]}]")
    found = explained(capsys, "/etc/rsyslog.d/a.conf")
    assert (found["policy"], found["match"], found["entry"]) == ("user", "pattern", "/etc/rsyslog.d/*.conf")
    assert found["file"] == str(dropin)
    assert main(["explain", "/etc/rsyslog.d/a.conf"]) == 0
    assert f"this host ({dropin})" in capsys.readouterr().out
    assert main(["settings", "check"]) in (0, 2)
    assert f"policy {dropin}: good" in capsys.readouterr().out
    dropin.write_text("files: 5")
    assert main(["settings", "check"]) == 2
    assert f"policy {dropin}: bad" in capsys.readouterr().out
    assert main(["explain", "/etc/rsyslog.d/a.conf"]) == 2
    dropin.write_text("files: [{path: /etc/rsyslog.d/a.conf, actions: [{type: Reboot}]}]")
    (tmp_path / "policy.d/05-b.yaml").write_text("files: [{path: /etc/rsyslog.d/*, actions: [{type: None}]}]")
    found = explained(capsys, "/etc/rsyslog.d/a.conf")
    assert (found["match"], found["shadowed"]) == ("exact", [{"entry": "/etc/rsyslog.d/*", "policy": "user"}])


RESTART = {"type": "Restart", "unit": "chronyd.service"}
BOTH = [{"type": "Drain"}, {"type": "Reboot"}]


@pytest.mark.parametrize(
    ("target", "source", "entry", "match", "actions"),
    [
        ("/etc/chrony.d/a.conf", "user", "/etc/chrony.d", "directory", [RESTART]),
        ("/etc/chrony.d/", "user", "/etc/chrony.d", "exact", [RESTART]),
        ("/etc/chrony.data", "none", None, "none", BOTH),
        ("/etc/containers/other", "user", "/etc/containers", "directory", BOTH),
        ("/etc/containers/policy.json", "user", "/etc/containers/policy.json", "exact", [{"type": "None"}]),
        (
            "/etc/containers/registries.d/x.yaml",
            "default",
            "/etc/containers/registries.d",
            "directory",
            [{"type": "Reload", "unit": "crio.service"}],
        ),
        ("/etc/containers/registries.conf", "default", "/etc/containers/registries.conf", "exact", None),
        ("foo.service", "user", "foo.service", "exact", [{"type": "DaemonReload"}]),
        ("bar.service", "none", None, "none", BOTH),
        ("sshkey", "default", "sshkey", "exact", [{"type": "None"}]),
        ("password", "default", "sshkey", "exact", [{"type": "None"}]),
        ("user", "default", "sshkey", "exact", [{"type": "None"}]),
        ("osImageURL", "none", None, "none", BOTH),
        ("baseOSExtensionsContainerImage", "default", "baseOSExtensionsContainerImage", "exact", None),
    ],
)
def test_json(
    target: str,
    source: str,
    entry: str | None,
    match: str,
    actions: Any,
    policy: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = explained(capsys, target, "--policy", policy)
    assert (data["policy"], data["entry"], data["match"], data["actions"]) == (source, entry, match, actions)
    assert data["reason"]
    assert (data["rule"] is None) == (actions is not None)


def test_shadowed_entries(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = explained(capsys, "/etc/containers/policy.json", "--policy", policy)
    assert data["replaces"] is True
    assert data["shadowed"] == [{"entry": "/etc/containers", "policy": "user"}]


def test_text(policy: str, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert main(["explain", "/etc/containers/policy.json", "--policy", policy]) == 0
    golden("explain", "an entry of the user", capsys.readouterr().out)


@pytest.mark.parametrize("target", ["/etc/../x", "/", "etc/x", "foo", "foo.bar", "", "a b.service", "/etc/a\x1bb"])
def test_not_a_target(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", target]) == 2
    assert capsys.readouterr().err.startswith("nodeagent: Usage: ")


@pytest.mark.finding("commands: usage errors and hints", "`explain` of what no update can change says so.")
@pytest.mark.parametrize(
    ("target", "why"),
    [("fips", "FIPS mode is set when the host is installed"), ("/usr/lib/foo", "read-only"), ("/proc/sys/x", "kernel")],
)
def test_a_field_that_no_update_can_change(target: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The result agrees with `nodeagent plan`, which refuses it."""
    assert main(["explain", target]) == 0
    printed = capsys.readouterr().out
    assert "cannot be changed on a running host" in printed
    assert why in printed
    assert "Reboot" not in printed
    assert main(["explain", target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["actions"] == []


@pytest.mark.parametrize(
    ("target", "actions", "text"),
    [
        ("/etc/chrony.conf", [RESTART], "Restart chronyd.service, with the setting recommended_policy: true"),
        ("/etc/sysctl.d/a.conf", None, f"{RULE}, with the setting recommended_policy: true"),
        ("/etc/unknown", None, OWN_ENTRY),
        ("app.service", None, f"{UNITS_RULE}, with the setting recommended_policy: true"),
        ("osImageURL", None, ""),
        ("/etc/containers/policy.json", None, ""),
        ("fips", None, ""),
    ],
)
def test_what_avoids_the_reboot(
    target: str, actions: Any, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = with_rules(parse_policy(RECOMMENDED.read_bytes()))
    monkeypatch.setattr("nodeagent.cli.explain.recommended_policy", lambda: policy)
    answer = explained(capsys, target)
    assert answer["recommended"] == actions
    rules = {"/etc/sysctl.d/a.conf": RULE, "app.service": UNITS_RULE}
    assert answer["recommended_rule"] == rules.get(target)
    assert main(["explain", target]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  to avoid")]
    assert shown == ([f"  to avoid  {text}"] if text else [])


@pytest.mark.parametrize(
    ("target", "actions"),
    [
        ("/etc/unknown", [{"type": "Restart", "unit": SERVICE}]),
        ("app.service", [{"type": "Restart", "unit": "app.service"}]),
        ("/etc/containers/policy.json", [{"type": "Reload", "unit": "crio.service"}]),
        ("user:alice", [{"type": "None"}]),
    ],
)
def test_the_entry_as_yaml(target: str, actions: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is printed is a policy, which has that entry."""
    assert main(["explain", target]) == 0
    (text,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  as YAML")]
    policy = tmp_path / "policy.yaml"
    policy.write_text(text.removeprefix("  as YAML"))
    answer = explained(capsys, target, "--policy", str(policy))
    assert answer["policy"] == "user"
    assert [
        {name: action[name] for name in action if name in ("type", "unit")} for action in answer["actions"]
    ] == actions


@pytest.mark.parametrize("target", ["kernelArguments", "fips", "/etc/containers/registries.conf"])
def test_no_entry_of_a_policy_says_the_same(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A field of the OS, what never changes, and what a rule decides."""
    assert main(["explain", target]) == 0
    assert "as YAML" not in capsys.readouterr().out


@pytest.mark.parametrize("word", ["Degraded", "leasing"])
def test_a_phase(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 2
    assert "hint: it is a phase" in capsys.readouterr().err


def test_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, "LeaseHeld")
    assert found == {
        "domain": "reason",
        "key": "LeaseHeld",
        "meaning": reason_of("LeaseHeld").meaning,
        "hint": hint("LeaseHeld"),
        "documentation": documentation("LeaseHeld"),
    }
    assert main(["explain", "LeaseHeld"]) == 0
    assert documentation("LeaseHeld") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("RebootRequird", "RebootRequired"),
        ("kernelArgs", "kernelArguments"),
        ("chronyd.servce", "chronyd.service"),
        ("ssh-key", "sshkey"),
        ("leaseheld", "LeaseHeld"),
        ("kernelargs", "kernelArguments"),
        ("link:/etc/localtime", "/etc/localtime"),
        ("chronyd", "chronyd.service"),
    ],
)
def test_a_word_with_a_typing_error(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 2
    assert capsys.readouterr().err.endswith(f"hint: did you mean {meant}?\n")


@pytest.mark.parametrize(
    ("entry", "domain", "key"),
    [
        ("user:alice", "user", "alice"),
        ("sshkey:alice", "sshkey", "alice"),
        ("password:alice", "password", "alice"),
        ("file:/etc/localtime", "file", "/etc/localtime"),
        ("unit:foo.service", "unit", "foo.service"),
        ("osImageURL:osImageURL", "osImageURL", "osImageURL"),
    ],
)
def test_an_entry_as_a_plan_prints_it(entry: str, domain: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys, entry)
    assert (found["domain"], found["key"]) == (domain, key)


def test_a_user(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["explain", "user:alice"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("user:alice\n")
    assert "the entry sshkey of a policy decides" in output
    monkeypatch.setattr(Owners, "user", lambda _self, name: PasswdEntry(name, 1001, 1001))
    assert main(["explain", "alice"]) == 2
    assert capsys.readouterr().err.endswith("hint: did you mean user:alice?\n")


def test_a_directory_of_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    for path, noted in (("/var/lib", True), ("/etc/hostname", False), ("/etc/missing", False)):
        assert main(["explain", path]) == 0
        assert ("storage.directories" in capsys.readouterr().out) is noted, path
