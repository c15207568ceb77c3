# SPDX-License-Identifier: Apache-2.0
"""`nodeagent policy suggest`, and the line of `plan` about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli import _plan_inputs
from nodeagent.cli import policy as command
from nodeagent.cli.main import main
from nodeagent.core.plan.policy import merge
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.domains import default_policy
from nodeagent.settings.load import load
from tests.cli.conftest import machine_config, write

RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"


@pytest.fixture(autouse=True)
def recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plan_inputs, "RECOMMENDED", str(RECOMMENDED))


def change(key: str, domain: str = "file", policy: str = "none", *actions: str) -> dict[str, Any]:
    return {
        "domain": domain,
        "key": key,
        "change": "modified",
        "policy": policy,
        "actions": list(actions or ("Drain", "Reboot")),
    }


def suggested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *changes: dict[str, Any], more: int = 0
) -> tuple[dict[str, Any], str]:
    monkeypatch.setattr(command, "_last_update", lambda: ("new", {"changes": changes}, more))
    assert main(["policy", "suggest"]) == 0
    text = capsys.readouterr().out
    assert main(["policy", "suggest", "--json"]) == 0
    return json.loads(capsys.readouterr().out), text


def test_the_entries_avoid_the_reboot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ("/etc/ssh/sshd_config.d/a.conf", "/etc/ssh/sshd_config.d/b.conf", "/etc/motd", "/etc/chrony.conf")
    answer, text = suggested(monkeypatch, capsys, *map(change, paths), change("/etc/x", "file", "user", "None"))
    assert answer["avoidable"] is True
    assert [entry["path"] for entry in answer["entries"]] == [
        "/etc/ssh/sshd_config.d/*.conf",
        "/etc/motd",
        "/etc/chrony.conf",
    ]
    # The output is a drop-in, and does what it is for.
    policy = merge(default_policy(), parse_policy(text.encode()))
    rest = command.disruptive_changes({"changes": [change(path) for path in paths]})
    assert all(command.suggest(*each, policy).entry is not None for each in rest)


def test_what_no_entry_avoids(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    changes = (
        change("/etc/motd"),
        change("/etc/unknown"),
        change("/etc/sysctl.d/a.conf"),
        change("kernelArguments", "kernelArguments"),
        change("/etc/mine", "file", "user", "Reboot"),
        change("/etc/crio/crio.conf", "file", "default"),
        change("app.service", "unit"),
    )
    answer, text = suggested(monkeypatch, capsys, *changes, more=2)
    assert (answer["avoidable"], answer["more"]) == (False, 2)
    assert [entry["path"] for entry in answer["entries"]] == ["/etc/motd"]
    assert {each["change"]: each["why"].split()[-1] for each in answer["others"]} == {
        "file:/etc/unknown": "unknown",
        "file:/etc/sysctl.d/a.conf": "true",
        "kernelArguments:kernelArguments": "entry",
        "file:/etc/mine": "it",
        "file:/etc/crio/crio.conf": "it",
        "unit:app.service": "true",
    }
    assert "still needs it for" in text
    assert "2 more changes" in text
    _, text = suggested(monkeypatch, capsys, change("/etc/unknown"))
    assert text.startswith("# No entry avoids the disruption by new:")


@pytest.mark.finding("users: plans of large configs", "`policy suggest` groups equal changes of a directory.")
def test_many_changes_without_an_entry(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = suggested(monkeypatch, capsys, *(change(f"/etc/unknown/{index}") for index in range(290)))
    assert text.splitlines()[1].startswith("#   290 files below /etc/unknown: ")


def test_nothing_to_avoid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer, text = suggested(monkeypatch, capsys, change("/etc/x", "file", "user", "None"))
    assert (answer["avoidable"], answer["entries"], text) == (False, [], "new needs no drain and no reboot\n")


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"to": "new", "changes": [{**change("/etc/motd"), "actions": [{"type": "Drain"}, {"type": "Reboot"}]}]}
    monkeypatch.setattr(command, "ask_plan", lambda *_, **__: plan)
    path = write(tmp_path / "new.json", machine_config("new", {"/etc/motd": b"x"}))
    assert main(["policy", "suggest", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["avoidable"] is True


@pytest.mark.parametrize(
    ("files", "shown"), [({"/etc/motd": b"x"}, True), ({"/etc/motd": b"x", "/etc/y": b"y"}, False)]
)
def test_plan_mentions_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, bytes], *, shown: bool
) -> None:
    old = write(tmp_path / "old.json", machine_config("old", {}))
    new = write(tmp_path / "new.json", machine_config("new", files))
    assert main(["plan", "--from", str(old), "--to", str(new)]) == 0
    assert ("nodeagent policy suggest" in capsys.readouterr().out) is shown


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["/etc/motd", "/etc/y"], "this change, so it drains and reboots; see nodeagent explain /etc/y"),
        (["/etc/motd", "/etc/y", "/etc/z"], "2 changes, so they drain and reboot; see nodeagent explain /etc/y"),
    ],
)
def test_plan_names_what_no_entry_covers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: list[str], said: str
) -> None:
    old = write(tmp_path / "old.json", machine_config("old", {}))
    new = write(tmp_path / "new.json", machine_config("new", dict.fromkeys(files, b"x")))
    assert main(["plan", "--from", str(old), "--to", str(new)]) == 0
    assert f"\nunlisted: no policy entry covers {said}\n" in capsys.readouterr().out


def test_check_of_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (good := tmp_path / "good.yaml").write_text("files: [{path: /etc/x, actions: [{type: None}]}]")
    (wide := tmp_path / "wide.yaml").write_text("units: [{name: '*.timer', actions: [{type: DaemonReload}]}]")
    (bad := tmp_path / "bad.yaml").write_text("units: [{name: a, actions: []}]")
    assert main(["policy", "check", str(good), str(wide)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines() == [
        f"{good}: valid, 1 entry",
        f"{wide}: valid, 1 entry",
        "  extension: *.timer: an API server refuses * in the name of a unit",
    ]
    assert main(["policy", "check", "--json", str(bad)]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "nodeagent/policy-check/v1"
    assert [(file["entries"], file["extensions"]) for file in answer["files"]] == [(0, [])]
    assert "end in a unit type" in answer["files"][0]["problems"][0]["message"]


@pytest.mark.finding("users: messages that name no way out", "A policy without actions is a note of its check.")
@pytest.mark.finding("users: messages that name no way out", "A problem of a policy names the path of its entry.")
def test_check_of_what_is_probably_not_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (empty := tmp_path / "empty.yaml").write_text("files: [{path: /etc/x, actions: []}]")
    assert main(["policy", "check", str(empty)]) == 0
    assert "note: /etc/x has no actions" in capsys.readouterr().out
    (wrong := tmp_path / "wrong.yaml").write_text("file: []\nfiles: [{path: /etc/x, actions: [{type: restart}]}]")
    assert main(["policy", "check", str(wrong)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  unknown key 'file'"
    assert lines[2].endswith("is 'restart'; did you mean Restart? (/etc/x)")


def test_check_of_the_policy_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings := tmp_path / "config.d").mkdir()
    policy = tmp_path / "policy.yaml"
    (settings / "10-test.yaml").write_text(f"policy: {policy}\n")
    monkeypatch.setattr(load, "__defaults__", ((str(settings),),))
    policy.write_text("units: [{name: 'a@.service', actions: [{type: None}]}]")
    assert main(["policy", "check"]) == 0
    assert "extension: a@.service: an API server refuses @" in capsys.readouterr().out
    monkeypatch.setattr(load, "__defaults__", ((str(tmp_path / "none"),),))
    monkeypatch.setattr(command, "read_policy_files", lambda settings: {})
    assert main(["policy", "check"]) == 0
    assert capsys.readouterr().out == "this host has no policy: the built-in entries apply\n"
